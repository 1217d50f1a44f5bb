//! Where bytes are (`Space`), what they are for (`Class`), and what can be counted that is not bytes (`Slots`).

use std::fmt;

/// A physical place with a capacity in bytes.
///
/// Pinned host memory is host memory too: what is pinned counts in both.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Space(Place);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Place {
    Host,
    Pinned,
    Device(u16),
}

impl Space {
    /// Host memory, pageable and pinned together.
    pub const HOST: Space = Space(Place::Host);
    /// The part of host memory that is pinned (page-locked) for transfers.
    pub const PINNED: Space = Space(Place::Pinned);

    /// The memory of the device with this number.
    pub const fn device(number: u16) -> Space {
        Space(Place::Device(number))
    }

    /// The number of the device that this is the memory of, if it is any device's.
    pub const fn device_number(self) -> Option<u16> {
        match self.0 {
            Place::Device(number) => Some(number),
            Place::Host | Place::Pinned => None,
        }
    }

    /// The space as traces name it: `host`, `pinned`, `device0`.
    pub fn key(self) -> impl fmt::Display {
        fmt::from_fn(move |f| match self.0 {
            Place::Host => f.write_str("host"),
            Place::Pinned => f.write_str("pinned"),
            Place::Device(number) => write!(f, "device{number}"),
        })
    }

    /// The space that these bytes count in as well: host memory for pinned memory.
    pub(crate) const fn within(self) -> Option<Space> {
        match self.0 {
            Place::Pinned => Some(Space::HOST),
            Place::Host | Place::Device(_) => None,
        }
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Place::Host => f.pad("host memory"),
            Place::Pinned => f.pad("pinned host memory"),
            Place::Device(number) => f.pad(&format!("memory of device {number}")),
        }
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Space({self})")
    }
}

/// A named kind of large buffer that lives in one space; every held byte belongs to a class.
///
/// ```
/// use plimsoll::{Class, Space};
/// const PROVERS: Class = Class::new("provers", Space::HOST);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class {
    name: &'static str,
    space: Space,
}

impl Class {
    /// A class of this name in this space. Name and space together are its identity.
    pub const fn new(name: &'static str, space: Space) -> Class {
        Class { name, space }
    }

    /// The name, as reports show it.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// The space that its bytes live in.
    pub const fn space(self) -> Space {
        self.space
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

impl fmt::Debug for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Class({} in {})", self.name, self.space)
    }
}

/// A countable resource that is not bytes: threads, device lanes, pacing tokens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slots {
    name: &'static str,
    of: Of,
}

/// Whose slots they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Of {
    Anybody,
    Device(u16),
    /// The rope of a pipeline with this number.
    Rope(u16),
}

impl Slots {
    /// Slots of this name; the name is their identity.
    pub const fn new(name: &'static str) -> Slots {
        Slots { name, of: Of::Anybody }
    }

    /// The tokens of the rope with this number, which is tied to this stage of a pipeline.
    pub(crate) const fn rope(stage: &'static str, number: u16) -> Slots {
        Slots { name: stage, of: Of::Rope(number) }
    }

    /// The lanes of the device with this number: the threads that feed it.
    pub const fn lane(device: u16) -> Slots {
        Slots { name: "lane", of: Of::Device(device) }
    }

    /// The lease of the device with this number: the right to compute on it.
    pub const fn lease(device: u16) -> Slots {
        Slots { name: "lease", of: Of::Device(device) }
    }

    /// The name; the lanes of all devices have the same one.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// The device that these are slots of, if they are any device's.
    pub const fn device(self) -> Option<u16> {
        match self.of {
            Of::Device(device) => Some(device),
            Of::Anybody | Of::Rope(_) => None,
        }
    }

    /// The slots as traces name them: `threads`, `lane0`.
    pub fn key(self) -> impl fmt::Display {
        fmt::from_fn(move |f| match self.of {
            Of::Anybody => f.write_str(self.name),
            Of::Device(device) => write!(f, "{}{device}", self.name),
            Of::Rope(_) => write!(f, "rope of {}", self.name),
        })
    }
}

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.of {
            Of::Anybody => f.pad(self.name),
            Of::Device(device) => f.pad(&format!("{} of device {device}", self.name)),
            Of::Rope(_) => f.pad(&format!("tokens of the rope at {}", self.name)),
        }
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slots({self})")
    }
}

/// Anything that the ledger counts: the bytes of a class, or slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Bytes of a class.
    Class(Class),
    /// Slots of a kind.
    Slots(Slots),
}

impl Resource {
    /// An amount of this resource as text: `1.50 GiB of provers`, `2 of threads`.
    pub(crate) fn amount(self, amount: u64) -> impl fmt::Display {
        struct Amount(Resource, u64);
        impl fmt::Display for Amount {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    Resource::Class(class) => write!(f, "{} of {class}", crate::Bytes(self.1)),
                    Resource::Slots(slots) => write!(f, "{} of {slots}", self.1),
                }
            }
        }
        Amount(self, amount)
    }
}

impl From<Class> for Resource {
    fn from(class: Class) -> Resource {
        Resource::Class(class)
    }
}

impl From<Slots> for Resource {
    fn from(slots: Slots) -> Resource {
        Resource::Slots(slots)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Class(class) => class.fmt(f),
            Resource::Slots(slots) => slots.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_a_device_are_told_apart_by_its_number() {
        assert_ne!(Slots::lane(0), Slots::lane(1));
        assert_ne!(Slots::lane(0), Slots::lease(0));
        assert_eq!(Slots::lease(3).device(), Some(3));
        assert_eq!(Slots::new("lane").device(), None);
        assert_eq!(Slots::lane(12).key().to_string(), "lane12");
        assert_eq!(format!("{:>18}", Slots::lease(2)), " lease of device 2");
        assert_eq!(Slots::new("threads").key().to_string(), "threads");
    }
}
