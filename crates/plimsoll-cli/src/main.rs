//! The `plimsoll` command. Everything is in the library; here are only the allocator and the exit code.

use std::process::ExitCode;

/// Freed memory goes back to the kernel at once, so that the process holds what the ledger says; two arenas, because the large
/// buffers are few and each arena keeps some pages of its own; and threads of the allocator's own, so that where a user asks for
/// a decay the pages go when their time has come, whether or not anybody frees. (Overrides: `_RJEM_MALLOC_CONF`.)
// Not `unsafe` code but a promise: nothing else exports this name, and jemalloc reads a NUL-terminated string behind a pointer.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static MALLOC_CONF: &[u8; 83] =
    b"background_thread:true,dirty_decay_ms:0,muzzy_decay_ms:0,narenas:2,abort_conf:true\0";

#[global_allocator]
static ALLOCATOR: jemallocator::Jemalloc = jemallocator::Jemalloc;

fn main() -> ExitCode {
    plimsoll_cli::run().into()
}
