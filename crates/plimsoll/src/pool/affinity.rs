//! Which cores the threads of a pool may use.

use std::io;

/// Which cores the threads of a pool may use. All but [`Anywhere`](Affinity::Anywhere) needs the feature `affinity`, and
/// Linux.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Affinity {
    /// Any that the process may use.
    #[default]
    Anywhere,
    /// Worker i is bound to the i-th of these cores, starting again after the last; a spare may use all of them.
    Cores(Vec<usize>),
    /// Worker i is bound to the cores of the i-th of these NUMA nodes, starting again after the last; a spare may use all
    /// of them. What a thread is the first to touch, Linux places on the thread's node.
    Nodes(Vec<usize>),
}

/// Why threads cannot be bound to cores.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AffinityError {
    /// An empty list.
    #[error("the list names no core; name one, or use `Affinity::Anywhere`")]
    Empty,
    /// The process may not use this core, or there is none.
    #[error("core {core} is none of those that this process may use: {allowed:?}")]
    NotAllowed {
        /// The core.
        core: usize,
        /// What the process may use.
        allowed: Vec<usize>,
    },
    /// The system knows no such node, or none of its cores may be used.
    #[error("NUMA node {node} is not known to this system, or has no core that this process may use")]
    NoNode {
        /// The node.
        node: usize,
    },
    /// The system refused.
    #[error("the system refused to bind thread {index}")]
    Refused {
        /// Which thread, from 0.
        index: usize,
        /// What it said.
        source: io::Error,
    },
    /// Built without the feature, or for a system without it.
    #[error("threads can be bound on Linux only, with the feature `affinity` of `plimsoll`")]
    Unsupported,
}

/// The cores of each worker.
#[derive(Debug)]
pub(super) struct Pins {
    each: Vec<imp::Cores>,
    all: imp::Cores,
}

impl Pins {
    /// Binds the calling thread.
    pub(super) fn bind(&self, index: usize, spare: bool) -> io::Result<()> {
        imp::bind(if spare { &self.all } else { &self.each[index % self.each.len()] })
    }
}

impl Affinity {
    /// The cores behind the words; `None` for all.
    pub(super) fn resolve(&self) -> Result<Option<Pins>, AffinityError> {
        let lists = match self {
            Affinity::Anywhere => return Ok(None),
            Affinity::Cores(cores) => {
                let allowed = imp::allowed()?;
                if let Some(&core) = cores.iter().find(|core| !allowed.contains(core)) {
                    return Err(AffinityError::NotAllowed { core, allowed });
                }
                cores.iter().map(|&core| vec![core]).collect::<Vec<_>>()
            }
            Affinity::Nodes(nodes) => {
                let allowed = imp::allowed()?;
                let of_node = |&node: &usize| {
                    let cores: Vec<_> = cores_of(node).into_iter().filter(|core| allowed.contains(core)).collect();
                    if cores.is_empty() { Err(AffinityError::NoNode { node }) } else { Ok(cores) }
                };
                nodes.iter().map(of_node).collect::<Result<_, _>>()?
            }
        };
        if lists.is_empty() {
            return Err(AffinityError::Empty);
        }
        let all = imp::cores(lists.iter().flatten());
        Ok(Some(Pins { each: lists.iter().map(|list| imp::cores(list.iter())).collect(), all }))
    }
}

/// The cores of a NUMA node, as the kernel tells; none if it does not.
fn cores_of(node: usize) -> Vec<usize> {
    let list = std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"));
    list.ok().and_then(|list| parse(list.trim())).unwrap_or_default()
}

/// The kernel's lists: `0-3,8,10-11`.
fn parse(list: &str) -> Option<Vec<usize>> {
    let mut cores = Vec::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cores.extend(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(cores)
}

#[cfg(all(feature = "affinity", target_os = "linux"))]
mod imp {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::{AffinityError, io};

    pub(super) type Cores = CpuSet;

    pub(super) fn allowed() -> Result<Vec<usize>, AffinityError> {
        let set = sched_getaffinity(None).map_err(|error| AffinityError::Refused { index: 0, source: error.into() })?;
        Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
    }

    pub(super) fn cores<'a>(list: impl Iterator<Item = &'a usize>) -> Cores {
        let mut set = CpuSet::new();
        list.for_each(|&core| set.set(core));
        set
    }

    pub(super) fn bind(cores: &Cores) -> io::Result<()> {
        Ok(sched_setaffinity(None, cores)?)
    }
}

#[cfg(not(all(feature = "affinity", target_os = "linux")))]
mod imp {
    use super::{AffinityError, io};

    #[derive(Debug)]
    pub(super) struct Cores;

    pub(super) fn allowed() -> Result<Vec<usize>, AffinityError> {
        Err(AffinityError::Unsupported)
    }

    pub(super) fn cores<'a>(_: impl Iterator<Item = &'a usize>) -> Cores {
        unreachable!("`allowed` was asked first")
    }

    pub(super) fn bind(_: &Cores) -> io::Result<()> {
        unreachable!("`allowed` was asked first")
    }
}

#[cfg(all(test, not(plimsoll_loom)))]
mod tests;
