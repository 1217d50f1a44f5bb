//! The steps of a proof as the stages of a pipeline, the heavy ones on devices.

use std::time::Duration;

use plimsoll::pipeline::{Builder, Pipeline, Rejection, Retry};
use plimsoll::pool::Pool;
use plimsoll::{Grant, Ledger};

use super::{DEVICE_STAGES, DeviceProver};
use crate::device::DeviceBackend;
use crate::prover::{Openings, ProveError, Prover, Witness};

impl<D: DeviceBackend> DeviceProver<D> {
    /// A pipeline of the five steps: each job goes to the device that is free and has the key, by the fastest plan that fits there
    /// when it comes. What fails on a device (it is lost, say) begins again from its start, on another if there is one.
    ///
    /// `begin` makes a job's witness in the first stage; what it gives beside it travels past the steps to `end`, which has the
    /// openings in the last one ([`Prover::finish`] makes a proof of them). `needs` adds what copies to the devices pass
    /// through, before the keys do. No stage begins once the flag of [`Prover::with_stop`] is set: its job ends with
    /// [`ProveError::Stopped`].
    ///
    /// # Errors
    /// Not even one proof fits the ledger.
    pub fn pipeline<In, Beside, Out>(
        &self,
        ledger: &Ledger,
        pool: &Pool,
        needs: impl FnOnce(Builder<In, Out, ProveError>) -> Builder<In, Out, ProveError>,
        begin: impl Fn(&Prover, &mut Grant, In) -> Result<(Witness, Beside), ProveError> + Send + Sync + 'static,
        end: impl Fn(&Prover, Openings, Beside) -> Result<Out, ProveError> + Send + Sync + 'static,
    ) -> Result<Pipeline<In, Out, ProveError>, Rejection>
    where
        In: Clone + Send + 'static,
        Beside: Send + 'static,
        Out: Send + 'static,
    {
        let [synthesise, evaluate, stage_in, compute, assemble] = DEVICE_STAGES;
        let threads = pool.threads();
        // As many as there may be devices to be lost, and one; memory that somebody else has is soon asked for by a smaller plan.
        let tries = u32::try_from(self.devices().devices().len()).unwrap_or(u32::MAX).saturating_add(1);
        let again = Retry::times(tries).within(Duration::from_secs(1));
        let smallest = self.profiles(threads).pop().unwrap_or_default();
        let [first, rest, one, two, three, four, five] = [(); 7].map(|()| self.clone());
        let builder = Pipeline::builder(ledger, pool, move |_: &In| first.profiles(threads).swap_remove(0))
            .alternatives(move |_| rest.profiles(threads))
            .failures(ProveError::failure)
            .largest(smallest)
            .stage(synthesise, move |cx, input| {
                one.prover.check_stop()?;
                begin(&one.prover, cx.grant(), input)
            })
            .stage(evaluate, move |cx, (witness, beside)| {
                two.prover.check_stop()?;
                Ok((two.prover.evaluate_for_device(cx.grant(), witness)?, beside))
            })
            // Once it has begun it is bound to the device whose key it has.
            .from_start(again)
            .device_stage(stage_in, self.devices(), move |cx, (evaluated, beside)| {
                three.prover.check_stop()?;
                Ok((three.stage_in(cx, evaluated)?, beside))
            })
            .from_start(again)
            .compute_stage(compute, self.devices(), move |cx, (staged, beside)| {
                four.prover.check_stop()?;
                Ok((four.compute(cx, &staged)?, beside))
            })
            .from_start(again)
            .stage(assemble, move |_, (openings, beside)| end(&five.prover, openings, beside));
        self.with_keys(needs(builder)).build()
    }
}
