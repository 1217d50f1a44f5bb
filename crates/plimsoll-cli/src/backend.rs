//! What computes: chosen by `--backend`, told in the report, and never changed behind the user's back.
//!
//! Only `auto` decides by itself, and it says what it chose and why. A backend that was named and cannot be had is an error
//! before any work.

use std::sync::Arc;

use plimsoll::Bytes;
use plimsoll_groth16::backend::{Backend, Cpu};
use plimsoll_icicle::error::OpenError;
use plimsoll_icicle::{Device, Devices, Library, Options, Which};

use crate::args::BackendChoice;
use crate::cards::Cards;
use crate::exit::{Exit, Failure};

/// What a run computes with.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Its name, as the command line has it.
    pub name: &'static str,
    /// What computes where there are no cards, and on the host where there are.
    pub backend: Arc<dyn Backend>,
    /// The cards on which whole proofs are made.
    pub cards: Cards,
    /// Why, or what it runs on: for the report.
    pub why: String,
    /// What it has of the host's memory, under a ledger of its own: to be taken off the line.
    pub host_memory: Bytes,
}

/// Finds what was asked for. `memory` is how much of a device's memory is taken; otherwise seven eighths of what is free.
///
/// # Errors
///
/// If it was named and is not to be had.
pub fn choose(choice: BackendChoice, memory: Option<Bytes>) -> Result<Chosen, Failure> {
    let cpu = |why: String| Chosen::of(Arc::new(Cpu::new()), why, Bytes::ZERO);
    match choice {
        BackendChoice::Cpu => Ok(cpu("asked for".to_owned())),
        BackendChoice::Cuda => cuda(memory).map_err(|why| unavailable("cuda", &why)),
        BackendChoice::Icicle(which) => icicle(&which, memory).map_err(|why| unavailable("icicle", &why)),
        BackendChoice::Auto => Ok(cuda(memory).unwrap_or_else(|why| cpu(format!("no CUDA: {why}")))),
    }
}

impl Chosen {
    fn of(backend: Arc<dyn Backend>, why: String, host_memory: Bytes) -> Self {
        Self { name: backend.name(), backend, cards: Cards::default(), why, host_memory }
    }
}

fn unavailable(name: &str, why: &str) -> Failure {
    Failure::new(Exit::Usage, format!("--backend {name}: {why}; --backend cpu always works"))
}

