use std::io::Cursor;
use std::ops::ControlFlow;

use blstrs::{G1Affine, G2Affine};

use super::points::{KeyPoint, decode};
use super::*;
use crate::setup::{ToxicWaste, generate, generate_from};
use crate::test_circuits::{Quirks, Squarings, TestCircuit, rng};

fn key_of(circuit: impl TestCircuit) -> ProvingKey {
    let r1cs = R1cs::from_circuit(circuit).expect("shape");
    generate(&r1cs, &mut rng(9), &|_| ControlFlow::Continue(())).expect("key")
}

fn file_of(key: &ProvingKey) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.write(&mut bytes).expect("a vector takes everything");
    bytes
}

fn read(bytes: &[u8], checked: Checked) -> Result<ProvingKey, KeyReadError> {
    ProvingKey::scan_and_read(Cursor::new(bytes), checked)
}

/// Where a section's count starts, in the order of the file.
fn count_offset(header: &KeyHeader, section: Section) -> usize {
    let found = header.queries().into_iter().find(|(query, ..)| *query == section);
    found.expect("the constants have no count").1 as usize - 4
}

const COUNTED: [Section; 6] = [Section::Ic, Section::H, Section::L, Section::A, Section::BG1, Section::BG2];

/// A point of the curve with a small x that is not in the subgroup (hardly any is).
fn outside_g1() -> G1Affine {
    (1_u8..)
        .filter_map(|x| {
            let mut bytes = [0; 48];
            (bytes[0], bytes[47]) = (0x80, x);
            Option::<G1Affine>::from(G1Affine::from_compressed_unchecked(&bytes))
        })
        .find(|point| bool::from(point.is_on_curve()) && !bool::from(point.is_torsion_free()))
        .expect("one of the first 255")
}

fn outside_g2() -> G2Affine {
    (1_u8..)
        .filter_map(|x| {
            let mut bytes = [0; 96];
            (bytes[0], bytes[95]) = (0x80, x);
            Option::<G2Affine>::from(G2Affine::from_compressed_unchecked(&bytes))
        })
        .find(|point| bool::from(point.is_on_curve()) && !bool::from(point.is_torsion_free()))
        .expect("one of the first 255")
}

#[test]
fn a_key_survives_its_file() {
    // More points than fit in one chunk, and than one task parses.
    let key = key_of(Squarings { start: None, steps: 12_000 });
    let file = file_of(&key);
    let header = KeyHeader::scan(&mut Cursor::new(&file)).expect("header");
    assert_eq!(header.file_bytes(), file.len() as u64);
    assert_eq!(header.resident_bytes(), key.resident_bytes());
    let read = read(&file, Checked::No).expect("our own file");
    assert!(read == key);
    assert_eq!(read.resident_bytes(), header.resident_bytes(), "nothing more was allocated than announced");
    let mut vk = Vec::new();
    key.vk.write(&mut vk).expect("written");
    assert_eq!(vk[..], file[..vk.len()]);
    assert!(VerifyingKey::read(Cursor::new(&vk)).expect("our own file") == key.vk);
}

#[test]
fn a_truncated_file_is_refused_at_every_length() {
    let file = file_of(&key_of(Quirks(None)));
    assert!(read(&file, Checked::Yes).is_ok());
    for len in 0..file.len() {
        let error = read(&file[..len], Checked::No).expect_err("truncated");
        assert!(matches!(error, KeyReadError::Truncated { .. }), "{len} bytes: {error}");
    }
    let longer = [&file[..], &[0]].concat();
    assert!(matches!(read(&longer, Checked::No), Err(KeyReadError::TrailingBytes { extra: 1 })));
}

#[test]
fn a_flipped_bit_is_noticed_anywhere() {
    let file = file_of(&key_of(Quirks(None)));
    for position in 0..file.len() {
        let mut damaged = file.clone();
        damaged[position] ^= 1 << (position % 8);
        assert!(read(&damaged, Checked::No).is_err(), "byte {position} of {}", file.len());
    }
}

#[test]
fn an_absurd_count_names_the_section() {
    let file = file_of(&key_of(Quirks(None)));
    let header = KeyHeader::scan(&mut Cursor::new(&file)).expect("header");
    for section in COUNTED {
        for count in [u32::MAX, 1 << 31, 1 << 20] {
            let mut damaged = file.clone();
            let offset = count_offset(&header, section);
            damaged[offset..offset + 4].copy_from_slice(&count.to_be_bytes());
            match read(&damaged, Checked::No) {
                Err(KeyReadError::Truncated { section: named, needed, .. }) => {
                    assert_eq!(named, section);
                    assert!(needed >= u64::from(count) * 96);
                }
                other => panic!("section {section}: {other:?}"),
            }
        }
    }
    let mut damaged = file;
    let offset = count_offset(&header, Section::Ic);
    damaged[offset..offset + 4].fill(0);
    assert!(matches!(read(&damaged, Checked::No), Err(KeyReadError::NoInputs)));
}

#[test]
fn a_file_that_changes_after_the_scan_is_noticed_before_allocation() {
    let file = file_of(&key_of(Quirks(None)));
    let header = KeyHeader::scan(&mut Cursor::new(&file)).expect("header");
    for section in COUNTED {
        let mut damaged = file.clone();
        let offset = count_offset(&header, section);
        damaged[offset] = 0xff;
        match ProvingKey::read(&damaged[..], &header, Checked::No) {
            Err(KeyReadError::Changed { section: named, .. }) => assert_eq!(named, section),
            other => panic!("section {section}: {other:?}"),
        }
    }
}

