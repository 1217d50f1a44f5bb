//! Who has jobs on a pool, and gives them up when the pool is aborted.

use std::sync::Weak;

use super::injector::Injector;
use crate::contain::contain;
use crate::sync::{Mutex, lock};

/// Something that runs jobs on a pool.
pub(crate) trait Tenant: Send + Sync {
    /// Ends every job that has not ended, as soon as its running stage has, and takes no more.
    fn give_up(&self);
}

/// The tenants of one pool.
#[derive(Default)]
pub(super) struct Tenants {
    list: Mutex<Vec<Weak<dyn Tenant>>>,
}

impl Tenants {
    /// Remembers a tenant, unless the pool takes no more jobs.
    pub(super) fn move_in(&self, injector: &Injector, tenant: Weak<dyn Tenant>) -> bool {
        let mut list = lock(&self.list);
        // Under the lock: an abort that comes later finds it on the list.
        let open = injector.is_open();
        if open {
            list.retain(|tenant| tenant.strong_count() > 0);
            list.push(tenant);
        }
        open
    }

    /// Makes every tenant give up. The injector takes nothing any more.
    pub(super) fn give_up(&self) {
        let list = std::mem::take(&mut *lock(&self.list));
        for tenant in list.iter().filter_map(Weak::upgrade) {
            // It runs destructors of what the jobs held; the others must hear of it all the same.
            drop(contain(|| tenant.give_up()));
        }
    }
}

impl std::fmt::Debug for Tenants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tenants").finish_non_exhaustive()
    }
}
