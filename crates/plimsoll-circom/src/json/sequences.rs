//! Long arrays of text, each element made what it stands for as soon as it was read: kept as text they would take many times the file.

use std::fmt;
use std::marker::PhantomData;

use blstrs::{G1Affine, Scalar};
use group::prime::PrimeCurveAffine;
use plimsoll_groth16::keys::PointFault;
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};

use super::{G1Text, g1};
use crate::decimal;

/// What an element of an array stands for, or what is wrong with it.
pub(super) trait Element: Sized {
    type Fault;
    /// As it stands in the file.
    type Text: for<'de> Deserialize<'de>;

    fn of(text: Self::Text) -> Result<Self, Self::Fault>;
}

/// The elements, and which of them is the first that is none.
pub(super) struct Sequence<T: Element> {
    pub(super) elements: Vec<T>,
    pub(super) first_bad: Option<(usize, T::Fault)>,
}

/// A number below the modulus, without a copy of its digits.
pub(super) struct Digits(Option<Scalar>);

impl Element for Scalar {
    type Fault = ();
    type Text = Digits;

    fn of(Digits(scalar): Digits) -> Result<Self, ()> {
        scalar.ok_or(())
    }
}

impl Element for G1Affine {
    type Fault = PointFault;
    type Text = G1Text;

    fn of(text: G1Text) -> Result<Self, PointFault> {
        match g1(&text) {
            // A public signal that occurs nowhere has the point at infinity.
            Err(PointFault::Infinity) => Ok(Self::identity()),
            point => point,
        }
    }
}

impl<'de> Deserialize<'de> for Digits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Digits;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("decimal digits in quotes")
            }

            fn visit_str<E>(self, text: &str) -> Result<Digits, E> {
                Ok(Digits(decimal::scalar(text)))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

impl<'de, T: Element> Deserialize<'de> for Sequence<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements<T>(PhantomData<T>);
        impl<'de, T: Element> Visitor<'de> for Elements<T> {
            type Value = Sequence<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Sequence<T>, A::Error> {
                let mut sequence = Sequence { elements: Vec::new(), first_bad: None };
                while let Some(text) = array.next_element::<T::Text>()? {
                    if sequence.first_bad.is_some() {
                        continue;
                    }
                    match T::of(text) {
                        Ok(element) => sequence.elements.push(element),
                        Err(fault) => sequence.first_bad = Some((sequence.elements.len(), fault)),
                    }
                }
                Ok(sequence)
            }
        }
        deserializer.deserialize_seq(Elements(PhantomData))
    }
}
