//! jemalloc, asked through `tikv-jemalloc-ctl`.
//!
//! The `unsafe` blocks here give the commands to purge and to write a profile.

use std::ptr;

use tikv_jemalloc_ctl::{Access, AsName, arenas, background_thread, epoch, stats, thread};

use super::allocator::{Allocator, AllocatorMemory};

/// All arenas at once (`MALLCTL_ARENAS_ALL`).
const ALL: &str = "4096";

/// jemalloc. Its figures are of the moment when its epoch was last advanced; every reading advances it.
#[derive(Clone, Copy, Debug)]
pub struct Jemalloc(());

impl Jemalloc {
    /// jemalloc, if what this process allocates comes from it: it can be linked in and not be in use.
    pub fn if_in_use() -> Option<Self> {
        let counter = thread::allocatedp::read().ok()?;
        let before = counter.get();
        drop(std::hint::black_box(vec![0_u8; 1 << 12]));
        (counter.get() > before).then_some(Self(()))
    }

    /// Lets threads of its own give free pages back when their time has come, instead of whoever frees next.
    ///
    /// # Errors
    ///
    /// Where it was built without them.
    pub fn enable_background_threads(&self) -> Result<(), String> {
        background_thread::write(true).map_err(|error| format!("background_thread: {error}"))
    }

    /// Whether it samples who allocates.
    #[cfg(feature = "heap-profiles")]
    pub fn is_profiling(&self) -> bool {
        "opt.prof\0".name().read().unwrap_or(false)
    }

    /// Writes what it has sampled to a file, in its own format.
    ///
    /// # Errors
    ///
    /// If it does not sample, or cannot write there.
    #[cfg(feature = "heap-profiles")]
    pub fn dump_profile(&self, path: &std::path::Path) -> Result<(), String> {
        use std::os::unix::ffi::OsStrExt;
        let text = std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        let mut pointer = text.as_ptr();
        // SAFETY: the name ends in a zero byte; the new value is a pointer to a text that does so too, and both live longer than
        // the call. Nothing is read back. (`tikv-jemalloc-ctl` takes only texts that live for ever.)
        let code = unsafe {
            tikv_jemalloc_sys::mallctl(
                c"prof.dump".as_ptr(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::from_mut(&mut pointer).cast(),
                size_of_val(&pointer),
            )
        };
        if code == 0 { Ok(()) } else { Err(format!("jemalloc wrote no profile to {} (error {code})", path.display())) }
    }

    fn figures() -> Result<AllocatorMemory, tikv_jemalloc_ctl::Error> {
        epoch::advance()?;
        let page: usize = "arenas.page\0".name().read()?;
        let pages = |what: &str| -> Option<u64> {
            let pages: usize = format!("stats.arenas.{ALL}.{what}\0").name().read().ok()?;
            Some((pages * page) as u64)
        };
        Ok(AllocatorMemory {
            name: "jemalloc".to_owned(),
            allocated_bytes: stats::allocated::read()? as u64,
            active_bytes: Some(stats::active::read()? as u64),
            resident_bytes: Some(stats::resident::read()? as u64),
            mapped_bytes: Some(stats::mapped::read()? as u64),
            retained_bytes: Some(stats::retained::read()? as u64),
            metadata_bytes: Some(stats::metadata::read()? as u64),
            dirty_bytes: pages("pdirty"),
            muzzy_bytes: pages("pmuzzy"),
            free_bytes: None,
            arenas: Some(u64::from(arenas::narenas::read()?)),
        })
    }
}

impl Allocator for Jemalloc {
    fn name(&self) -> &'static str {
        "jemalloc"
    }

    fn read(&self) -> Option<AllocatorMemory> {
        Self::figures().ok()
    }

    fn purge(&self) -> bool {
        let name = format!("arena.{ALL}.purge\0");
        // SAFETY: `mallctl` wants a name that ends in a zero byte, which `name` does and outlives the call, and pointers that
        // are null or valid: here all are null, because this key is a command that neither gives nor takes a value.
        // (`tikv-jemalloc-ctl` has no call for such keys.)
        let code = unsafe {
            tikv_jemalloc_sys::mallctl(name.as_ptr().cast(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), 0)
        };
        code == 0
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = Vec::new();
        let mut say = |name: &'static str, value: Option<String>| {
            settings.extend(value.map(|value| (name, value)));
        };
        let number = |name: &str| {
            let value: Option<isize> = format!("{name}\0").name().read().ok();
            value.map(|value| value.to_string())
        };
        say("version", tikv_jemalloc_ctl::version::read().ok().map(str::to_owned));
        say("background threads", background_thread::read().ok().map(|on| if on { "on" } else { "off" }.to_owned()));
        say("dirty_decay_ms", number("arenas.dirty_decay_ms"));
        say("muzzy_decay_ms", number("arenas.muzzy_decay_ms"));
        say("narenas", arenas::narenas::read().ok().map(|n| n.to_string()));
        let thp: Option<&'static [u8]> = "opt.thp\0".name().read().ok();
        say("thp", thp.map(|text| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned()));
        settings
    }
}
