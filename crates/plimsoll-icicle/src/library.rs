//! ICICLE's shared libraries: where they are looked for, how they are opened, which of their functions there are.
//!
//! Three libraries, in this order: `libicicle_device`, `libicicle_field_bls12_381`, `libicicle_curve_bls12_381`. They are opened
//! with `RTLD_NOW | RTLD_GLOBAL`, because the backends that ICICLE itself opens later take their symbols from there (with
//! `RTLD_LOCAL` that ends the process), and never closed: threads and destructors of theirs may be under way at any time.
//!
//! Where they are looked for:
//!
//! 1. the folder that the caller names;
//! 2. otherwise the folder in the environment variable [`FOLDER_VARIABLE`];
//! 3. otherwise the folder above `ICICLE_BACKEND_INSTALL_DIR`, which ICICLE itself reads;
//! 4. otherwise `/opt/icicle/lib`, as ICICLE's guide installs it;
//! 5. otherwise wherever the system's loader finds them.
//!
//! The first of these that has `libicicle_device` is taken. A folder that was named (1, 2) and has none is an error: nobody is
//! given another library than the one that they asked for.

mod symbols;

use std::env;
use std::ffi::{CString, OsString};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library as Loaded, RTLD_GLOBAL, RTLD_NOW};

pub(crate) use self::symbols::Symbols;
use crate::error::{CallError, OpenError, Tried};
use crate::shield::shielded;

/// The environment variable that names the libraries' folder.
pub const FOLDER_VARIABLE: &str = "PLIMSOLL_ICICLE_LIB";
/// What ICICLE reads to find its backends.
const BACKENDS_VARIABLE: &str = "ICICLE_BACKEND_INSTALL_DIR";
/// Where ICICLE's guide installs it.
const DEFAULT_FOLDER: &str = "/opt/icicle/lib";

const DEVICE: &str = "icicle_device";
const FIELD: &str = "icicle_field_bls12_381";
const CURVE: &str = "icicle_curve_bls12_381";

/// ICICLE, opened. It stays so until the process ends.
#[derive(Debug)]
pub struct Library {
    folder: Option<PathBuf>,
    version: &'static str,
    pub(crate) symbols: Symbols,
}

/// What [`Library::find`] needs to know of the process's surroundings.
#[derive(Clone, Debug, Default)]
struct Surroundings {
    named: Option<OsString>,
    backends: Option<OsString>,
    default: PathBuf,
}

impl Surroundings {
    fn of_process() -> Self {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty());
        Self { named: set(FOLDER_VARIABLE), backends: set(BACKENDS_VARIABLE), default: DEFAULT_FOLDER.into() }
    }

    /// The folders to look in, each with what says so, and whether it is the only one to look in.
    fn places(&self, asked: Option<&Path>) -> (Vec<(Option<PathBuf>, &'static str)>, bool) {
        if let Some(folder) = asked {
            return (vec![(Some(folder.to_owned()), "named by the caller")], true);
        }
        if let Some(folder) = &self.named {
            return (vec![(Some(folder.into()), FOLDER_VARIABLE)], true);
        }
        let above = self.backends.as_ref().and_then(|folder| Some(Path::new(folder).parent()?.to_owned()));
        let above = above.map(|folder| (Some(folder), "above ICICLE_BACKEND_INSTALL_DIR"));
        let rest = [(Some(self.default.clone()), "ICICLE's guide"), (None, "the system's loader")];
        (above.into_iter().chain(rest).collect(), false)
    }
}

/// Why a folder without the library is none to open it from.
fn absent(folder: &Path) -> String {
    if folder.is_dir() { format!("no {}", file_name(DEVICE)) } else { "no such folder".to_owned() }
}

fn file_name(library: &str) -> String {
    format!("lib{library}{}", env::consts::DLL_SUFFIX)
}

