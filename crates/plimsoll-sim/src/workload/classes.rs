//! What names of classes a file uses: each names bytes of one space.

use std::collections::BTreeMap;

use plimsoll::{Class, Space};
use toml::Spanned;

use super::WorkloadError;
use super::check::{Checked, Source};
use crate::names::lasting;

/// The classes of a file, by name.
#[derive(Debug, Default)]
pub(super) struct Classes {
    /// The space of each, and whether it is a residency's.
    known: BTreeMap<&'static str, (Space, bool)>,
}

impl Classes {
    /// The class of a residency.
    pub(super) fn residency(&mut self, name: &Spanned<String>, space: Space, source: &Source<'_>) -> Checked<Class> {
        self.of(name, space, true, source)
    }

    /// A class that a stage takes.
    pub(super) fn taken(&mut self, name: &Spanned<String>, space: Space, source: &Source<'_>) -> Checked<Class> {
        self.of(name, space, false, source)
    }

    fn of(&mut self, at: &Spanned<String>, space: Space, is_resident: bool, source: &Source<'_>) -> Checked<Class> {
        let wrong = |fault: String, fix: &str| -> WorkloadError { source.error(at, fault, fix) };
        if at.get_ref().trim().is_empty() {
            return Err(wrong("a class has no name".into(), "write one"));
        }
        let name = lasting(at.get_ref());
        match self.known.insert(name, (space, is_resident)) {
            Some((_, true)) if !is_resident => {
                Err(wrong(format!("{name:?} is a residency"), "name it in needs, or give the class another name"))
            }
            Some((other, _)) if other != space => {
                let fault = format!("{name:?} is in two spaces: {other} and {space}");
                Err(wrong(fault, "give what is in each space a name of its own"))
            }
            _ => Ok(Class::new(name, space)),
        }
    }
}
