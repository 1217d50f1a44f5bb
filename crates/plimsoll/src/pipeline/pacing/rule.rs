//! How much work in progress keeps the slowest station busy: the formulas, without any state.
//!
//! A line with w jobs in it is a closed loop: a job spends Z on its way and S at the drum, and as soon as it leaves, the
//! next one comes in. That is the machine-repairman model (Palm 1947), whose single repairman is busy for the part
//! 1 − B(w, a) of the time, where a = Z/S and B is Erlang's loss formula: exactly so for exponential service at the drum
//! and times of *any* distribution on the way. Where times vary less, less slack will do, in proportion to the standard
//! deviation of how many jobs are on their way ([`spread`]).
//!
//! Only additions, multiplications, divisions and square roots, which give the same bits on every machine.

/// Which part of the drum's time may be lost for want of work, by the source rope and by each other one.
pub const LOSS: f64 = 0.003;

/// A station that is busier than this counts as nearly as slow as the drum.
pub(super) const BUSY_MAX: f64 = 0.9;

/// The most tokens that a rope is ever given.
pub(super) const TOKENS_MAX: u64 = 1 << 20;

/// Erlang's loss formula: the probability that all of `servers` are taken when `load` of them would be on average.
///
/// ```
/// use plimsoll::pipeline::pacing::erlang_b;
/// assert!((erlang_b(2, 1.0) - 0.2).abs() < 1e-12);
/// ```
pub fn erlang_b(servers: u64, load: f64) -> f64 {
    let step = 1.0 / load;
    let (from, mut inverse) = start(servers as f64, load);
    for n in from + 1..=servers {
        inverse = 1.0 + n as f64 * step * inverse;
        if inverse > 1e300 {
            return 0.0;
        }
    }
    1.0 / inverse
}

/// Where to begin with the recursion for so many servers, and the inverse of the loss there: 1 + n/load · the one before, so
/// that each step waits for a product and a sum, not for a division.
///
/// Not at 0 where the load is large: at n servers, no more than the load, the inverse is the sum of n!/((n − k)! · loadᵏ), whose
/// terms fall, and after some ten times √load of them are nothing.
fn start(servers: f64, load: f64) -> (u64, f64) {
    const LARGE: f64 = 512.0;
    if !(load > LARGE && servers > LARGE) {
        return (0, 1.0);
    }
    let from = servers.min(load.floor());
    let (mut term, mut inverse, mut left) = (1.0, 1.0, from);
    while term > 1e-17 * inverse && left > 0.0 {
        term *= left / load;
        inverse += term;
        left -= 1.0;
    }
    (from as u64, inverse)
}

/// The number of servers with which [`erlang_b`] falls to `loss`, interpolated between whole numbers.
fn servers_for(load: f64, loss: f64) -> f64 {
    let (step, enough) = (1.0 / load, 1.0 / loss);
    // The load that is carried is no more than the servers: with a few less than the load, more than that is lost.
    let (from, mut inverse) = start((load * (1.0 - loss)).floor().min(TOKENS_MAX as f64), load);
    let mut servers = from as f64;
    while servers < TOKENS_MAX as f64 {
        let next = 1.0 + (servers + 1.0) * step * inverse;
        if next >= enough {
            let (blocked, next) = (1.0 / inverse, 1.0 / next);
            return servers + (blocked - loss) / (blocked - next);
        }
        (servers, inverse) = (servers + 1.0, next);
    }
    servers
}

/// The variance of how many jobs are on their way, relative to that of a Poisson process: 0 when every time is the same,
/// 1 when the drum's times are exponential.
///
/// Jobs leave the drum as a renewal process with squared coefficient of variation `drum_cv2`, and each is on its way for a
/// time with distribution F: the number on their way then has the variance λ∫F(1−F) + λ·cv²·∫(1−F)² (Cox and Isham). With
/// g = ∫F(1−F)/mean, half the mean difference of two such times, that is λ·mean·(g + cv²(1 − g)); g is 1/√π ≈ 0.564 of the
/// coefficient of variation for normal times, and close to it for most others.
pub fn spread(way_cv2: f64, drum_cv2: f64) -> f64 {
    let g = (0.564 * way_cv2.max(0.0).sqrt()).min(0.75);
    g + drum_cv2.clamp(0.0, 4.0) * (1.0 - g)
}

/// The work in progress that keeps a drum of `servers` busy but for `loss` of its time: a + servers + β√a.
///
/// `on_the_way` is a: how many jobs are on average anywhere but at the drum when it is busy all the time; `spread` says how
/// much that varies (see [`spread`]).
pub fn work_in_progress(on_the_way: f64, servers: u64, spread: f64, loss: f64) -> f64 {
    let slack = servers_for(on_the_way, loss) - 1.0 - on_the_way;
    servers as f64 + on_the_way + slack.max(0.0) * spread.max(0.0).sqrt()
}

/// The part of the drum's time that it is busy with `jobs` in the line: the inverse of [`work_in_progress`].
pub fn utilisation(jobs: u64, on_the_way: f64, servers: u64, spread: f64) -> f64 {
    let (jobs, servers) = (jobs as f64, servers as f64);
    let at_most = (jobs / (servers + on_the_way)).min(1.0);
    let slack = jobs - servers - on_the_way;
    if spread <= 0.0 || slack <= 0.0 {
        // Without variation nothing is lost but what is not there; with it, the formula below does not reach here.
        let blocked = erlang_b((jobs - servers + 1.0).max(0.0) as u64, on_the_way);
        return if spread <= 0.0 { at_most } else { at_most.min(1.0 - blocked * spread.min(1.0)) };
    }
    let stretched = 1.0 + on_the_way + slack / spread.sqrt();
    let (below, part) = (stretched.floor(), stretched.fract());
    let (lower, upper) = (erlang_b(below as u64, on_the_way), erlang_b(below as u64 + 1, on_the_way));
    at_most.min(1.0 - (lower + (upper - lower) * part))
}