impl Library {
    /// Finds ICICLE and opens it. `folder` is where its libraries are, if the caller knows.
    ///
    /// # Errors
    ///
    /// [`OpenError::NotInstalled`], with every place; [`OpenError::Unusable`] where it is there and cannot be opened;
    /// [`OpenError::UnknownVersion`] where it has none of the functions that came with v3.1 and after, or lacks one that each known
    /// version has.
    pub fn find(folder: Option<&Path>) -> Result<&'static Library, OpenError> {
        Self::find_in(&Surroundings::of_process(), folder)
    }

    /// Looks where ICICLE is, and opens nothing.
    ///
    /// # Errors
    ///
    /// [`OpenError::NotInstalled`] where a folder was named and it is not there. Where none was named the system's loader may have
    /// it, which only opening it shows: then this is `None`.
    pub fn locate(folder: Option<&Path>) -> Result<Option<PathBuf>, OpenError> {
        let (places, _) = Surroundings::of_process().places(folder);
        let mut tried = Vec::new();
        for (folder, because) in places {
            let Some(folder) = folder else { return Ok(None) };
            if folder.join(file_name(DEVICE)).is_file() {
                return Ok(Some(folder));
            }
            tried.push(Tried { found: absent(&folder), folder: Some(folder), because });
        }
        Err(OpenError::NotInstalled { tried })
    }

    fn find_in(surroundings: &Surroundings, folder: Option<&Path>) -> Result<&'static Library, OpenError> {
        let (places, only) = surroundings.places(folder);
        let mut tried = Vec::new();
        for (folder, because) in places {
            let found = match &folder {
                Some(folder) if folder.join(file_name(DEVICE)).is_file() => return Self::open(Some(folder)),
                Some(folder) => absent(folder),
                None => match Self::open(None) {
                    Ok(library) => return Ok(library),
                    Err(OpenError::Unusable { message, .. }) => message,
                    Err(other) => return Err(other),
                },
            };
            tried.push(Tried { folder, because, found });
        }
        debug_assert!(!only || tried.len() == 1);
        Err(OpenError::NotInstalled { tried })
    }

    fn open(folder: Option<&Path>) -> Result<&'static Library, OpenError> {
        let open = |name: &str| {
            let file = file_name(name);
            let path = folder.map_or_else(|| PathBuf::from(&file), |folder| folder.join(&file));
            // SAFETY: opening a library runs its initialisers. That they do no harm is for whoever installed it to know; it is
            // ICICLE by its name and place, and the same that its own crates link to.
            let loaded = unsafe { Loaded::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) };
            match loaded {
                // Never closed, whatever becomes of the others.
                Ok(loaded) => Ok(ManuallyDrop::new(loaded)),
                Err(error) => Err(OpenError::Unusable { library: path.display().to_string(), message: reason(&error) }),
            }
        };
        let libraries = [open(DEVICE)?, open(FIELD)?, open(CURVE)?];
        let version = symbols::recognise(|name| symbols::has(&libraries, name))?;
        let symbols = Symbols::of(&libraries)?;
        let library = Library { folder: folder.map(Path::to_owned), version, symbols };
        library.load_backends()?;
        Ok(Box::leak(Box::new(library)))
    }

    /// Lets ICICLE open its backends: those in `backend` beside the libraries, and wherever it looks by itself. That there are
    /// none is no error: the processor is always there.
    fn load_backends(&self) -> Result<(), CallError> {
        let call = |code: Result<_, _>| {
            let told = |exception| CallError::thrown("load the backends", exception);
            code.map(|_| ()).map_err(told)
        };
        let nested = self.folder.as_ref().map(|folder| folder.join("backend")).filter(|folder| folder.is_dir());
        if let (Some(folder), Some(load)) = (nested, self.symbols.load_backend)
            && let Ok(path) = CString::new(folder.as_os_str().as_encoded_bytes())
        {
            let path = path.as_ptr();
            // SAFETY: a function of ICICLE's with its arguments, a path that ends with a zero among them.
            call(shielded(|| unsafe { load(path, true) }))?;
        }
        let load = self.symbols.load_backend_from_env_or_default;
        // SAFETY: a function of ICICLE's without arguments.
        call(shielded(|| unsafe { load() }))
    }

    /// The folder that it was opened from; `None` if the system's loader found it.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The kinds of devices that it has backends for, as it names them: `CPU,CUDA`.
    pub fn registered(&self) -> Option<String> {
        crate::owner::registered(self)
    }

    /// Which release it is, by the functions that it has: `v3.7`, `v3.8 or v3.9`, `v4.0`.
    pub fn version(&self) -> &'static str {
        self.version
    }
}

/// An error of the loader, with what the system said.
fn reason(error: &libloading::Error) -> String {
    use std::error::Error;
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings(named: Option<&str>, backends: Option<&str>) -> Surroundings {
        Surroundings {
            named: named.map(Into::into),
            backends: backends.map(Into::into),
            default: "/nowhere/default".into(),
        }
    }

    fn folders(surroundings: &Surroundings, asked: Option<&str>) -> Vec<Option<PathBuf>> {
        surroundings.places(asked.map(Path::new)).0.into_iter().map(|(folder, _)| folder).collect()
    }

    #[test]
    fn what_was_named_is_the_only_place() {
        let both = surroundings(Some("/nowhere/variable"), Some("/nowhere/lib/backend"));
        assert_eq!(folders(&both, Some("/nowhere/asked")), [Some("/nowhere/asked".into())]);
        assert_eq!(folders(&both, None), [Some("/nowhere/variable".into())]);
    }

    #[test]
    fn otherwise_it_is_looked_for_in_order() {
        let none = surroundings(None, Some("/nowhere/lib/backend"));
        let expected = [Some("/nowhere/lib".into()), Some("/nowhere/default".into()), None];
        assert_eq!(folders(&none, None), expected);
    }

    #[test]
    fn a_library_that_is_nowhere_is_not_installed_and_every_place_is_told() {
        let error = Library::find_in(&surroundings(None, Some("/nowhere/lib/backend")), None).expect_err("nowhere");
        let OpenError::NotInstalled { tried } = error else { panic!("{error}") };
        assert_eq!(tried.len(), 3);
        assert_eq!(tried[1].found, "no such folder");
        assert!(tried[2].found.contains("libicicle_device"), "{}", tried[2].found);
        let error = Library::find_in(&surroundings(Some("/"), None), None).expect_err("not there");
        let OpenError::NotInstalled { tried } = error else { panic!("{error}") };
        assert_eq!((tried.len(), &tried[0].found[..]), (1, "no libicicle_device.so"));
    }
}