#[test]
fn a_point_that_does_not_belong_is_named() {
    let file = file_of(&key_of(Quirks(None)));
    let header = KeyHeader::scan(&mut Cursor::new(&file)).expect("header");
    let mut infinity = vec![0; 192];
    infinity[0] = 0x40;
    let with = |section: Section, index: usize, bytes: &[u8]| {
        let point_bytes = if section == Section::BG2 { 192 } else { 96 };
        let offset = count_offset(&header, section) + 4 + index * point_bytes;
        let mut damaged = file.clone();
        damaged[offset..offset + point_bytes].copy_from_slice(&bytes[..point_bytes]);
        damaged
    };
    for section in COUNTED {
        let outside = if section == Section::BG2 {
            outside_g2().to_uncompressed().to_vec()
        } else {
            outside_g1().to_uncompressed().to_vec()
        };
        let compressed = {
            let mut bytes = outside.clone();
            bytes[0] |= 0x80;
            bytes
        };
        let mut off_curve = outside.clone();
        *off_curve.last_mut().expect("not empty") ^= 1;
        let faults = [
            (&outside, PointFault::NotInSubgroup),
            (&infinity, PointFault::Infinity),
            (&compressed, PointFault::NotCanonical),
            (&off_curve, PointFault::NotOnCurve),
        ];
        for (bytes, expected) in faults {
            match read(&with(section, 1, bytes), Checked::Yes) {
                Err(KeyReadError::Point { section: named, index: 1, fault }) => {
                    assert_eq!((named, fault), (section, expected));
                }
                other => panic!("section {section}, {expected}: {other:?}"),
            }
        }
        // A trusted file is not checked for the subgroup.
        assert!(read(&with(section, 1, &outside), Checked::No).is_ok());
    }
}

#[test]
fn a_coordinate_that_is_not_reduced_is_not_canonical() {
    // x + p for a point with a small x fits in 381 bits and means the same point.
    let point = outside_g1();
    let mut bytes = point.to_uncompressed();
    assert_eq!(decode::<G1Affine>(&bytes, Checked::No), Ok(point));
    let mut carry = 0;
    for (byte, modulus) in bytes[..48].iter_mut().zip(points::MODULUS).rev() {
        let sum = u16::from(*byte) + u16::from(modulus) + carry;
        (*byte, carry) = (sum as u8, sum >> 8);
    }
    assert_eq!(decode::<G1Affine>(&bytes, Checked::No), Err(PointFault::NotCanonical));
}

#[test]
fn encodings_are_as_long_as_points_in_memory() {
    // What makes `resident_bytes` a function of the file.
    assert_eq!(size_of::<G1Affine>(), G1Affine::ENCODED_BYTES);
    assert_eq!(size_of::<G2Affine>(), G2Affine::ENCODED_BYTES);
}

#[test]
fn only_powers_of_tau_are_written() {
    let r1cs = R1cs::from_circuit(Quirks(None)).expect("shape");
    let toxic = ToxicWaste::random(&mut rng(9));
    let key = generate_from(&r1cs, &toxic, HBasis::OddCosetLagrange, &|_| ControlFlow::Continue(())).expect("key");
    assert!(matches!(key.write(Vec::new()), Err(KeyWriteError::Basis { basis: HBasis::OddCosetLagrange })));
}

#[test]
fn a_failing_reader_is_reported_with_the_section() {
    struct Failing<'a>(&'a [u8]);
    impl Read for Failing<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Err(io::Error::other("the disk is on fire"));
            }
            self.0.read(out)
        }
    }
    let file = file_of(&key_of(Quirks(None)));
    let header = KeyHeader::scan(&mut Cursor::new(&file)).expect("header");
    let up_to_l = count_offset(&header, Section::L) + 10;
    let result = ProvingKey::read(Failing(&file[..up_to_l]), &header, Checked::No);
    assert!(matches!(result, Err(KeyReadError::Io { section: Section::L, .. })), "{result:?}");
}

#[test]
fn a_key_put_together_from_two_is_found() {
    let (key, other) = (key_of(Squarings { start: None, steps: 300 }), key_of(Quirks(None)));
    let check = |key: &ProvingKey| key.check_equations(&mut rand_core::OsRng).map_err(|broken| broken.relation);
    assert_eq!((check(&key), check(&other)), (Ok(()), Ok(())));
    let mut mixed = key.clone();
    mixed.vk.beta_g1 = other.vk.delta_g1;
    assert!(check(&mixed).is_err_and(|relation| relation.contains("beta")));
    let mut mixed = key.clone();
    mixed.vk.delta_g2 = other.vk.beta_g2;
    assert!(check(&mixed).is_err_and(|relation| relation.contains("delta")));
    let mut mixed = key.clone();
    mixed.b_g1.swap(0, 200);
    assert!(check(&mixed).is_err_and(|relation| relation.contains("B is the same")));
    let mut mixed = key;
    mixed.b_g1.pop();
    assert!(check(&mixed).is_err_and(|relation| relation.contains("as many")));
}