/// How many jobs wait on average before a station of `servers` that is busy for `busy` of its time: Erlang's delay formula,
/// scaled by the variation of arrivals and service as Kingman's is.
///
/// A station that is nearly as slow as the drum would need a queue without end to lose nothing; beyond 90 % the queue is
/// no longer lengthened, and what is lost is lost.
pub(super) fn queue(servers: u64, busy: f64, cv2: f64) -> f64 {
    let busy = busy.clamp(0.0, BUSY_MAX);
    let blocked = erlang_b(servers, busy * servers as f64);
    let waits = blocked / (1.0 - busy * (1.0 - blocked));
    waits * busy / (1.0 - busy) * cv2.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loss formula as it is written in books.
    fn erlang_b_by_sums(servers: u32, load: f64) -> f64 {
        let term = |n: u32| (1..=n).fold(1.0, |term, k| term * load / f64::from(k));
        term(servers) / (0..=servers).map(term).sum::<f64>()
    }

    #[test]
    fn losses_are_erlangs() {
        for (servers, load) in [(0, 3.0), (1, 0.5), (5, 3.0), (13, 10.0), (60, 50.0)] {
            let (ours, book) = (erlang_b(u64::from(servers), load), erlang_b_by_sums(servers, load));
            assert!((ours - book).abs() < 1e-12, "{servers} {load}: {ours} {book}");
        }
        let n = servers_for(10.0, 0.005);
        assert!(erlang_b(n.floor() as u64, 10.0) > 0.005 && erlang_b(n.ceil() as u64, 10.0) <= 0.005, "{n}");
    }

    #[test]
    fn what_does_not_vary_needs_no_slack() {
        assert!((work_in_progress(10.0, 1, 0.0, LOSS) - 11.0).abs() < 1e-12);
        assert!((work_in_progress(0.0, 2, 1.0, LOSS) - 2.0).abs() < 1e-12);
        let of = |spread| work_in_progress(10.0, 1, spread, LOSS);
        assert!(of(0.0) < of(0.25) && of(0.25) < of(1.0));
        // β as the rule of thumb has it: a + 1 + β√a with β near 2.5 for exponential times and this loss.
        let beta = (of(1.0) - 11.0) / 10f64.sqrt();
        assert!((2.0..3.0).contains(&beta), "{beta}");
    }

    #[test]
    fn utilisation_undoes_work_in_progress() {
        for a in [0.3, 2.0, 10.0, 40.0] {
            for spread in [0.1, 0.5, 1.0] {
                let jobs = work_in_progress(a, 1, spread, LOSS).ceil() as u64;
                assert!(utilisation(jobs, a, 1, spread) >= 1.0 - LOSS - 1e-9, "{a} {spread} {jobs}");
                let few = (a / 2.0).max(1.0) as u64;
                assert!(utilisation(few, a, 1, spread) <= few as f64 / (a + 1.0) + 1e-9);
            }
        }
        assert!((utilisation(11, 10.0, 1, 0.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_single_server_queues_as_pollaczek_and_khinchine_say() {
        // M/M/1: ρ²/(1 − ρ).
        assert!((queue(1, 0.5, 1.0) - 0.5).abs() < 1e-12);
        assert!((queue(1, 0.8, 1.0) - 3.2).abs() < 1e-12);
        assert!(queue(8, 0.8, 1.0) < queue(1, 0.8, 1.0));
        assert!(queue(1, 1.0, 1.0).is_finite());
    }

    #[test]
    fn large_loads_take_few_steps_and_say_the_same() {
        let by_recursion =
            |servers: u64, load: f64| 1.0 / (1..=servers).fold(1.0, |inverse, n| 1.0 + n as f64 / load * inverse);
        for load in [100.0, 513.7, 2_000.0, 70_000.0, 1_000_000.0] {
            for part in [0.3, 0.99, 1.0, 1.01, 1.5] {
                let servers = (load * part) as u64;
                let (slow, fast) = (by_recursion(servers, load), erlang_b(servers, load));
                assert!((slow - fast).abs() <= 1e-9 * slow + 1e-290, "{servers} for {load}: {slow} {fast}");
            }
            let servers = servers_for(load, LOSS);
            let (below, above) = (servers.floor() as u64, servers.ceil() as u64);
            assert!(by_recursion(below, load) >= LOSS && by_recursion(above, load) <= LOSS, "{load}: {servers}");
            // A hundredth of the load, or what a sum over the root of it takes.
            let (from, _) = start((load * (1.0 - LOSS)).floor(), load);
            assert!(load < 1_000.0 || servers - from as f64 <= 0.01 * load + 10.0 * load.sqrt(), "{load}: {from}");
        }
        // More than tokens can be is as many as can be.
        assert_eq!(servers_for(1e9, LOSS), TOKENS_MAX as f64);
        assert_eq!(erlang_b(u64::MAX, 1e3), 0.0);
    }
}
