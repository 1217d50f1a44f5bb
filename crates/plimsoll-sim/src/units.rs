//! Time in integer nanoseconds, read and printed as people write it.

use std::fmt;
use std::str::FromStr;

/// A time, or a point in virtual time, in nanoseconds.
///
/// ```
/// use plimsoll_sim::Nanos;
/// assert_eq!("3.65 s".parse::<Nanos>().unwrap(), Nanos(3_650_000_000));
/// assert_eq!(Nanos(3_650_000_000).to_string(), "3.65 s");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// One second.
    pub const SECOND: Nanos = Nanos(1_000_000_000);
    /// The longest time that a workload may name: ten years.
    pub const MAX: Nanos = Nanos(10 * 366 * 86_400 * 1_000_000_000);

    /// In seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 * 1e-9
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "us"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        // Two places, rounded to the nearest, in integers.
        let hundredths = (u128::from(self.0) * 100 + unit / 2) / unit;
        let (whole, rest) = (hundredths / 100, hundredths % 100);
        f.pad(&if rest == 0 { format!("{whole} {name}") } else { format!("{whole}.{rest:02} {name}") })
    }
}

impl FromStr for Nanos {
    type Err = String;

    fn from_str(text: &str) -> Result<Nanos, String> {
        let wrong =
            |fault: &str| format!("{text:?} {fault}; write for example \"3.65 s\", \"15 ms\", \"2 min\" or \"1 h\"");
        let trimmed = text.trim();
        if trimmed.starts_with('-') {
            return Err(wrong("is negative"));
        }
        let digits = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
        let (number, unit) = (&trimmed[..digits], trimmed[digits..].trim());
        let unit: u128 = match unit {
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "min" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(wrong("does not end in a unit of time (ns, us, ms, s, min, h)")),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || number.ends_with('.') || fraction.contains('.') || fraction.len() > 18 {
            return Err(wrong("is not a time"));
        }
        let whole: u64 = whole.parse().map_err(|_| wrong("is longer than can be counted"))?;
        let part: u128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| wrong("is not a time"))? };
        let nanos = u128::from(whole) * unit + part * unit / 10u128.pow(fraction.len() as u32);
        match u64::try_from(nanos) {
            Ok(nanos) if nanos <= Nanos::MAX.0 => Ok(Nanos(nanos)),
            _ => Err(wrong("is more than ten years")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_printed() {
        for (text, nanos, printed) in [
            ("3.65 s", 3_650_000_000, "3.65 s"),
            ("15ms", 15_000_000, "15 ms"),
            ("2 min", 120_000_000_000, "120 s"),
            ("0.5 us", 500, "500 ns"),
            ("1 h", 3_600_000_000_000, "3600 s"),
            ("0 s", 0, "0 ns"),
        ] {
            assert_eq!(text.parse(), Ok(Nanos(nanos)), "{text}");
            assert_eq!(Nanos(nanos).to_string(), printed);
        }
    }

    #[test]
    fn what_is_no_time_is_refused_with_a_hint() {
        for text in ["", "s", "3", "-3 s", "1..5 s", "3 sec", "99999999999 h", "1e3 s", "1. s"] {
            let error = text.parse::<Nanos>().unwrap_err();
            assert!(error.contains("write for example"), "{text}: {error}");
        }
    }
}
