//! Times and sizes in words, and the units of axes.

/// Bytes in binary units.
pub(crate) fn bytes(bytes: u64) -> String {
    plimsoll::Bytes(bytes).to_string()
}

/// A time, as long as it is.
pub(crate) fn time(nanoseconds: u64) -> String {
    let seconds = nanoseconds as f64 / 1e9;
    match nanoseconds {
        0 => "0".to_owned(),
        1..1_000_000 => format!("{:.1} µs", seconds * 1e6),
        1_000_000..1_000_000_000 => format!("{:.1} ms", seconds * 1e3),
        1_000_000_000..600_000_000_000 => format!("{seconds:.2} s"),
        600_000_000_000..36_000_000_000_000 => format!("{:.1} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// The unit of an axis of time this long: nanoseconds in one, and its name.
pub(super) fn time_axis(nanoseconds: u64) -> (f64, &'static str) {
    match nanoseconds {
        0..2_000_000 => (1e3, "µs"),
        2_000_000..2_000_000_000 => (1e6, "ms"),
        2_000_000_000..1_200_000_000_000 => (1e9, "s"),
        1_200_000_000_000..36_000_000_000_000 => (6e10, "min"),
        _ => (3.6e12, "h"),
    }
}

/// The unit of an axis that reaches so many bytes.
pub(super) fn bytes_axis(bytes: u64) -> (f64, &'static str) {
    match bytes {
        0..4096 => (1.0, "B"),
        4096..4_194_304 => (1024.0, "KiB"),
        4_194_304..4_294_967_296 => (1_048_576.0, "MiB"),
        4_294_967_296..4_398_046_511_104 => (1_073_741_824.0, "GiB"),
        _ => (1_099_511_627_776.0, "TiB"),
    }
}
