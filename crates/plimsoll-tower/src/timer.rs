//! Something that calls back after a while.

use std::time::Duration;

/// Calls back after a while: what [`LedgerLayer::idle`](crate::LedgerLayer::idle) needs of a runtime.
pub trait Timer: Send + Sync + 'static {
    /// Calls `then` once, after about `delay`, from anywhere.
    fn after(&self, delay: Duration, then: Box<dyn FnOnce() + Send>);
}

/// Tokio's clock, of the runtime in whose context the service is polled.
#[cfg(feature = "tokio")]
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioTimer;

#[cfg(feature = "tokio")]
impl Timer for TokioTimer {
    /// # Panics
    ///
    /// Outside of a runtime with its clock enabled.
    fn after(&self, delay: Duration, then: Box<dyn FnOnce() + Send>) {
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            then();
        });
    }
}
