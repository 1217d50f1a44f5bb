//! What is known of the times of stages: means and variances that follow changes, by class of work.

/// Weight of one sample where nothing changes.
const SLOW: f64 = 1.0 / 128.0;
/// Weight of one sample in the mean that looks for changes.
const FAST: f64 = 1.0 / 6.0;
/// How many samples make a mean known.
const KNOWN: f64 = 16.0;
/// How many of its own standard deviations the fast mean must be off before it is believed.
const SURPRISE: f64 = 4.0;

/// Mean and variance of a quantity that may change.
///
/// The mean follows slowly while samples only scatter, and at once when they have moved. The variance is taken from the
/// differences of successive samples (von Neumann 1941), so that a move of the level is not taken for scatter.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimate {
    count: u64,
    /// How many samples the mean stands on: since the last surprise.
    recent: u64,
    mean: f64,
    fast: f64,
    variance: f64,
    last: f64,
}

impl Estimate {
    pub(super) fn add(&mut self, sample: f64) {
        self.count += 1;
        self.recent += 1;
        self.mean += (sample - self.mean) * (1.0 / self.recent as f64).max(SLOW);
        self.fast += (sample - self.fast) * (1.0 / self.count as f64).max(FAST);
        if self.count > 1 {
            let difference = (sample - self.last) * (sample - self.last) / 2.0;
            // Where it is known how samples scatter, the one step of a move counts for no more than a rare sample.
            let rare = 8.0 * self.variance + 0.01 * self.mean * self.mean;
            let difference = if self.count > 8 { difference.min(rare) } else { difference };
            self.variance += (difference - self.variance) * (1.0 / (self.count - 1) as f64).max(SLOW);
        }
        self.last = sample;
        let scatter = (self.variance * FAST / (2.0 - FAST)).sqrt();
        // The small part of the mean keeps rounding and clock ticks from being news.
        if self.count > 3 && (self.fast - self.mean).abs() > SURPRISE * scatter + 0.02 * self.mean {
            self.mean = self.fast;
            // The fast mean still has a part of what was before: it counts for little.
            self.recent = 1;
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    pub(super) fn variance(&self) -> f64 {
        self.variance
    }
}

/// Mean and variance of a sum over some stages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moments {
    pub(super) mean: f64,
    pub(super) variance: f64,
}

impl Moments {
    /// The squared coefficient of variation.
    pub(super) fn cv2(self) -> f64 {
        if self.mean > 0.0 { self.variance / (self.mean * self.mean) } else { 0.0 }
    }
}

/// The times of one stage.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StageTimes {
    /// From its beginning to its end.
    pub(super) run: Estimate,
    /// From its grant to its beginning.
    pub(super) wait: Estimate,
}

/// The times of one class of work, stage by stage.
#[derive(Clone, Debug)]
struct Work {
    class: u32,
    /// The part of recent jobs that were of this class.
    share: f64,
    stages: Vec<StageTimes>,
}

/// The times of all stages, for each class of work by itself, so that the mix of classes does not pass for scatter of each.
#[derive(Clone, Debug)]
pub(super) struct Times {
    stages: usize,
    works: Vec<Work>,
    jobs: u64,
}

impl Times {
    pub(super) fn new(stages: usize) -> Self {
        Self { stages, works: Vec::new(), jobs: 0 }
    }

    pub(super) fn add(&mut self, class: u32, stage: usize, run: f64, wait: f64) {
        let at = self.works.iter().position(|work| work.class == class).unwrap_or_else(|| {
            self.works.push(Work { class, share: 0.0, stages: vec![StageTimes::default(); self.stages] });
            self.works.len() - 1
        });
        if stage == 0 {
            self.jobs += 1;
            let weight = (1.0 / self.jobs as f64).max(SLOW);
            for work in &mut self.works {
                work.share *= 1.0 - weight;
            }
            self.works[at].share += weight;
        }
        let times = &mut self.works[at].stages[stage];
        times.run.add(run);
        times.wait.add(wait);
    }

    /// Whether each stage has been seen to its end.
    pub(super) fn is_complete(&self) -> bool {
        (0..self.stages).all(|stage| self.works.iter().any(|work| work.stages[stage].run.count() > 0))
    }