/// Each backend, and whether it can be had here: `Ok` with what it would run on, `Err` with what is missing. It takes no device
/// memory.
pub fn survey() -> [(&'static str, Result<String, String>); 3] {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    [("cpu", Ok(format!("{threads} threads"))), ("cuda", cuda_devices()), ("icicle", icicle_devices())]
}

/// What ICICLE is there, without opening a device of it.
pub fn icicle_devices() -> Result<String, String> {
    let library = Library::find(None).map_err(|error| error.to_string())?;
    let from = library.folder().map_or_else(|| "the system's loader".to_owned(), |folder| folder.display().to_string());
    let shield = if plimsoll_icicle::IS_SHIELDED { "" } else { ", unshielded from C++ exceptions" };
    let devices = library.registered().unwrap_or_else(|| "devices that it does not name".to_owned());
    Ok(format!("{devices}, from ICICLE {} in {from}{shield}", library.version()))
}

/// Of the machine's memory, where the device is the processor and nothing was said.
const ICICLE_CPU_BYTES: Bytes = Bytes(512 << 20);

fn icicle(which: &Which, memory: Option<Bytes>) -> Result<Chosen, String> {
    let open = || {
        let devices = open_icicle(which)?;
        let why = devices.iter().map(Device::describe).collect::<Vec<_>>().join("; ");
        let is_host = devices.iter().any(|device| device.name().is_host());
        let memory = memory.or(is_host.then_some(ICICLE_CPU_BYTES));
        let host_memory = memory.filter(|_| is_host).unwrap_or(Bytes::ZERO);
        let mut all = devices.into_iter().map(|device| device.alone(memory)).collect::<Result<Vec<_>, _>>()?;
        let backend: Arc<dyn Backend> = match all.len() {
            1 => Arc::new(all.remove(0)),
            _ => Arc::new(Devices::new(all)),
        };
        Ok::<_, OpenError>(Chosen::of(backend, why, host_memory))
    };
    open().map_err(|error| error.to_string())
}

/// Whether these devices of ICICLE's can be had, and what they would take of the host's memory.
///
/// # Errors
///
/// Why not.
pub fn look_at_icicle(which: &Which) -> Result<Bytes, String> {
    let devices = open_icicle(which).map_err(|error| error.to_string())?;
    let is_host = devices.iter().any(|device| device.name().is_host());
    Ok(if is_host { ICICLE_CPU_BYTES } else { Bytes::ZERO })
}

fn open_icicle(which: &Which) -> Result<Vec<Device>, OpenError> {
    Library::locate(None)?;
    survives(which)?;
    Device::open_all(which, &Options::default())
}

/// Opens the devices in a process of its own, which ends in this one's place if ICICLE's layouts are not those that are known.
fn survives(which: &Which) -> Result<(), OpenError> {
    // In unit tests this program is another one.
    if cfg!(test) {
        return Ok(());
    }
    let Ok(program) = std::env::current_exe() else { return Ok(()) };
    let mut child = std::process::Command::new(program);
    child.arg("icicle-probe").args((*which != Which::First).then(|| which.to_string()));
    plimsoll_icicle::probe::survives(&which.to_string(), &mut child)
}

/// What that process does.
///
/// # Errors
///
/// If there is no such device.
pub fn try_icicle(which: Option<&Which>) -> Result<(), Failure> {
    match Device::open_all(which.unwrap_or(&Which::First), &Options::default()) {
        Ok(_) => Ok(()),
        Err(error) => Err(unavailable("icicle", &error.to_string())),
    }
}

#[cfg(feature = "cuda")]
fn cuda_devices() -> Result<String, String> {
    let count = plimsoll_cuda::device_count().map_err(|error| error.to_string())?;
    let devices = (0..count).map(|device| {
        let properties = plimsoll_cuda::properties(device).map_err(|error| error.to_string())?;
        let (free, total) = (Bytes(properties.free_bytes), Bytes(properties.total_bytes));
        let kernels = match plimsoll_cuda::has_kernels_for(device) {
            Ok(()) => String::new(),
            Err(error) => format!(", but: {error}"),
        };
        Ok::<_, String>(format!("device {device}: {}, {free} free of {total}{kernels}", properties.name))
    });
    devices.collect::<Result<Vec<_>, _>>().map(|lines| lines.join("; "))
}

#[cfg(not(feature = "cuda"))]
fn cuda_devices() -> Result<String, String> {
    Cards::open(None).map(|(_, what)| what)
}

fn cuda(memory: Option<Bytes>) -> Result<Chosen, String> {
    let (cards, why) = Cards::open(memory)?;
    // What copies pass through is on the run's own ledger.
    Ok(Chosen { name: "cuda", backend: Arc::new(Cpu::new()), cards, why, host_memory: Bytes::ZERO })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survey_says_what_is_missing() {
        for (name, there) in survey() {
            match there {
                Ok(what) => assert!(!what.is_empty(), "{name}"),
                Err(missing) => assert!(!missing.is_empty() && name != "cpu", "{name}: {missing}"),
            }
        }
    }

    #[test]
    fn what_was_named_is_used_or_refused() {
        let name = |choice| choose(choice, None).map(|chosen| chosen.name);
        assert_eq!(name(BackendChoice::Cpu).expect("always there"), "cpu");
        let nowhere = "NOWHERE".parse().expect("it could be a device");
        let refused = name(BackendChoice::Icicle(Which::One(nowhere))).expect_err("there is no such device");
        assert_eq!(refused.exit, Exit::Usage);
        // On a machine with a device and a program with kernels it is there; otherwise it is an error, and never another.
        match name(BackendChoice::Cuda) {
            Ok(name) => assert_eq!(name, "cuda"),
            Err(failure) => assert_eq!(failure.exit, Exit::Usage),
        }
        let auto = choose(BackendChoice::Auto, None).expect("there is always something");
        assert!(auto.name == "cuda" || auto.why.starts_with("no CUDA: "), "{}", auto.why);
    }
}
