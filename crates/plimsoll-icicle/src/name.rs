//! What a device is called: its kind and its number, as in `CUDA:1`.

use std::fmt;
use std::str::FromStr;

use crate::abi;
use crate::error::OpenError;

/// A device of ICICLE's.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceName {
    kind: String,
    id: u16,
}

impl DeviceName {
    /// Device number `id` of a kind, whose name has between 1 and 63 bytes.
    ///
    /// # Errors
    ///
    /// [`OpenError::BadName`].
    pub fn new(kind: &str, id: u16) -> Result<Self, OpenError> {
        let usable = kind.chars().all(|c| c.is_ascii_graphic() && c != ':' && c != ',');
        match abi::Device::new(kind, id) {
            Some(_) if usable => Ok(Self { kind: kind.to_owned(), id }),
            _ => Err(OpenError::BadName { name: format!("{kind}:{id}") }),
        }
    }

    /// `CPU`, `CUDA`, …
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Its number among those of its kind.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Whether it is the processor, whose memory is the host's.
    pub fn is_host(&self) -> bool {
        self.kind == "CPU"
    }

    pub(crate) fn raw(&self) -> abi::Device {
        abi::Device::new(&self.kind, self.id).expect("looked at when it was made")
    }
}

impl FromStr for DeviceName {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Self, OpenError> {
        let bad = || OpenError::BadName { name: text.to_owned() };
        match text.split_once(':') {
            None => Self::new(text, 0).map_err(|_| bad()),
            Some((kind, id)) => Self::new(kind, id.parse().map_err(|_| bad())?).map_err(|_| bad()),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_alone_is_its_first_device() {
        let name: DeviceName = "CUDA".parse().expect("a name");
        assert_eq!((name.kind(), name.id(), name.to_string()), ("CUDA", 0, "CUDA:0".to_owned()));
        assert_eq!("METAL:3".parse::<DeviceName>().expect("a name").id(), 3);
    }

    #[test]
    fn what_is_no_name_is_refused_with_what_was_written() {
        for wrong in ["", ":1", "CUDA:", "CUDA:x", "CUDA:-1", "CUDA:1:2", "a b", "CPU,CUDA", &"x".repeat(64)] {
            let error = wrong.parse::<DeviceName>().expect_err(wrong);
            assert_eq!(error, OpenError::BadName { name: wrong.to_owned() });
        }
    }
}
