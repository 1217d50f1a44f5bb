//! NVIDIA's management library, loaded at run time: on a machine without it, this says so and nothing else happens.
//!
//! NVML numbers the machine's cards, CUDA those that this process may see, in an order of its own. A card is told under the number
//! that CUDA has for it (as `Space::device` has), or not at all where that is not certain ([`visible`]).

use std::fmt;

use nvml_wrapper::Nvml as Library;
use nvml_wrapper::enums::device::UsedGpuMemory;

use super::device::{DeviceMemory, Devices};

/// NVML.
pub struct Nvml {
    library: Library,
    /// The index of each card that CUDA shows to this process, in CUDA's order.
    cards: Vec<u32>,
}

/// A card, as NVML knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Card {
    uuid: String,
    name: String,
}

impl fmt::Debug for Nvml {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nvml")
    }
}

impl Nvml {
    /// Loads the library.
    ///
    /// # Errors
    ///
    /// In words: what is missing.
    pub fn load() -> Result<Self, String> {
        let library = Library::init().map_err(|error| error.to_string())?;
        let count = library.device_count().map_err(|error| error.to_string())?;
        let card = |index| {
            let device = library.device_by_index(index).ok()?;
            Some(Card { uuid: device.uuid().ok()?, name: device.name().unwrap_or_default() })
        };
        let cards: Option<Vec<Card>> = (0..count).map(card).collect();
        let cards = cards.ok_or("a card does not say which one it is")?;
        let variable = |name| std::env::var(name).ok();
        let (chosen, order) = (variable("CUDA_VISIBLE_DEVICES"), variable("CUDA_DEVICE_ORDER"));
        let cards = visible(chosen.as_deref(), order.as_deref(), &cards)
            .ok_or("the cards differ, and CUDA's order of them is its own; set CUDA_DEVICE_ORDER=PCI_BUS_ID")?;
        Ok(Self { library, cards })
    }

    /// How many cards there are that CUDA shows.
    pub fn cards(&self) -> usize {
        self.cards.len()
    }

    fn device(&self, number: u16, index: u32) -> Option<DeviceMemory> {
        let device = self.library.device_by_index(index).ok()?;
        let memory = device.memory_info().ok()?;
        let processes = device.running_compute_processes().ok().map(|processes| {
            let of = |memory| match memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            };
            processes.into_iter().map(|process| (process.pid, of(process.used_gpu_memory))).collect::<Vec<_>>()
        });
        let own = processes.and_then(|processes| own(&processes, std::process::id()));
        Some(DeviceMemory {
            device: number,
            name: device.name().unwrap_or_default(),
            total_bytes: memory.total,
            free_bytes: memory.free,
            own_bytes: own,
        })
    }
}

impl Devices for Nvml {
    fn name(&self) -> &str {
        "NVML"
    }

    fn read(&mut self) -> Vec<DeviceMemory> {
        let numbered = self.cards.iter().enumerate();
        numbered.filter_map(|(number, index)| self.device(u16::try_from(number).ok()?, *index)).collect()
    }
}

/// What this process has, of all that a card tells of. `None`: it does not tell, or tells of no such process. In a container processes
/// have other numbers than the driver knows them by, so that nothing found is nothing known, not zero.
fn own(processes: &[(u32, Option<u64>)], id: u32) -> Option<u64> {
    let mut own = processes.iter().filter(|(process, _)| *process == id).peekable();
    own.peek()?;
    own.map(|(_, bytes)| *bytes).sum()
}

/// NVML's indices of the cards that CUDA shows, in CUDA's order. `chosen` and `order` are the variables `CUDA_VISIBLE_DEVICES` and
/// `CUDA_DEVICE_ORDER`. `None`: it cannot be told which is which, because CUDA puts the fastest first where it is not told to do otherwise.
fn visible(chosen: Option<&str>, order: Option<&str>, cards: &[Card]) -> Option<Vec<u32>> {
    let alike = cards.windows(2).all(|two| two[0].name == two[1].name);
    let in_order = alike || order == Some("PCI_BUS_ID");
    let all = || (0..cards.len() as u32).collect::<Vec<u32>>();
    let Some(chosen) = chosen else { return in_order.then(all) };
    let mut found = Vec::new();
    for word in chosen.split(',').map(str::trim) {
        let index = match word.parse::<usize>() {
            Ok(index) if in_order => (index < cards.len()).then_some(index),
            Ok(_) => return None,
            // The beginning of a name will do, if there is only one such.
            Err(_) if word.starts_with("GPU-") => {
                let mut named = (0..cards.len()).filter(|index| cards[*index].uuid.starts_with(word));
                named.next().filter(|_| named.next().is_none())
            }
            // A part of a card has memory of its own, which is not the card's.
            Err(_) if word.starts_with("MIG-") => return None,
            Err(_) => None,
        };
        // CUDA shows what comes before the first that is none, and nothing of what is named twice.
        match index.map(|index| index as u32) {
            Some(index) if found.contains(&index) => return Some(Vec::new()),
            Some(index) => found.push(index),
            None => break,
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cards(names: &[&str]) -> Vec<Card> {
        let card =
            |(number, name): (usize, &&str)| Card { uuid: format!("GPU-{number}abc-def"), name: (*name).to_owned() };
        names.iter().enumerate().map(card).collect()
    }

    #[test]
    fn cards_have_cudas_numbers() {
        let alike = cards(&["H200", "H200", "H200"]);
        let of = |chosen, order| visible(chosen, order, &alike);
        assert_eq!(of(None, None), Some(vec![0, 1, 2]));
        assert_eq!(of(Some("2,0"), None), Some(vec![2, 0]));
        assert_eq!(of(Some("GPU-1abc"), None), Some(vec![1]));
        assert_eq!(of(Some("GPU-"), None), Some(vec![]), "which?");
        assert_eq!(of(Some("1,-1,0"), None), Some(vec![1]), "up to the first that is none");
        assert_eq!(of(Some(""), None), Some(vec![]), "none is shown");
        assert_eq!(of(Some("1,1"), None), Some(vec![]));
        assert_eq!(of(Some("MIG-1abc"), None), None);
        let mixed = cards(&["A10", "H200"]);
        assert_eq!(visible(None, None, &mixed), None, "CUDA puts the fastest first");
        assert_eq!(visible(Some("1"), None, &mixed), None);
        assert_eq!(visible(None, Some("PCI_BUS_ID"), &mixed), Some(vec![0, 1]));
        assert_eq!(visible(Some("GPU-1"), None, &mixed), Some(vec![1]), "a name is certain");
    }

    #[test]
    fn a_process_that_is_not_found_is_not_one_that_has_nothing() {
        let processes = [(7, Some(100)), (7, Some(20)), (9, None)];
        assert_eq!(own(&processes, 7), Some(120));
        assert_eq!(own(&processes, 9), None);
        assert_eq!(own(&processes, 8), None);
        assert_eq!(own(&[], 8), None);
    }
}
