//! Quantiles of any number of times in little memory: counts in buckets, eight to each doubling.

use super::Quantiles;

/// Times, each counted in the bucket of those within an eighth of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    buckets: Vec<u64>,
    count: u64,
    total: u64,
    max: u64,
}

const SPLIT_BITS: u32 = 3;

impl Times {
    pub(super) fn add(&mut self, time: u64) {
        let bucket = bucket_of(time);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.total = self.total.saturating_add(time);
        self.max = self.max.max(time);
    }

    pub(super) fn quantiles(&self) -> Quantiles {
        let Times { count, total, max, .. } = *self;
        let at = |part: f64| {
            let rank = ((count as f64 * part).ceil() as u64).max(1);
            let mut seen = 0;
            let bucket = self.buckets.iter().position(|&in_bucket| {
                seen += in_bucket;
                seen >= rank
            });
            bucket.map_or(0, |bucket| highest_of(bucket).min(max))
        };
        Quantiles { count, p50_ns: at(0.5), p95_ns: at(0.95), max_ns: max, total_ns: total }
    }
}

fn bucket_of(time: u64) -> usize {
    if time < 1 << SPLIT_BITS {
        return time as usize;
    }
    let exponent = time.ilog2();
    let part = (time >> (exponent - SPLIT_BITS)) & ((1 << SPLIT_BITS) - 1);
    (((exponent - SPLIT_BITS + 1) << SPLIT_BITS) as u64 + part) as usize
}

/// The largest time of a bucket.
fn highest_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 1 << SPLIT_BITS {
        return bucket;
    }
    let shift = (bucket >> SPLIT_BITS) - 1;
    let part = (bucket & ((1 << SPLIT_BITS) - 1)) | 1 << SPLIT_BITS;
    ((u128::from(part + 1) << shift) - 1).min(u128::from(u64::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_times_and_is_narrow() {
        for time in
            (0..2000).chain((0..63).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1])).chain([u64::MAX])
        {
            let high = highest_of(bucket_of(time));
            assert!(high >= time && (high - time) as f64 <= time as f64 / 8.0, "{time}: {high}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_list() {
        let mut times = Times::default();
        assert_eq!(times.quantiles(), Quantiles::default());
        (1..=1000).rev().for_each(|time| times.add(time * 1000));
        let Quantiles { count, p50_ns, p95_ns, max_ns, total_ns } = times.quantiles();
        assert_eq!((count, max_ns, total_ns), (1000, 1_000_000, 500_500_000));
        assert!((500_000..=562_500).contains(&p50_ns) && (950_000..=1_000_000).contains(&p95_ns), "{p50_ns} {p95_ns}");
    }
}