    /// By how much the mean of a few samples of the time in these stages may be too small: one standard error, of times that scatter
    /// as exponential ones do until it is seen how they do; and nothing once that is small, or there are [`KNOWN`] samples.
    pub(super) fn doubt(&self, of: impl Fn(usize) -> bool) -> f64 {
        let count =
            |work: &Work| (0..self.stages).filter(|stage| of(*stage)).map(|stage| work.stages[stage].run.count()).min();
        let samples = self.works.iter().filter_map(count).sum::<u64>().max(1) as f64;
        let seen = self.sum(|stage, times| of(stage).then(|| times.service())).cv2().min(1.0);
        let cv2 = (1.0 + (samples - 1.0) * seen) / samples;
        1.0 + (cv2 / samples - 1.0 / KNOWN).max(0.0).sqrt()
    }

    /// The time that a job of the present mix spends in those stages that `of` picks a time from.
    pub(super) fn sum(&self, of: impl Fn(usize, &StageTimes) -> Option<Moments>) -> Moments {
        let (mut weight, mut mean, mut square) = (0.0, 0.0, 0.0);
        for work in &self.works {
            // A class that has not yet been everywhere says nothing about the whole, unless it is all there is.
            if self.works.len() > 1 && work.stages.iter().any(|times| times.run.count() == 0) {
                continue;
            }
            let picked = work.stages.iter().enumerate().filter_map(|(stage, times)| of(stage, times));
            let sum = picked.fold(Moments::default(), |sum, times| Moments {
                mean: sum.mean + times.mean,
                variance: sum.variance + times.variance,
            });
            weight += work.share;
            mean += work.share * sum.mean;
            square += work.share * (sum.variance + sum.mean * sum.mean);
        }
        if weight <= 0.0 {
            return Moments::default();
        }
        let mean = mean / weight;
        Moments { mean, variance: (square / weight - mean * mean).max(0.0) }
    }

    /// The same for a sum of anything else by class and stage, its mean alone.
    pub(super) fn mean_of<F: Fn(usize, &StageTimes) -> f64>(&self, of_class: impl Fn(u32) -> F) -> f64 {
        let (mut weight, mut mean) = (0.0, 0.0);
        for work in &self.works {
            if work.stages.iter().any(|times| times.run.count() == 0) {
                continue;
            }
            weight += work.share;
            let of = of_class(work.class);
            let sum: f64 = work.stages.iter().enumerate().map(|(stage, times)| of(stage, times)).sum();
            mean += work.share * sum;
        }
        if weight > 0.0 { mean / weight } else { 0.0 }
    }
}

impl StageTimes {
    pub(super) fn service(&self) -> Moments {
        Moments { mean: self.run.mean(), variance: self.run.variance() }
    }

    /// Service with the wait for a server before it, during which the stage's bytes are held already.
    pub(super) fn held(&self) -> Moments {
        Moments { mean: self.run.mean() + self.wait.mean(), variance: self.run.variance() + self.wait.variance() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_moves_is_followed_and_not_taken_for_scatter() {
        let mut estimate = Estimate::default();
        for i in 0..200 {
            estimate.add(100.0 + f64::from(i % 2));
        }
        assert!((estimate.mean() - 100.5).abs() < 0.1, "{estimate:?}");
        assert!(estimate.variance() < 1.0);
        for _ in 0..20 {
            estimate.add(300.0);
        }
        assert!((estimate.mean() - 300.0).abs() < 30.0, "{estimate:?}");
        for _ in 0..60 {
            estimate.add(300.0);
        }
        assert!((estimate.mean() - 300.0).abs() < 2.0, "{estimate:?}");
        assert!(estimate.variance() < 300.0 * 300.0 * 0.02, "{estimate:?}");
    }

    #[test]
    fn a_mix_of_classes_varies_by_their_difference() {
        let mut times = Times::new(1);
        for i in 0..400 {
            let class = i % 2;
            times.add(class, 0, if class == 0 { 10.0 } else { 30.0 }, 0.0);
        }
        let sum = times.sum(|_, times| Some(times.service()));
        assert!((sum.mean - 20.0).abs() < 1.0, "{sum:?}");
        assert!((sum.variance - 100.0).abs() < 5.0, "{sum:?}");
    }
}
