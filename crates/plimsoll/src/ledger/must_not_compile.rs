//! What the types forbid, as tests of the documentation's machinery: each pair is one program that compiles and one that
//! differs from it by the forbidden line.

/// Bytes of a merged reservation belong to the other one.
///
/// ```
/// # use plimsoll::{Bytes, Class, Ledger, Space};
/// let mut whole = Ledger::unlimited().reserve(Class::new("a", Space::HOST), Bytes(2)).wait().unwrap();
/// let part = whole.split(Bytes(1)).unwrap();
/// whole.merge(part).unwrap();
/// ```
///
/// ```compile_fail,E0382
/// # use plimsoll::{Bytes, Class, Ledger, Space};
/// let mut whole = Ledger::unlimited().reserve(Class::new("a", Space::HOST), Bytes(2)).wait().unwrap();
/// let part = whole.split(Bytes(1)).unwrap();
/// whole.merge(part).unwrap();
/// part.bytes();
/// ```
struct UseAfterMerge;

/// A reservation that went into a handle is in the handle.
///
/// ```
/// # use plimsoll::{Bytes, Class, Ledger, Space};
/// let held = Ledger::unlimited().reserve(Class::new("a", Space::HOST), Bytes(2)).wait().unwrap();
/// let _ = held.into_handle();
/// ```
///
/// ```compile_fail,E0382
/// # use plimsoll::{Bytes, Class, Ledger, Space};
/// let held = Ledger::unlimited().reserve(Class::new("a", Space::HOST), Bytes(2)).wait().unwrap();
/// let _ = held.into_handle();
/// drop(held);
/// ```
struct UseAfterIntoHandle;

/// A charged vector cannot be grown behind the ledger's back, nor exchanged for another one.
///
/// ```
/// # use plimsoll::{Bytes, Charged, Class, Ledger, Space};
/// let held = Ledger::unlimited().reserve(Class::new("a", Space::HOST), Bytes(8)).wait().unwrap();
/// let mut charged: Charged<Vec<u8>> = Charged::with_capacity(held, 8).unwrap();
/// charged.sort();
/// let slice: &mut [u8] = &mut charged;
/// ```
///
/// ```compile_fail,E0599
/// # use plimsoll::{Bytes, Charged, Class, Ledger, Space};
/// let held = Ledger::unlimited().reserve(Class::new("a", Space::HOST), Bytes(8)).wait().unwrap();
/// let mut charged: Charged<Vec<u8>> = Charged::with_capacity(held, 8).unwrap();
/// charged.reserve(1000);
/// ```
///
/// ```compile_fail,E0308
/// # use plimsoll::{Bytes, Charged, Class, Ledger, Space};
/// let held = Ledger::unlimited().reserve(Class::new("a", Space::HOST), Bytes(8)).wait().unwrap();
/// let mut charged: Charged<Vec<u8>> = Charged::with_capacity(held, 8).unwrap();
/// let vector: &mut Vec<u8> = &mut charged;
/// ```
struct NoVectorOut;

/// A charged buffer is paid for once.
///
/// ```
/// # use plimsoll::{Bytes, Charged, Class, Ledger, Space};
/// let held = Ledger::unlimited().reserve(Class::new("a", Space::HOST), Bytes(8)).wait().unwrap();
/// let charged = std::sync::Arc::new(Charged::<Vec<u8>>::with_capacity(held, 8).unwrap());
/// let shared = charged.clone();
/// ```
///
/// ```compile_fail,E0599
/// # use plimsoll::{Bytes, Charged, Class, Ledger, Space};
/// let held = Ledger::unlimited().reserve(Class::new("a", Space::HOST), Bytes(8)).wait().unwrap();
/// let charged = Charged::<Vec<u8>>::with_capacity(held, 8).unwrap();
/// let twice = charged.clone();
/// ```
struct ChargedIsNotClone;

/// A job waits for one stage at a time.
///
/// ```
/// # use plimsoll::{Demand, JobSpec, Ledger, Profile};
/// let profile = Profile::new().stage("a", Demand::new(), Demand::new()).stage("b", Demand::new(), Demand::new());
/// let mut job = Ledger::unlimited().submit(JobSpec::new("job", profile)).unwrap();
/// let first = job.enter(0);
/// drop(first);
/// let second = job.enter(1);
/// ```
///
/// ```compile_fail,E0499
/// # use plimsoll::{Demand, JobSpec, Ledger, Profile};
/// let profile = Profile::new().stage("a", Demand::new(), Demand::new()).stage("b", Demand::new(), Demand::new());
/// let mut job = Ledger::unlimited().submit(JobSpec::new("job", profile)).unwrap();
/// let first = job.enter(0);
/// let second = job.enter(1);
/// drop(first);
/// ```
struct OneStageAtATime;

/// A stage that has ended gives nothing more.
///
/// ```
/// # use plimsoll::{Class, Demand, JobSpec, Ledger, Profile, Space};
/// let profile = Profile::new().stage("a", Demand::new(), Demand::new());
/// let mut job = Ledger::unlimited().submit(JobSpec::new("job", profile)).unwrap();
/// let mut grant = job.enter(0).wait().unwrap();
/// drop(grant.take_all(Class::new("a", Space::HOST)));
/// drop(grant);
/// ```
///
/// ```compile_fail,E0382
/// # use plimsoll::{Class, Demand, JobSpec, Ledger, Profile, Space};
/// let profile = Profile::new().stage("a", Demand::new(), Demand::new());
/// let mut job = Ledger::unlimited().submit(JobSpec::new("job", profile)).unwrap();
/// let mut grant = job.enter(0).wait().unwrap();
/// drop(grant);
/// drop(grant.take_all(Class::new("a", Space::HOST)));
/// ```
struct NothingAfterTheStage;
