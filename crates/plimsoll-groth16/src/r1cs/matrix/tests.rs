use rand_core::RngCore;

use super::*;
use crate::test_circuits::rng;

/// Of what is given, the column as everybody else counts it, and the coefficient.
fn plain(inputs: usize, term: Term) -> (usize, u32) {
    let column = match term.column {
        Column::Input(index) => index as usize,
        Column::Aux(index) => index as usize + inputs,
    };
    (column, term.coefficient)
}

fn check(name: &str, inputs: usize, rows: &[Vec<Term>]) -> Matrix {
    let expected: Vec<Vec<_>> = rows.iter().map(|row| row.iter().map(|&term| plain(inputs, term)).collect()).collect();
    let mut pushed = Matrix::default();
    rows.iter().for_each(|row| pushed.push_row(row.iter().copied()));
    let pushed = pushed.finish(inputs);
    let at_once = Matrix::of_rows(inputs, || rows.iter().map(|row| row.iter().copied()));
    assert_eq!(pushed.codes, at_once.codes, "{name}");
    assert_eq!(at_once.codes.capacity(), at_once.codes.len(), "{name}: measured beforehand");
    for matrix in [&pushed, &at_once] {
        assert_eq!((matrix.rows(), matrix.entries()), (rows.len(), rows.iter().map(Vec::len).sum()), "{name}");
        let mut walk = matrix.walk();
        for (row, expected) in expected.iter().enumerate() {
            assert_eq!(&walk.next_row().collect::<Vec<_>>(), expected, "{name}, row {row} in order");
        }
        assert_eq!(walk.next_row().count(), 0, "{name}: after the last");
        // By themselves, in leaps, and back again.
        let mut walk = matrix.walk();
        for row in (0..rows.len()).rev().chain((0..rows.len()).step_by(7)) {
            assert_eq!(matrix.row(row).collect::<Vec<_>>(), expected[row], "{name}, row {row}");
            assert_eq!(walk.row(row).collect::<Vec<_>>(), expected[row], "{name}, row {row} in a walk");
        }
        assert_eq!(matrix.all_entries().collect::<Vec<_>>(), expected.concat(), "{name}");
        let most = Matrix::bytes_for(matrix.entries() as u64, rows.len() as u64);
        assert!(matrix.resident_bytes() <= most, "{name}: {} of {most}", matrix.resident_bytes());
    }
    pushed
}

fn aux(index: u32, coefficient: u32) -> Term {
    Term { column: Column::Aux(index), coefficient }
}

#[test]
fn rows_are_what_they_were_made_of() {
    check("nothing", 1, &[]);
    check("empty rows", 1, &vec![Vec::new(); 3 * BLOCK + 1]);
    // Distances and indices at the edges of their codes, in every order.
    let columns = [0, 1, 12, 13, 14, 15, 28, 29, 100, 1 << 15, (1 << 15) - 1, (1 << 15) + 1, 1 << 16, u32::MAX - 1];
    let coefficients = [0, 1, 3, 4, 5, 6, 255, 256, 257, u32::MAX - 1, u32::MAX, 0];
    let mut rows = Vec::new();
    for from in columns {
        for to in columns {
            rows.push(
                coefficients.iter().flat_map(|&c| [aux(from, c), aux(to, c), aux(to, c.saturating_add(1))]).collect(),
            );
        }
    }
    let inputs = [0, 1, 2, 70_000, u32::MAX].map(|index| Term { column: Column::Input(index), coefficient: 0 });
    rows.push(inputs.to_vec());
    rows.push([inputs[1], aux(5, 2), inputs[0], aux(6, 2), inputs[4]].to_vec());
    check("edges", 3, &rows);
    // Rows of just as many bytes as a byte can say, and of one more or less: 1-byte entries.
    let len = |len: usize| (0..len as u32).map(|index| aux(index, 0)).collect::<Vec<_>>();
    check("long rows", 1, &[len(253), len(254), len(255), len(256), len(70_000), len(1)]);
    // The worst: each entry as long as can be.
    let worst = |len: u32| (0..len).map(|i| aux((i % 2) * (1 << 30), 1000 + 7 * i)).collect::<Vec<_>>();
    check("nine bytes an entry", 1, &[worst(28), worst(29), worst(1), worst(10_000)]);
    let mut rng = rng(3);
    let mut random = |below: u64| (rng.next_u64() % below) as u32;
    let rows: Vec<Vec<Term>> = (0..1000)
        .map(|_| {
            let len = random(6);
            (0..len)
                .map(|_| {
                    if random(4) == 0 {
                        Term { column: Column::Input(random(3)), coefficient: random(9) }
                    } else {
                        aux(random(1 << 17), random(600))
                    }
                })
                .collect()
        })
        .collect();
    check("random", 3, &rows);
}

#[test]
fn an_entry_near_the_last_one_takes_a_byte() {
    // The rows of a chain: the constant with a coefficient, and the two last variables.
    let constant = Term { column: Column::Input(0), coefficient: 2 };
    let rows: Vec<_> = (1..10_000).map(|i| vec![constant, aux(i - 1, 0), aux(i, 0)]).collect();
    let matrix = check("chain", 2, &rows);
    // A length, three entries, a sixteenth of a block, and now and then a distance of two bytes from its beginning.
    assert!(matrix.resident_bytes() <= 55 * 1_000, "{} bytes", matrix.resident_bytes());
}
