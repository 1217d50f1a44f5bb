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

/// Which devices: `CUDA:1` is one, `CUDA` all of that kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// All of the first kind that is not the processor, or the processor where there is none.
    #[default]
    First,
    /// All of a kind.
    Kind(String),
    /// One.
    One(DeviceName),
}

impl FromStr for Which {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Self, OpenError> {
        let name: DeviceName = text.parse()?;
        Ok(if text.contains(':') { Self::One(name) } else { Self::Kind(name.kind) })
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("the first devices"),
            Self::Kind(kind) => f.write_str(kind),
            Self::One(name) => name.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_alone_is_all_of_it_where_several_may_be_meant() {
        for (text, which) in
            [("CUDA", Which::Kind("CUDA".to_owned())), ("CUDA:1", Which::One("CUDA:1".parse().expect("a name")))]
        {
            assert_eq!(text.parse::<Which>().expect("it is one"), which);
            assert_eq!(which.to_string(), text);
        }
        for wrong in ["", ":1", "CUDA:", "CUDA:x", "CPU,CUDA"] {
            assert_eq!(wrong.parse::<Which>(), Err(OpenError::BadName { name: wrong.to_owned() }));
        }
    }

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
