//! How a pipeline is laid: the lines of its stages, one for the jobs and one for the parts of each stage that fans out.

use std::sync::Arc;

use super::clock::Clock;
use super::drift::{Drifts, Learning};
use super::landing::Landing;
use super::line::{CloneFn, FailuresFn, Line};
use super::needs::Needs;
use super::paced::Paced;
use super::pacing::Pacing;
use super::stage::{Place, Stage};
use super::stats::Observer;
use super::ties::Ties;
use crate::Ledger;
use crate::pool::Remote;

/// What all lines of a pipeline share.
pub(super) struct Ground<E> {
    pub(super) ledger: Ledger,
    pub(super) remote: Remote,
    pub(super) observer: Option<Observer>,
    pub(super) failures: FailuresFn<E>,
    pub(super) learning: Learning,
    pub(super) clock: Arc<Clock>,
    pub(super) landing: Arc<Landing<E>>,
}

/// The ties of a line's stages, and of those of their parts.
pub(super) fn ties_of<E>(stages: &[Stage<E>], within: &str) -> Ties {
    let mut ties = Ties::default();
    for (index, stage) in stages.iter().enumerate() {
        if let Some(count) = stage.at_most {
            ties.add(&format!("{within}{}", stage.name), count, index, index);
        }
        if let Place::Parts(fan) = &stage.place {
            ties.add_parts(index, ties_of(&fan.stages, &within_parts(within, stage)));
        }
    }
    ties
}

/// Where the parts of a stage are, as a prefix of their stages' names.
fn within_parts<E>(within: &str, stage: &Stage<E>) -> String {
    format!("{within}{}, ", stage.name)
}

/// How many stages a job passes in this one, those of its parts included.
fn weight<E>(stage: &Stage<E>) -> usize {
    match &stage.place {
        Place::Parts(fan) => 1 + fan.stages.iter().map(weight).sum::<usize>(),
        _ => 1,
    }
}

/// Lays a line whose last stage has `behind` stages behind it.
pub(super) fn lay<E: Send + 'static>(
    mut stages: Vec<Stage<E>>,
    clone_input: Option<CloneFn>,
    needs: Needs,
    paced: Paced,
    within: &str,
    behind: usize,
    ground: &Ground<E>,
) -> Line<E> {
    let ties = ties_of(&stages, within);
    let mut left = vec![0; stages.len()];
    let mut after = behind;
    for (index, stage) in stages.iter().enumerate().rev() {
        left[index] = after;
        after += weight(stage);
    }
    for (stage, left) in stages.iter_mut().zip(&left) {
        if let Place::Parts(fan) = &mut stage.place {
            let (inner, within) = (std::mem::take(&mut fan.stages), format!("{within}{}, ", stage.name));
            // The join is behind the parts.
            // Parts are paced by their parents.
            let paced = Paced::new(Pacing::Unpaced, 1, &inner);
            fan.line = Some(Arc::new(lay(inner, fan.clone_input, needs.clone(), paced, &within, left + 1, ground)));
        }
    }
    let mut line = Line::new(stages, left, ties, paced, clone_input, Drifts::new(ground.learning), ground);
    line.needs = needs;
    line
}
