//! What can happen in a world, and where its actors stand.

/// Where a job or reservation of a world stands. The stages of a reservation are its levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum At {
    /// It has not arrived.
    Absent,
    /// It has asked for this stage and waits.
    Waiting(usize),
    /// This stage is granted and runs; of a reservation: this level is held.
    Running(usize),
    /// It stands before this stage and has not asked for it.
    Between(usize),
    /// It failed and will be submitted again.
    Failed,
    /// It was given up, and ends with the last of its parts that are in flight.
    Ending,
    /// It has ended, and its results are still held.
    Results,
    /// It has ended, and what it held is with the reaper: not gone yet, and so still charged.
    Freeing,
    /// It has ended and holds nothing; or it was refused.
    Gone,
}

/// What can happen in one step. Actors go by their number, in the order in which the world names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// A job is submitted and asks for its first stage; a reservation is asked for.
    Arrive(usize),
    /// A job's stage ends. It keeps what its profile says and asks for the next stage, or ends.
    EndStage(usize),
    /// A job returns what it will not keep, inside its stage; or all that it has kept, while it waits for the next.
    ReleaseEarly(usize),
    /// A job or reservation tries to take more than it declared.
    TryGrow(usize),
    /// A reservation asks for its next level.
    Grow(usize),
    /// A job or reservation is given up for good.
    Cancel(usize),
    /// A job takes its request back, also when the grant has just arrived.
    Withdraw(usize),
    /// A job that stands between stages asks for the next one.
    Ask(usize),
    /// A job's stage fails.
    Fail(usize),
    /// A job that failed is submitted again.
    Retry(usize),
    /// A job's results are dropped.
    DropResults(usize),
    /// The results of all jobs of this actor's kind are dropped.
    DropAllResults(usize),
    /// A reservation is dropped.
    Return(usize),
    /// A job's stage ends without its having been done, and the job asks for it again.
    RetryStage(usize),
    /// A job that is in flight begins again with its first stage.
    Restart(usize),
    /// What a job or reservation handed to the reaper is gone, and its bytes come back.
    Freed(usize),
    /// A job begins the load that falls to it.
    TakeLoad(usize),
    /// A load returns what it does not need. Residencies go by their number, in the order in which the world names them.
    ReturnFromLoad(usize),
    /// A residency is loaded.
    Loaded(usize),
    /// The load of a residency is given up, for another job to take over.
    GiveUpLoad(usize),
    /// The load of a residency fails, for all who wait for it.
    FailLoad(usize),
    /// The memory of an evicted residency, or of a load that was given up, is gone, and its bytes come back.
    Gone(usize),
    /// A device is lost: the world's first one, or the second, and so on.
    Lose(usize),
    /// The next of the world's new limits is set.
    Resize(usize),
    /// The ledger is closed.
    Close,
}

impl Event {
    /// The actor that it happens to, if it is one.
    pub fn actor(self) -> Option<usize> {
        match self {
            Event::Arrive(actor)
            | Event::EndStage(actor)
            | Event::ReleaseEarly(actor)
            | Event::TryGrow(actor)
            | Event::Grow(actor)
            | Event::Cancel(actor)
            | Event::Withdraw(actor)
            | Event::Ask(actor)
            | Event::Fail(actor)
            | Event::Retry(actor)
            | Event::DropResults(actor)
            | Event::DropAllResults(actor)
            | Event::RetryStage(actor)
            | Event::Restart(actor)
            | Event::Freed(actor)
            | Event::TakeLoad(actor)
            | Event::Return(actor) => Some(actor),
            Event::Resize(_) | Event::Close | Event::Lose(_) => None,
            Event::ReturnFromLoad(_)
            | Event::Loaded(_)
            | Event::GiveUpLoad(_)
            | Event::FailLoad(_)
            | Event::Gone(_) => None,
        }
    }

    /// The residency that it happens to, if it is one.
    pub fn residency(self) -> Option<usize> {
        match self {
            Event::ReturnFromLoad(residency)
            | Event::Loaded(residency)
            | Event::GiveUpLoad(residency)
            | Event::FailLoad(residency)
            | Event::Gone(residency) => Some(residency),
            _ => None,
        }
    }
}
