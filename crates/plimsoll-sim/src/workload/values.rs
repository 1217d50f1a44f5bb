//! Sizes, times and distributions, as files write them. What is wrong with one is said where it stands.

use std::fmt;

use plimsoll::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer};

use super::SIZE_MAX;
use crate::Nanos;
use crate::random::Law;

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size(pub(super) u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"15.5 GiB\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                if text.trim_start().starts_with('-') {
                    return Err(E::custom(format!("{text:?} is negative; write a size such as \"15.5 GiB\"")));
                }
                let bytes: Bytes = text.parse().map_err(E::custom)?;
                self.visit_u64(bytes.0)
            }

            fn visit_i64<E: Error>(self, bytes: i64) -> Result<Size, E> {
                let bytes = u64::try_from(bytes);
                bytes
                    .map_err(|_| E::custom("a size cannot be negative; write for example \"15.5 GiB\""))
                    .and_then(|b| self.visit_u64(b))
            }

            fn visit_u64<E: Error>(self, bytes: u64) -> Result<Size, E> {
                if bytes > SIZE_MAX {
                    return Err(E::custom(format!("{bytes} bytes are more than any machine has (1 PiB); write less")));
                }
                Ok(Size(bytes))
            }
        }
        deserializer.deserialize_any(Text)
    }
}

/// A time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Time(pub(super) Nanos);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time with its unit, such as \"3.65 s\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Time, E> {
                text.parse().map(Time).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Text)
    }
}

/// A number from 0 to a most, as billionths.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Ratio(pub(super) f64);

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Ratio, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Ratio;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number from 0 to 1000")
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Ratio, E> {
                if (0.0..=1000.0).contains(&number) {
                    return Ok(Ratio(number));
                }
                Err(E::custom(format!("{number} is not from 0 to 1000")))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Ratio, E> {
                self.visit_f64(number as f64)
            }
        }
        deserializer.deserialize_any(Number)
    }
}

impl Ratio {
    pub(super) fn ppb(self) -> u64 {
        libm::round(self.0 * 1e9) as u64
    }

    pub(super) fn ppm(self) -> u64 {
        libm::round(self.0 * 1e6) as u64
    }
}

/// A distribution of times: one time, or a table that names its law.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spread(pub(super) Law);

impl<'de> Deserialize<'de> for Spread {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Spread, D::Error> {
        #[derive(Deserialize)]
        #[serde(tag = "law", rename_all = "lowercase", deny_unknown_fields)]
        enum Table {
            Fixed { time: Time },
            Uniform { from: Time, to: Time },
            Normal { mean: Time, cv: Ratio },
            LogNormal { mean: Time, cv: Ratio },
            Exponential { mean: Time },
            Empirical { times: Vec<Time> },
        }
        struct TimeOrTable;
        impl<'de> Visitor<'de> for TimeOrTable {
            type Value = Spread;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a time such as \"3.65 s\", or a law such as { law = \"lognormal\", mean = \"3.65 s\", cv = 0.05 }",
                )
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Spread, E> {
                text.parse().map(|time| Spread(Law::Fixed(time))).map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Spread, A::Error> {
                Err(A::Error::custom(
                    "a list of times is written { law = \"empirical\", times = [\"3.6 s\", \"3.7 s\"] }",
                ))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Spread, A::Error> {
                let law = match Table::deserialize(MapAccessDeserializer::new(map))? {
                    Table::Fixed { time } => Law::Fixed(time.0),
                    Table::Uniform { from, to } if from.0 <= to.0 => Law::Uniform(from.0, to.0),
                    Table::Uniform { .. } => {
                        return Err(A::Error::custom("\"from\" is later than \"to\"; write the shorter time first"));
                    }
                    Table::Normal { mean, cv } => Law::Normal(mean.0, cv.0),
                    Table::LogNormal { mean, cv } => Law::LogNormal(mean.0, cv.0),
                    Table::Exponential { mean } => Law::Exponential(mean.0),
                    Table::Empirical { times } if times.is_empty() => {
                        return Err(A::Error::custom(
                            "an empirical law needs a time at least; write times = [\"3.6 s\"]",
                        ));
                    }
                    Table::Empirical { times } => Law::Empirical(times.into_iter().map(|time| time.0).collect()),
                };
                Ok(Spread(law))
            }
        }
        deserializer.deserialize_any(TimeOrTable)
    }
}
