//! What is planted in a virtual program.

/// A fault, or something that looks like one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::diagnose::tests) enum Plant {
    Nothing,
    /// Tables that are filled by the first jobs: up to so much of a job's size, over so much of the run.
    WarmUp {
        part: f64,
        until: f64,
    },
    /// A cache that the ledger does not count and that comes to its limit.
    Cache {
        part: f64,
        until: f64,
    },
    /// A cache of reservations that comes to its limit, and from then on drops its oldest entry for each new one.
    CountedCache {
        entries: usize,
    },
    /// Jobs come in bursts, with rests.
    Bursts {
        count: f64,
    },
    /// Memory that is left behind: so much of a job's size, by one job in so many, inside the allocator or outside.
    Leak {
        part: f64,
        odds: f64,
        mapped: bool,
    },
    /// A job's charge stays after its end; with or without its memory.
    StuckJob {
        odds: f64,
        memory: bool,
    },
    /// A reservation is made for some jobs and never returned.
    StuckReservation {
        part: f64,
        odds: f64,
        memory: bool,
    },
    /// One reservation grows with every job.
    GrowingReservation {
        part: f64,
        memory: bool,
    },
    /// Jobs hang in their stage.
    Hung {
        jobs: usize,
    },
    /// The drum is slower than the source, and nothing bounds what is in between.
    Backlog {
        factor: f64,
    },
    /// Results are reservations that somebody takes too slowly.
    SlowTaker {
        part: f64,
        rate: f64,
    },
    /// The ledger's limit holds so many jobs, and there are more workers.
    Ceiling {
        jobs: f64,
    },
    /// The allocator does not give back.
    Retention,
    /// Pages of partial use, so much of what is live.
    Fragmentation {
        part: f64,
    },
    /// A stage holds more than it declares.
    Uncounted {
        stage: usize,
        part: f64,
    },
    /// Another process takes all but so much of what is left, at some time.
    Neighbour {
        left: f64,
        from: f64,
        over: f64,
    },
    /// Memory that is left behind from so much of the run on.
    LateLeak {
        part: f64,
        from: f64,
    },
    /// Memory that is left behind, more and more of it.
    Accelerating {
        part: f64,
    },
    /// A leak in three large steps.
    Stepped {
        part: f64,
        at: f64,
    },
    /// A leak beneath something that swings, several times a run.
    Wave {
        part: f64,
        swing: f64,
    },
    /// Memory that is left behind by the second, in rests as well.
    IdleLeak {
        part: f64,
    },
    /// A cache without a limit that grows ever more slowly: as a root, or as a logarithm.
    Slowing {
        part: f64,
        root: bool,
    },
    /// A few tables in the books, made when they are first needed, and kept.
    Tables {
        count: usize,
    },
    /// A file that is mapped and read once, to its end.
    Dataset {
        part: f64,
    },
    /// One job takes so many times as long as the others.
    LongJob {
        times: f64,
    },
    /// Addresses that are asked for and never touched, more and more.
    Sparse {
        part: f64,
    },
    /// Memory of ended jobs that the kernel may take and has not.
    LazilyFreed {
        part: f64,
    },
    /// The drum is slower than the source, and the budget bounds what is in between.
    FullBacklog {
        factor: f64,
        jobs: f64,
    },
    /// Reservations that stay fill the budget: everything stands still.
    FullOfStuck {
        part: f64,
    },
    /// Own children take what is left of the machine.
    Children,
    /// The pages of this process's own files fill its control group.
    PageCache,
    /// Buffers on the card take more than they declare.
    CardUncounted {
        part: f64,
    },
    /// Device memory that is left behind by each job, with or without a driver that tells whose it is.
    CardLeak {
        part: f64,
        own: bool,
    },
}
