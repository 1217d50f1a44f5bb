//! The steps of a proof as the stages of a pipeline.

use plimsoll::pipeline::{Pipeline, Rejection, StageCx};
use plimsoll::pool::Pool;
use plimsoll::{Grant, Ledger};

use super::{Openings, ProveError, Prover, Witness};
use crate::footprint::STAGES;

impl Prover {
    /// A pipeline of the six steps, each with the grant that [`Prover::profile`] says on this pool. It is certified for one proof
    /// at the least.
    ///
    /// `begin` makes a job's witness in the first stage; what it gives beside it travels past the steps to `end`, which has the
    /// openings in the last one ([`Prover::finish`] makes a proof of them). No stage begins once the flag of [`Prover::with_stop`] is set: its job ends with
    /// [`ProveError::Stopped`].
    ///
    /// # Errors
    /// Not even one proof fits the ledger.
    pub fn pipeline<In, Beside, Out>(
        &self,
        ledger: &Ledger,
        pool: &Pool,
        begin: impl Fn(&Prover, &mut Grant, In) -> Result<(Witness, Beside), ProveError> + Send + Sync + 'static,
        end: impl Fn(&Prover, Openings, Beside) -> Result<Out, ProveError> + Send + Sync + 'static,
    ) -> Result<Pipeline<In, Out, ProveError>, Rejection>
    where
        In: Send + 'static,
        Beside: Send + 'static,
        Out: Send + 'static,
    {
        let [synthesise, evaluate, quotient, commit, b_g2, assemble] = STAGES;
        let profile = self.profile(pool.threads());
        let largest = profile.clone();
        Pipeline::builder(ledger, pool, move |_: &In| profile.clone())
            .stage(synthesise, {
                let prover = self.clone();
                move |cx: &mut StageCx<'_>, input| {
                    prover.check_stop()?;
                    begin(&prover, cx.grant(), input)
                }
            })
            .stage(evaluate, self.step(Self::evaluate))
            .stage(quotient, self.step(Self::quotient))
            .stage(commit, self.step(Self::commit))
            .stage(b_g2, self.step(Self::b_g2))
            .stage(assemble, {
                let prover = self.clone();
                move |_: &mut StageCx<'_>, (openings, beside)| end(&prover, openings, beside)
            })
            .largest(largest)
            .build()
    }

    /// A step as a stage, past which something is carried.
    fn step<In: 'static, Out: 'static, Beside: 'static>(
        &self,
        run: impl Fn(&Prover, &mut Grant, In) -> Result<Out, ProveError> + Send + Sync + 'static,
    ) -> impl Fn(&mut StageCx<'_>, (In, Beside)) -> Result<(Out, Beside), ProveError> + Send + Sync + 'static {
        let prover = self.clone();
        move |cx, (value, beside)| {
            prover.check_stop()?;
            Ok((run(&prover, cx.grant(), value)?, beside))
        }
    }
}
