//! The two ways to synthesise a `bellpepper-core` circuit: for its shape, once, and for a witness of a known shape.
//!
//! The shape synthesis calls no value closure and keeps the linear combinations. The witness synthesis calls the value
//! closures and keeps nothing else: it does not even run the closures that would build the linear combinations.

use std::fmt;

use bellpepper_core::{ConstraintSystem, Index, LinearCombination, SynthesisError, Variable};
use blstrs::Scalar;

use crate::domain::Domain;
use crate::r1cs::{Column, MatrixBuilder, R1cs, ShapeError};
use crate::secret::SecretScalars;

/// Collects the matrices of a circuit.
pub(crate) struct ShapeBuilder {
    inputs: usize,
    aux: usize,
    constraints: usize,
    matrices: MatrixBuilder,
    error: Option<ShapeError>,
}

impl ShapeBuilder {
    /// A builder in which the constant one is allocated as input 0.
    pub(crate) fn with_one() -> Self {
        Self { inputs: 1, aux: 0, constraints: 0, matrices: MatrixBuilder::new(), error: None }
    }

    pub(crate) fn finish(mut self) -> Result<R1cs, ShapeError> {
        for input in 0..self.inputs {
            let variable = Variable::new_unchecked(Index::Input(input));
            self.enforce(|| "", |lc| lc + variable, |lc| lc, |lc| lc);
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        let (inputs, aux) = (self.inputs, self.aux);
        if inputs + aux > u32::MAX as usize {
            return Err(ShapeError::TooLarge { what: "variables" });
        }
        let domain = Domain::new(self.constraints)?;
        let (matrices, coefficients) = self.matrices.finish(inputs);
        Ok(R1cs::from_parts(inputs, aux, domain, coefficients, matrices, false))
    }

    fn push_row(&mut self, matrix: usize, combination: &LinearCombination<Scalar>) {
        for (variable, coefficient) in combination.iter() {
            let column = match variable.get_unchecked() {
                Index::Input(index) if index < self.inputs => Column::Input(index as u32),
                Index::Aux(index) if index < self.aux => Column::Aux(index as u32),
                Index::Input(_) | Index::Aux(_) => {
                    self.error.get_or_insert(ShapeError::UnknownVariable { constraint: self.constraints });
                    return;
                }
            };
            self.matrices.push(matrix, column, coefficient);
        }
    }

    fn count(counter: &mut usize) -> Result<usize, SynthesisError> {
        let index = *counter;
        if index >= u32::MAX as usize {
            return Err(SynthesisError::PolynomialDegreeTooLarge);
        }
        *counter += 1;
        Ok(index)
    }
}

impl ConstraintSystem<Scalar> for ShapeBuilder {
    type Root = Self;

    fn new() -> Self {
        Self::with_one()
    }

    fn alloc<F, A, AR>(&mut self, _annotation: A, _value: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        Self::count(&mut self.aux).map(|index| Variable::new_unchecked(Index::Aux(index)))
    }

    fn alloc_input<F, A, AR>(&mut self, _annotation: A, _value: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        Self::count(&mut self.inputs).map(|index| Variable::new_unchecked(Index::Input(index)))
    }

    fn enforce<A, AR, LA, LB, LC>(&mut self, _annotation: A, a: LA, b: LB, c: LC)
    where
        A: FnOnce() -> AR,
        AR: Into<String>,
        LA: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LB: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LC: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
    {
        let zero = LinearCombination::zero;
        for (matrix, combination) in [a(zero()), b(zero()), c(zero())].iter().enumerate() {
            self.push_row(matrix, combination);
        }
        if !self.matrices.end_row() {
            self.error.get_or_insert(ShapeError::TooLarge { what: "entries in a matrix" });
        }
        self.constraints += 1;
    }

    fn push_namespace<NR, N>(&mut self, _name: N)
    where
        NR: Into<String>,
        N: FnOnce() -> NR,
    {
    }

    fn pop_namespace(&mut self) {}

    fn get_root(&mut self) -> &mut Self::Root {
        self
    }
}

/// Collects the values of a circuit whose shape is known, in the places that the caller provides.
pub(crate) struct WitnessCollector<'a> {
    inputs: &'a mut [Scalar],
    aux: &'a mut [Scalar],
    found: Counts,
    /// Whether the circuit has given values without constraints, as it may to who only collects values.
    in_bulk: bool,
    /// What a circuit writes to that asks for more places than there are.
    beyond: SecretScalars,
    /// Whether each variable is one of its own.
    distinct: bool,
}

/// How many of each a synthesis made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Public inputs, the constant one included.
    pub inputs: usize,
    /// Private variables.
    pub aux: usize,
    /// Constraints, those for the inputs included.
    pub constraints: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} inputs, {} private variables and {} constraints", self.inputs, self.aux, self.constraints)
    }
}

impl<'a> WitnessCollector<'a> {
    /// A collector in which the constant one is in place.
    ///
    /// # Panics
    /// When there is no place for it.
    pub(crate) fn with_one(inputs: &'a mut [Scalar], aux: &'a mut [Scalar], one: Scalar) -> Self {
        inputs[0] = one;
        Self {
            inputs,
            aux,
            found: Counts { inputs: 1, aux: 0, constraints: 0 },
            in_bulk: false,
            beyond: SecretScalars(Vec::new()),
            distinct: false,
        }
    }

