//! [`scope()`]: any number of forks that end together.

use super::job;
use super::worker::Worker;

pub use super::job::Scope;

/// Runs `body`, which may spawn closures that borrow from outside, and returns after all of them have ended.
///
/// Meanwhile the calling worker helps: with this job's forks only. Outside a pool each spawn runs on the spot.
///
/// # Panics
///
/// With the panic of the body, or else the first of a spawned closure, after all have ended.
///
/// # Examples
///
/// ```
/// let mut halves = [0, 0];
/// let [left, right] = &mut halves;
/// plimsoll::pool::scope(|s| {
///     s.spawn(|| *left = 1);
///     s.spawn(|| *right = 2);
/// });
/// assert_eq!(halves, [1, 2]);
/// ```
pub fn scope<'env, F, R>(body: F) -> R
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
{
    Worker::with_current(|worker| job::run_scope(worker, body))
}
