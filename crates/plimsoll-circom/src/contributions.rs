//! Who took part in a ceremony: of a key, as section 10 of a zkey says, or of powers of tau, as section 7 of a ptau does.
//!
//! A zkey:
//!
//! | bytes | what |
//! |---|---|
//! | 64 | the circuit's hash |
//! | 4 | how many contributions follow |
//! | 96, 96, 96, 192 | of each: δ after it, and three points that prove it |
//! | 64 | the transcript's hash |
//! | 4 | 0 for a contribution, 1 for a beacon |
//! | 4 + n | parameters, each a type and a value; type 1 is a name |
//!
//! A ptau begins with the count. Of each there are the points after it (96, 192, 96, 96, 192 bytes), six points in G1 and three in G2
//! that prove it, a hash's state (216) and the next challenge (64); type and parameters are the same.
//!
//! Nothing of it is verified: `snarkjs zkey verify` and `snarkjs powersoftau verify` do that.

use crate::error::{Part, ReadError};
use crate::fields::Fields;

/// What stands before a contribution's type, in a zkey and in a ptau.
const IN_ZKEY: usize = 3 * 96 + 192 + 64;
const IN_PTAU: usize = (3 * 96 + 2 * 192) + (6 * 96 + 3 * 192) + 216 + 64;
/// The parameter that is a name.
const NAME: u8 = 1;

/// One contribution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contribution {
    /// What the contributor is called there, without characters that would steer a terminal.
    pub name: Option<String>,
    /// Whether it is a random beacon.
    pub beacon: bool,
}

/// Reads the contents of a zkey's section, which must be as long as its counts say.
pub(crate) fn read(section: &[u8]) -> Result<Vec<Contribution>, ReadError> {
    read_section(section, 64, IN_ZKEY)
}

/// The same of a ptau's.
pub(crate) fn read_of_powers(section: &[u8]) -> Result<Vec<Contribution>, ReadError> {
    read_section(section, 0, IN_PTAU)
}

fn read_section(section: &[u8], before: usize, proved: usize) -> Result<Vec<Contribution>, ReadError> {
    let mut fields = Fields::new(section);
    let short =
        |needed: u64| ReadError::Short { section: Part::Contributions, needed, available: section.len() as u64 };
    let head = before as u64 + 4;
    let (Some(_), Some(count)) = (fields.take(before), fields.u32()) else { return Err(short(head)) };
    let needed = head + u64::from(count) * (proved + 8) as u64;
    if needed > section.len() as u64 {
        return Err(short(needed));
    }
    let mut contributions = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let contribution = next(&mut fields, proved).ok_or_else(|| short(section.len() as u64 + 1))?;
        contributions.push(contribution);
    }
    if fields.left() > 0 {
        let (expected, found) = (fields.position() as u64, section.len() as u64);
        return Err(ReadError::Length { section: Part::Contributions, expected, found });
    }
    Ok(contributions)
}

fn next(fields: &mut Fields<'_>, proved: usize) -> Option<Contribution> {
    fields.take(proved)?;
    let beacon = fields.u32()? == 1;
    let len = fields.u32()?;
    let parameters = fields.take(usize::try_from(len).ok()?)?;
    Some(Contribution { name: name(parameters), beacon })
}

/// The name comes first where there is one.
fn name(parameters: &[u8]) -> Option<String> {
    let mut fields = Fields::new(parameters);
    let [NAME, len] = fields.array()? else { return None };
    let name = String::from_utf8_lossy(fields.take(len.into())?);
    Some(name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(count: u32, of: &[(u32, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![7; 64];
        bytes.extend_from_slice(&count.to_le_bytes());
        for (kind, parameters) in of {
            bytes.extend_from_slice(&[9; IN_ZKEY]);
            bytes.extend_from_slice(&kind.to_le_bytes());
            bytes.extend_from_slice(&(parameters.len() as u32).to_le_bytes());
            bytes.extend_from_slice(parameters);
        }
        bytes
    }

    #[test]
    fn names_are_read_and_steer_nothing() {
        let bytes = section(3, &[(0, b"\x01\x04Eve\x1b"), (1, b"\x02\x0a"), (0, b"")]);
        let contribution = |name: Option<&str>, beacon| Contribution { name: name.map(str::to_owned), beacon };
        let expected = [contribution(Some("Eve\u{fffd}"), false), contribution(None, true), contribution(None, false)];
        assert_eq!(read(&bytes), Ok(expected.to_vec()));
    }

    #[test]
    fn those_of_powers_have_more_before_their_names() {
        let mut bytes = 1_u32.to_le_bytes().to_vec();
        bytes.extend_from_slice(&[9; 2104]);
        bytes.extend_from_slice(&[1, 0, 0, 0, 5, 0, 0, 0]);
        bytes.extend_from_slice(b"\x01\x03Ann");
        assert_eq!(read_of_powers(&bytes), Ok(vec![Contribution { name: Some("Ann".to_owned()), beacon: true }]));
        assert!(read(&bytes).is_err() && read_of_powers(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn counts_that_lie_are_told() {
        let short = |result| matches!(result, Err(ReadError::Short { .. }));
        assert!(short(read(&[])));
        assert!(short(read(&section(u32::MAX, &[]))));
        let whole = section(1, &[(0, b"\x01\x01A")]);
        for len in 0..whole.len() {
            assert!(read(&whole[..len]).is_err(), "{len}");
        }
        assert!(matches!(read(&section(0, &[(0, b"")])), Err(ReadError::Length { .. })));
        // A name that is longer than its parameters is none.
        assert_eq!(read(&section(1, &[(0, b"\x01\xffA")])).expect("sound")[0].name, None);
    }
}