    /// Whether each variable is to be one of its own, for circuits that look at them ([`Prover::with_distinct_variables`]).
    ///
    /// [`Prover::with_distinct_variables`]: crate::prover::Prover::with_distinct_variables
    pub(crate) fn with_distinct_variables(self, distinct: bool) -> Self {
        Self { distinct, ..self }
    }

    /// The index of the variable at a place. Nobody asks what is in a linear combination here, but circuits add up long ones all the
    /// same; where all variables are one, each has but one term, and a circuit of gadgets is done in a fraction of the time.
    fn index(&self, place: usize) -> usize {
        if self.distinct { place } else { 0 }
    }

    /// What was synthesised, with the constraints that the shape adds for the inputs.
    pub(crate) fn counts(&self) -> Counts {
        Counts { constraints: self.found.constraints + self.found.inputs, ..self.found }
    }

    /// Whether this is what a circuit of that shape synthesises. One that gives values in bulk leaves the constraints out that are
    /// between them.
    pub(crate) fn has_shape(&self, expected: &Counts) -> bool {
        let found = self.counts();
        let same_values = (found.inputs, found.aux) == (expected.inputs, expected.aux);
        same_values
            && (found.constraints == expected.constraints || self.in_bulk && found.constraints < expected.constraints)
    }

    /// Whether the circuit asked for more variables than its shape has.
    pub(crate) fn overflowed(&self) -> bool {
        self.found.inputs > self.inputs.len() || self.found.aux > self.aux.len()
    }
}

/// The next so many places, for who fills them; `None`, and a count beyond them, if there are not as many.
fn claim<'a>(places: &'a mut [Scalar], count: &mut usize, more: usize) -> Option<&'a mut [Scalar]> {
    let range = *count..count.saturating_add(more);
    *count = if range.end <= places.len() { range.end } else { places.len() + 1 };
    places.get_mut(range)
}

/// Puts values in the next places.
fn extend(places: &mut [Scalar], count: &mut usize, values: &[Scalar]) {
    if let Some(places) = claim(places, count, values.len()) {
        places.copy_from_slice(values);
    }
}

/// Puts a value in the next place. A variable beyond the last place is counted and refused.
fn place<F>(places: &mut [Scalar], count: &mut usize, value: F) -> Result<usize, SynthesisError>
where
    F: FnOnce() -> Result<Scalar, SynthesisError>,
{
    let index = *count;
    match places.get_mut(index) {
        Some(place) => {
            *place = value()?;
            *count += 1;
            Ok(index)
        }
        None => {
            *count = places.len() + 1;
            Err(SynthesisError::Unsatisfiable)
        }
    }
}

impl ConstraintSystem<Scalar> for WitnessCollector<'_> {
    type Root = Self;

    fn alloc<F, A, AR>(&mut self, _annotation: A, value: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        let place = place(self.aux, &mut self.found.aux, value)?;
        Ok(Variable::new_unchecked(Index::Aux(self.index(place))))
    }

    fn alloc_input<F, A, AR>(&mut self, _annotation: A, value: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        let place = place(self.inputs, &mut self.found.inputs, value)?;
        Ok(Variable::new_unchecked(Index::Input(self.index(place))))
    }

    fn enforce<A, AR, LA, LB, LC>(&mut self, _annotation: A, _a: LA, _b: LB, _c: LC)
    where
        A: FnOnce() -> AR,
        AR: Into<String>,
        LA: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LB: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LC: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
    {
        self.found.constraints += 1;
    }

    fn push_namespace<NR, N>(&mut self, _name: N)
    where
        NR: Into<String>,
        N: FnOnce() -> NR,
    {
    }

    fn pop_namespace(&mut self) {}

    fn get_root(&mut self) -> &mut Self::Root {
        self
    }

    fn is_witness_generator(&self) -> bool {
        true
    }

    fn extend_inputs(&mut self, values: &[Scalar]) {
        self.in_bulk = true;
        extend(self.inputs, &mut self.found.inputs, values);
    }

    fn extend_aux(&mut self, values: &[Scalar]) {
        self.in_bulk = true;
        extend(self.aux, &mut self.found.aux, values);
    }

    fn allocate_empty(&mut self, aux: usize, inputs: usize) -> (&mut [Scalar], &mut [Scalar]) {
        self.in_bulk = true;
        let (mut free_aux, mut free_inputs) =
            (claim(self.aux, &mut self.found.aux, aux), claim(self.inputs, &mut self.found.inputs, inputs));
        let missing = |places: &Option<&mut [Scalar]>, wanted| if places.is_some() { 0 } else { wanted };
        let (aux, inputs) = (missing(&free_aux, aux), missing(&free_inputs, inputs));
        self.beyond.0.resize(aux + inputs, Scalar::from(0));
        let (beyond_aux, beyond_inputs) = self.beyond.0.split_at_mut(aux);
        (free_aux.take().unwrap_or(beyond_aux), free_inputs.take().unwrap_or(beyond_inputs))
    }

    fn allocate_empty_inputs(&mut self, count: usize) -> &mut [Scalar] {
        self.allocate_empty(0, count).1
    }

    fn allocate_empty_aux(&mut self, count: usize) -> &mut [Scalar] {
        self.allocate_empty(count, 0).0
    }

    fn inputs_slice(&self) -> &[Scalar] {
        &self.inputs[..self.found.inputs.min(self.inputs.len())]
    }

    fn aux_slice(&self) -> &[Scalar] {
        &self.aux[..self.found.aux.min(self.aux.len())]
    }
}

impl fmt::Debug for WitnessCollector<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WitnessCollector").field("found", &self.found).finish_non_exhaustive()
    }
}
