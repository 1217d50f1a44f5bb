use bellpepper_core::Circuit;
use ff::Field;
use rand_core::RngCore;

use super::*;
use crate::domain::DomainError;
use crate::test_circuits::{Cubic, InputsOnly, Quirks, Random, Sha256Preimage, Squarings, rng};

type Entry = (Side, usize, usize, Scalar);

/// All entries of a shape, as its synthesis made them: row by row, A before B before C.
fn entries(r1cs: &R1cs) -> Vec<Entry> {
    let sides = [(Side::A, r1cs.a()), (Side::B, r1cs.b()), (Side::C, r1cs.c())];
    let row_of = |row: usize| {
        sides.into_iter().flat_map(move |(side, matrix)| {
            let coefficient = |index: u32| r1cs.coefficients()[index as usize];
            matrix.row(row).map(move |(column, index)| (side, row, column, coefficient(index)))
        })
    };
    (0..r1cs.constraints()).flat_map(row_of).collect()
}

fn build(r1cs: &R1cs, entries: &[Entry], rows: usize, input_rows: InputRows, products: Products) -> R1cs {
    let mut builder = R1csBuilder::new(r1cs.inputs(), r1cs.aux(), rows).expect("sizes");
    for (side, row, column, coefficient) in entries {
        builder.push(*side, *row, *column, coefficient).expect("an entry of the shape");
    }
    builder.finish(input_rows, products).expect("a shape")
}

fn products(r1cs: &R1cs, assignment: &[Scalar]) -> Vec<Vec<Scalar>> {
    let product = |matrix| {
        let mut out = vec![Scalar::ZERO; r1cs.constraints()];
        r1cs.evaluate(matrix, assignment, &mut out);
        out
    };
    [r1cs.a(), r1cs.b(), r1cs.c()].into_iter().map(product).collect()
}

fn check<C: Circuit<Scalar>>(name: &str, circuit: C) {
    let shape = R1cs::from_circuit(circuit).expect(name);
    let mut all = entries(&shape);
    let rows = shape.constraints();

    let same = build(&shape, &all, rows, InputRows::Given, Products::Matrix);
    assert_eq!(same.digest(), shape.digest(), "{name}: as synthesised");
    let own = rows - shape.inputs();
    let without: Vec<Entry> = all.iter().copied().filter(|(_, row, ..)| *row < own).collect();
    let appended = build(&shape, &without, own, InputRows::Append, Products::Matrix);
    assert_eq!(appended.digest(), shape.digest(), "{name}: rows for the inputs appended");

    // In any order, and with each coefficient in two entries, the products are the same.
    let mut rng = rng(5);
    for i in (1..all.len()).rev() {
        all.swap(i, rng.next_u64() as usize % (i + 1));
    }
    let part = Scalar::random(&mut rng);
    let mut halves: Vec<Entry> = all.iter().map(|&(side, row, column, c)| (side, row, column, c - part)).collect();
    halves.extend(all.iter().map(|&(side, row, column, _)| (side, row, column, part)));
    let mut assignment: Vec<Scalar> = (0..shape.variables()).map(|_| Scalar::random(&mut rng)).collect();
    assignment[0] = Scalar::ONE;
    let expected = products(&shape, &assignment);
    for (order, entries) in [("shuffled", &all), ("in halves", &halves)] {
        let built = build(&shape, entries, rows, InputRows::Given, Products::Matrix);
        assert_eq!(products(&built, &assignment), expected, "{name}, {order}");
        assert_eq!(built.a_density(), shape.a_density(), "{name}, {order}");
        assert_eq!(built.b_density(), shape.b_density(), "{name}, {order}");
    }

    let implied = build(&shape, &all, rows, InputRows::Given, Products::Implied);
    assert!(implied.products_implied() && implied.c().rows() == 0, "{name}");
    assert_ne!(implied.digest(), shape.digest(), "{name}");
    assert_eq!(implied.first_unsatisfied(&assignment), None, "{name}");
}

#[test]
fn entries_make_the_shape_again_in_any_order() {
    check("cubic", Cubic(None));
    check("inputs only", InputsOnly);
    check("quirks", Quirks(None));
    check("squarings", Squarings { start: None, steps: 3000 });
    check("sha256", Sha256Preimage { bytes: None, len: 6 });
    for seed in 0..20 {
        check(&format!("random {seed}"), Random::small(seed));
    }
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_allocated() {
    assert!(matches!(R1csBuilder::new(0, 5, 5), Err(ShapeError::TooLarge { .. })));
    assert!(matches!(R1csBuilder::new(1, u32::MAX as usize, 5), Err(ShapeError::TooLarge { .. })));
    assert!(matches!(R1csBuilder::new(usize::MAX, usize::MAX, 5), Err(ShapeError::TooLarge { .. })));
    for rows in [1 << 31, usize::MAX] {
        let error = R1csBuilder::new(1, 1, rows).expect_err("too many rows");
        assert!(matches!(error, ShapeError::Domain(DomainError::TooLarge { .. })), "{error:?}");
    }
    let mut builder = R1csBuilder::new(2, 3, 4).expect("sizes");
    let mut push = |row, column| builder.push(Side::B, row, column, &Scalar::ONE);
    assert!(push(3, 4).is_ok());
    assert!(matches!(push(4, 4), Err(ShapeError::UnknownRow { row: 4, rows: 4 })));
    assert!(matches!(push(3, 5), Err(ShapeError::UnknownVariable { constraint: 3 })));
}

#[test]
fn rows_behind_the_last_entry_are_left_out_if_all_were_given() {
    let mut builder = R1csBuilder::new(1, 1, 1000).expect("sizes");
    builder.push(Side::A, 4, 1, &Scalar::ONE).expect("an entry");
    builder.push(Side::B, 2, 0, &Scalar::ONE).expect("an entry");
    let shape = builder.finish(InputRows::Given, Products::Matrix).expect("a shape");
    assert_eq!((shape.constraints(), shape.b().rows(), shape.domain().size()), (5, 5, 8));
}
