//! Which station serves which stage.

use crate::{Profile, Resource, Slots};

/// Something that serves so many jobs at a time: the threads of a pool, a device, a stage with a limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// The name, as reports show it.
    pub name: &'static str,
    /// How many jobs it serves at a time; `None` where there is no limit.
    pub servers: Option<u64>,
}

/// Which station serves each stage, before anything is known of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The stations.
    pub stations: Vec<Station>,
    /// The stages in order.
    pub stages: Vec<Site>,
}

/// Where a stage runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The stage.
    pub stage: &'static str,
    /// The station that serves it: an index into [`Layout::stations`].
    pub station: usize,
}

/// What a pipeline says of a stage, whatever the jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Berth {
    /// The stage.
    pub stage: &'static str,
    /// It runs on the pool's threads.
    pub on_pool: bool,
    /// How many jobs may be in it at once, where that was said.
    pub at_most: Option<u64>,
}

/// Stands for the threads of the pool among the keys of stations.
const POOL: Slots = Slots::new("pool");

impl Layout {
    /// The layout of a pipeline with these stages, on a pool with so many threads, for jobs of these profiles, by any of which
    /// a job may be served. `limit` says how many slots of a kind there are.
    ///
    /// Stages of the pool share its threads, unless a stage has a limit of its own below that; elsewhere a stage is served by
    /// the slots that it asks for, and stages that ask for the same share them. Where the profiles ask for slots of different
    /// devices these serve it together.
    ///
    /// # Panics
    ///
    /// Without a profile, or with one that has fewer stages.
    pub fn of(stages: &[Berth], threads: u64, limit: impl Fn(Slots) -> Option<u64>, profiles: &[Profile]) -> Layout {
        let mut stations: Vec<(Option<Slots>, Station)> = Vec::new();
        let mut sites = Vec::new();
        for (at, &Berth { stage, on_pool, at_most }) in stages.iter().enumerate() {
            let of = |profile: &Profile| {
                let slots = profile.stages()[at].peak.iter().filter_map(|(resource, amount)| match resource {
                    Resource::Slots(slots) => Some((slots, limit(slots)? / amount)),
                    Resource::Class(_) => None,
                });
                slots.min_by_key(|entry| entry.1)
            };
            let scarcest = of(&profiles[0]).map(|(slots, servers)| {
                let mut devices = vec![slots.device()];
                let others = profiles[1..].iter().filter_map(of).filter(|(slots, _)| {
                    let is_new = slots.device().is_some() && !devices.contains(&slots.device());
                    devices.extend(is_new.then(|| slots.device()));
                    is_new && !mutant!("one-device-paces-all")
                });
                (slots, others.fold(servers, |sum, other| sum.saturating_add(other.1)))
            });
            let own = Station { name: stage, servers: at_most };
            let (key, station) = match (on_pool, scarcest) {
                (_, Some((slots, servers)))
                    if at_most.is_none_or(|most| servers <= most) && !(on_pool && servers >= threads) =>
                {
                    (Some(slots), Station { name: slots.name(), servers: Some(servers) })
                }
                (true, _) if at_most.is_none_or(|most| most >= threads) => {
                    (Some(POOL), Station { name: POOL.name(), servers: Some(threads) })
                }
                _ => (None, own),
            };
            let known = stations.iter().position(|entry| key.is_some() && entry.0 == key);
            let station = known.unwrap_or_else(|| {
                stations.push((key, station));
                stations.len() - 1
            });
            sites.push(Site { stage, station });
        }
        Layout { stations: stations.into_iter().map(|entry| entry.1).collect(), stages: sites }
    }

    pub(super) fn servers(&self, station: usize) -> Option<u64> {
        self.stations[station].servers.map(|servers| servers.max(1))
    }
}
