//! What the numbers stand for: ledgers, classes and spaces.

#![expect(clippy::disallowed_types, reason = "loom does not model this crate; its locks guard plain tables")]

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll::{Budget, Bytes, Class, Ledger, Space};

use crate::failure::{Failure, Status, answer};
use crate::memory::{self, Out};

/// A ledger. Never zero.
pub type LedgerNumber = u64;

/// A named kind of buffer in one space. Never zero.
pub type ClassNumber = u32;

/// A physical place with a capacity in bytes.
pub type SpaceNumber = u32;

/// Host memory, pageable and pinned together.
pub const PLIMSOLL_SPACE_HOST: u32 = 0;

/// The part of host memory that is pinned; what is pinned counts in host memory too.
pub const PLIMSOLL_SPACE_PINNED: u32 = 1;

/// The memory of device 0; the devices that follow have the numbers that follow, up to device 65535.
pub const PLIMSOLL_SPACE_DEVICES: u32 = 65536;

/// The limit of one space.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Limit {
    /// The space.
    pub space: SpaceNumber,
    /// Its limit in bytes.
    pub bytes: u64,
}

/// Classes are never forgotten, because a `Class` carries its name by reference; this many are enough for everybody
/// who names kinds of buffers, and not for who names each buffer.
const MAX_CLASSES: usize = 4096;

#[derive(Debug)]
struct Ledgers {
    next: LedgerNumber,
    by_number: BTreeMap<LedgerNumber, Lent>,
}

/// A ledger that a call works with. As long as there is one, the ledger's number stays good: what the call makes could not be
/// released otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Lent {
    ledger: Ledger,
    /// One for the table, and one for each call in progress.
    calls: Arc<()>,
}

impl Deref for Lent {
    type Target = Ledger;

    fn deref(&self) -> &Ledger {
        &self.ledger
    }
}

static LEDGERS: Mutex<Ledgers> = Mutex::new(Ledgers { next: 1, by_number: BTreeMap::new() });
static CLASSES: Mutex<Vec<Class>> = Mutex::new(Vec::new());

/// The tables are in order after every statement, also where a panic came in between.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives a ledger to C code: the number to use there, until [`plimsoll_ledger_free`] is called with it. The ledger stays
/// the caller's as well.
pub fn share(ledger: Ledger) -> LedgerNumber {
    let mut ledgers = lock(&LEDGERS);
    let number = ledgers.next;
    ledgers.next += 1;
    ledgers.by_number.insert(number, Lent { ledger, calls: Arc::default() });
    number
}

pub(crate) fn ledger(number: LedgerNumber) -> Result<Lent, Failure> {
    lock(&LEDGERS).by_number.get(&number).cloned().ok_or_else(|| no_such(number))
}

fn no_such(number: LedgerNumber) -> Failure {
    Failure::new(Status::NoSuchLedger, format_args!("there is no ledger {number}; it was freed, or never made"))
}

pub(crate) fn class(number: ClassNumber) -> Result<Class, Failure> {
    let at = (number as usize).wrapping_sub(1);
    lock(&CLASSES).get(at).copied().ok_or_else(|| {
        Failure::new(Status::NoSuchClass, format_args!("there is no class {number}; make it with plimsoll_class_new"))
    })
}

pub(crate) fn space(number: SpaceNumber) -> Result<Space, Failure> {
    match number {
        PLIMSOLL_SPACE_HOST => Ok(Space::HOST),
        PLIMSOLL_SPACE_PINNED => Ok(Space::PINNED),
        _ => match number.checked_sub(PLIMSOLL_SPACE_DEVICES).map(u16::try_from) {
            Some(Ok(device)) => Ok(Space::device(device)),
            _ => Err(Failure::argument(format_args!(
                "there is no space {number}; use PLIMSOLL_SPACE_HOST, PLIMSOLL_SPACE_PINNED or PLIMSOLL_SPACE_DEVICE(n)"
            ))),
        },
    }
}

/// Makes a ledger with the limits of `count` spaces. A space that is not named has no room at all.
///
/// # Safety
///
/// `limits` points to `count` limits, and `ledger` to where the new ledger's number is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_ledger_new(limits: *const Limit, count: usize, ledger: *mut LedgerNumber) -> Status {
    answer(|| {
        // SAFETY: the caller keeps the promises that are passed on here.
        let (limits, out) = unsafe { (memory::array(limits, count, "limits")?, Out::new(ledger, "ledger")?) };
        let mut budget = Budget::new();
        for limit in limits {
            budget = budget.space(space(limit.space)?, Bytes(limit.bytes));
        }
        out.write(share(Ledger::new(budget)));
        Ok(())
    })
}

/// Refuses everything new from now on; what waits is refused as well. Handles that are out stay good.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_ledger_close(ledger: LedgerNumber) -> Status {
    answer(|| {
        self::ledger(ledger)?.close();
        Ok(())
    })
}

/// Frees a ledger. While handles of it are out, or other calls with it are in progress (a wait, say: close it to end those),
/// it is not freed: PLIMSOLL_STATUS_HANDLES_OUTSTANDING, and the last error names them. A ledger that came from Rust stays alive
/// there.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_ledger_free(ledger: LedgerNumber) -> Status {
    answer(|| {
        // Kept to the end, so that no call begins meanwhile.
        let mut ledgers = lock(&LEDGERS);
        let lent = ledgers.by_number.get(&ledger).ok_or_else(|| no_such(ledger))?;
        let calls = Arc::strong_count(&lent.calls) - 1;
        if calls > 0 {
            return Err(Failure::new(
                Status::HandlesOutstanding,
                format_args!(
                    "{calls} other calls with ledger {ledger} are in progress; let them return (plimsoll_ledger_close ends \
                     those that wait), then free it"
                ),
            ));
        }
        let out = lent.outstanding_handles();
        if !out.is_empty() {
            let mut text = format!("{} handles of ledger {ledger} were never released:", out.len());
            for record in out.iter().take(16) {
                text += &format!(" {record};");
            }
            if out.len() > 16 {
                text += &format!(" and {} more;", out.len() - 16);
            }
            return Err(Failure::new(Status::HandlesOutstanding, text + " release them, then free the ledger"));
        }
        let freed = ledgers.by_number.remove(&ledger);
        drop(ledgers);
        // The last of it may go with this, and take its time.
        drop(freed);
        Ok(())
    })
}

/// The class of this name in this space; the same number for the same name and space. Classes belong to no ledger and
/// are never freed; at most 4096 can be made.
///
/// # Safety
///
/// `name` is a text that ends with a zero byte, and `class` points to where the number is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_class_new(
    name: *const c_char,
    space: SpaceNumber,
    class: *mut ClassNumber,
) -> Status {
    answer(|| {
        // SAFETY: the caller keeps the promises that are passed on here.
        let (name, out) = unsafe { (memory::text(name, "name")?, Out::new(class, "class")?) };
        let space = self::space(space)?;
        let mut classes = lock(&CLASSES);
        let known = classes.iter().position(|class| class.name() == name && class.space() == space);
        let at = match known {
            Some(at) => at,
            None if classes.len() == MAX_CLASSES => {
                return Err(Failure::argument(format_args!(
                    "there are {MAX_CLASSES} classes already; name kinds of buffers, not each buffer"
                )));
            }
            None => {
                classes.push(Class::new(Box::leak(name.into()), space));
                classes.len() - 1
            }
        };
        out.write(u32::try_from(at + 1).expect("at most MAX_CLASSES"));
        Ok(())
    })
}
