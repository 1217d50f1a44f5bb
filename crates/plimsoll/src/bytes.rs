//! A number of bytes, printed and read in binary units: GiB always means 2^30.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};
use std::str::FromStr;

/// A number of bytes.
///
/// It prints in binary units (`1.50 GiB`) and parses what people type (`2GiB`, `512 MiB`, `1.5 GiB`, `4096`).
/// Decimal units are refused rather than guessed.
///
/// ```
/// use plimsoll::Bytes;
/// let line: Bytes = "1.5 GiB".parse()?;
/// assert_eq!(line, Bytes(3 << 29));
/// assert_eq!(line.to_string(), "1.50 GiB");
/// assert_eq!(Bytes::of::<u64>(4), Bytes(32));
/// # Ok::<(), plimsoll::ParseBytesError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);
    /// 2^10 bytes.
    pub const KIB: Bytes = Bytes(1 << 10);
    /// 2^20 bytes.
    pub const MIB: Bytes = Bytes(1 << 20);
    /// 2^30 bytes.
    pub const GIB: Bytes = Bytes(1 << 30);
    /// The largest number of bytes that the ledger can count; what a computation saturates at.
    pub const MAX: Bytes = Bytes(u64::MAX);

    /// What `count` values of `T` take in a slice.
    ///
    /// Saturates at [`Bytes::MAX`], which no budget can serve, so an absurd count is refused and never wraps to a
    /// small one.
    pub const fn of<T>(count: usize) -> Bytes {
        Bytes((size_of::<T>() as u64).saturating_mul(count as u64))
    }

    /// `count` times as many bytes, saturating at [`Bytes::MAX`].
    #[must_use]
    pub const fn times(self, count: u64) -> Bytes {
        Bytes(self.0.saturating_mul(count))
    }

    /// The difference, or zero where `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }

    /// The difference, or `None` where `other` is larger.
    pub const fn checked_sub(self, other: Bytes) -> Option<Bytes> {
        match self.0.checked_sub(other.0) {
            Some(bytes) => Some(Bytes(bytes)),
            None => None,
        }
    }

    /// Whether this is zero bytes.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

/// Saturating, because a sum of sizes that does not fit 64 bits must be refused by the budget, not wrap into it.
impl Add for Bytes {
    type Output = Bytes;

    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(bytes: I) -> Bytes {
        bytes.fold(Bytes::ZERO, Add::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1 << 10 {
            return f.pad(&format!("{} B", self.0));
        }
        let unit = (self.0.ilog2() / 10) as usize;
        let scaled = self.0 as f64 / (1u64 << (10 * unit)) as f64;
        f.pad(&format!("{scaled:.2} {}", UNITS[unit - 1]))
    }
}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Bytes, ParseBytesError> {
        let error = |fault| ParseBytesError { text: text.to_owned(), fault };
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
        let (number, unit) = (&trimmed[..digits], trimmed[digits..].trim());
        let shift = match unit {
            "" | "B" => 0,
            "KiB" => 10,
            "MiB" => 20,
            "GiB" => 30,
            "TiB" => 40,
            _ => return Err(error(Fault::Unit)),
        };
        parse_scaled(number, shift).map(Bytes).map_err(error)
    }
}

/// `number` (digits, at most one point) times 2^`shift`, exactly; a fraction of a byte is cut off.
fn parse_scaled(number: &str, shift: u32) -> Result<u64, Fault> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 || number.ends_with('.') || fraction.contains('.') {
        return Err(Fault::Number);
    }
    let whole: u64 = whole.parse().map_err(|_| Fault::TooLarge)?;
    let fraction_value: u64 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| Fault::Number)? };
    let scaled =
        (u128::from(whole) << shift) + ((u128::from(fraction_value) << shift) / 10u128.pow(fraction.len() as u32));
    u64::try_from(scaled).map_err(|_| Fault::TooLarge)
}

/// A text that is not a number of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseBytesError {
    text: String,
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Number,
    Unit,
    TooLarge,
}

impl fmt::Display for ParseBytesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = match self.fault {
            Fault::Number => "is not a number of bytes",
            Fault::Unit => "does not end in a unit known here (KiB, MiB, GiB, TiB, with these capitals)",
            Fault::TooLarge => "is more than 64 bits can count",
        };
        write!(f, "{:?} {fault}; write for example 2GiB, 512MiB, 1.5GiB or a plain number of bytes", self.text)
    }
}

impl std::error::Error for ParseBytesError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_in_binary_units() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (3 << 29, "1.50 GiB"),
            (1 << 40, "1.00 TiB"),
            (u64::MAX, "16.00 EiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert_eq!(format!("{:>10}", Bytes::KIB), "  1.00 KiB");
    }

    #[test]
    fn reads_what_people_type() {
        for (text, bytes) in
            [("2GiB", 2 << 30), (" 512 MiB ", 512 << 20), ("1.5 GiB", 3 << 29), ("4096", 4096), ("7 B", 7), ("0", 0)]
        {
            assert_eq!(text.parse::<Bytes>().unwrap(), Bytes(bytes), "{text}");
        }
    }

    #[test]
    fn refuses_with_a_hint() {
        for text in
            ["", "GiB", "2G", "2 GB", "2gib", "-1", "1..5GiB", "1.GiB", ".5GiB", "20000000 TiB", "99999999999999999999"]
        {
            let error = text.parse::<Bytes>().unwrap_err();
            assert!(error.to_string().contains("write for example 2GiB"), "{text}: {error}");
        }
    }

    #[test]
    fn sums_saturate() {
        assert_eq!([Bytes::MAX, Bytes(1)].into_iter().sum::<Bytes>(), Bytes::MAX);
        assert_eq!(Bytes::of::<u64>(usize::MAX), Bytes::MAX);
    }
}
