//! The points of a key: a window at a time, from the file into place.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicUsize, Ordering};

use blstrs::{G1Affine, G2Affine};
use group::prime::PrimeCurveAffine;
use plimsoll::pool;
use plimsoll_groth16::keys::{HBasis, HQuery, PointFault, ProvingKey, VerifyingKey};
use plimsoll_groth16::r1cs::{Density, R1cs};
use sha2::{Digest, Sha256};

use super::{KeyDigest, RootRatio, ZkeyFile};
use crate::error::{Part, ReadError};
use crate::map::Pages;
use crate::points::{FilePoint, point};

/// What takes points, with the first's index.
type Sink<'a, P> = dyn FnMut(usize, &[P]) -> Result<(), ReadError> + 'a;

/// What is looked at before its pages are released.
const WINDOW_BYTES: usize = 1 << 20;
/// How many points a task parses; half a millisecond.
const POINTS_PER_TASK: usize = 1024;
/// How many points a task checks for the subgroup; a few milliseconds.
const CHECKS_PER_TASK: usize = 64;
/// How many are checked between two looks at whether to go on: half a second at most.
const CHECKED_TOGETHER: usize = 1 << 14;

/// How much loading a key takes, from the file's counts and the circuit's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPlan {
    /// What the key takes once it is loaded.
    pub resident_bytes: u64,
    /// What loading takes beside it: a window of the file, a copy of it, and its points.
    pub scratch_bytes: u64,
    /// What is in memory of a key that stays in its file ([`ZkeyFile::scan_key`]).
    pub stream_bytes: u64,
}

impl ZkeyFile<'_> {
    /// What [`ZkeyFile::read_key`] takes.
    pub fn plan(&self, r1cs: &R1cs) -> KeyPlan {
        let header = self.header();
        let (signals, public) = (u64::from(header.signals), u64::from(header.public));
        let (a, b) = (r1cs.a_density().total() as u64, r1cs.b_density().total() as u64);
        let g1 = (public + 1) + u64::from(header.domain) + (signals - public - 1) + a + b;
        KeyPlan {
            resident_bytes: g1 * size_of::<G1Affine>() as u64 + b * size_of::<G2Affine>() as u64,
            scratch_bytes: 3 * WINDOW_BYTES as u64,
            stream_bytes: self.stream_resident_bytes(),
        }
    }

    /// Loads the key, on all threads of the current pool, in the form that every prover here takes: points of A and B only for the
    /// signals that occur there, h in the order of our root of unity.
    ///
    /// Every point is found to be on the curve. Whether each is in the subgroup, [`check_subgroups`] finds, unless the digest is
    /// that of a key that was checked before.
    ///
    /// # Errors
    /// A point that is none of the curve, or one of a signal that does not occur and is not infinity.
    ///
    /// # Panics
    /// When `r1cs` is not this file's shape.
    pub fn read_key(&self, r1cs: &R1cs, pages: &dyn Pages) -> Result<(ProvingKey, KeyDigest), ReadError> {
        assert_eq!(r1cs.variables(), self.header().signals as usize, "the shape is this file's");
        let mut windows = Windows::new(self, pages);
        let g1 = |range: &Range<usize>| range.len() / G1Affine::BYTES;

        let constants = windows.constants()?;
        let mut ic = vec![G1Affine::identity(); g1(&self.ic)];
        windows.dense(Part::Ic, &self.ic, &mut ic)?;
        let mut h = vec![G1Affine::identity(); g1(&self.h)];
        let (ratio, n) = (RootRatio::snarkjs(), h.len());
        windows.each::<G1Affine>(Part::H, &self.h, &mut |first, points| {
            for (i, point) in points.iter().enumerate() {
                h[ratio.odd_place(first + i, n)] = *point;
            }
            Ok(())
        })?;
        let mut l = vec![G1Affine::identity(); g1(&self.l)];
        windows.dense(Part::L, &self.l, &mut l)?;
        let a = windows.sparse::<G1Affine>(Part::A, &self.a, r1cs.a_density())?;
        let b_g1 = windows.sparse::<G1Affine>(Part::BG1, &self.b_g1, r1cs.b_density())?;
        let b_g2 = windows.sparse::<G2Affine>(Part::BG2, &self.b_g2, r1cs.b_density())?;

        let digest = KeyDigest::finish(windows.hasher);
        let vk = VerifyingKey { ic, ..constants };
        Ok((ProvingKey { vk, h: HQuery { basis: HBasis::OddCosetLagrange, points: h }, l, a, b_g1, b_g2 }, digest))
    }

    /// The verifying key alone: α, β, γ, δ and the input points, every point checked for curve and subgroup.
    ///
    /// # Errors
    /// A point that is none of its group, or infinity among α, β, γ, δ.
    pub fn read_verifying_key(&self, pages: &dyn Pages) -> Result<VerifyingKey, ReadError> {
        let mut windows = Windows::new(self, pages);
        let constants = windows.constants()?;
        let mut ic = vec![G1Affine::identity(); self.ic.len() / G1Affine::BYTES];
        windows.dense(Part::Ic, &self.ic, &mut ic)?;
        let vk = VerifyingKey { ic, ..constants };
        check_constants(&vk)?;
        let total = vk.ic.len();
        Check { done: 0, total, on_checked: &mut |_, _| ControlFlow::Continue(()) }.all(Part::Ic, 0, &vk.ic)?;
        Ok(vk)
    }
}

/// Reads the file through a copy of one window, so that what is hashed is what is used.
pub(super) struct Windows<'f, 'a> {
    file: &'f ZkeyFile<'a>,
    pages: &'f dyn Pages,
    hasher: Sha256,
    copy: Vec<u8>,
}

impl<'f, 'a> Windows<'f, 'a> {
    pub(super) fn new(file: &'f ZkeyFile<'a>, pages: &'f dyn Pages) -> Self {
        Self { file, pages, hasher: KeyDigest::start(), copy: vec![0; WINDOW_BYTES] }
    }

    /// What was hashed so far.
    pub(super) fn into_hasher(self) -> Sha256 {
        self.hasher
    }

    /// α, β, γ, δ, without any input points.
    pub(super) fn constants(&mut self) -> Result<VerifyingKey, ReadError> {
        // The counts are vouched for as well.
        let start = self.file.constants.start;
        let header = self.file.constants.start - 12..self.file.constants.end;
        let mut bytes = vec![0; header.len()];
        self.pages.copy(self.file.bytes(), header.start, &mut bytes)?;
        let counts = [self.file.header.signals, self.file.header.public, self.file.header.domain];
        // The file was parsed before: in between somebody may have written to it.
        if bytes[..12] != counts.map(u32::to_le_bytes).concat() {
            return Err(ReadError::Changed);
        }
        self.hasher.update(&bytes);
        let mut at = self.file.constants.start - start + 12;
        let mut next = |index, len: usize| {
            at += len;
            (index, &bytes[at - len..at])
        };
        fn constant<P: FilePoint>((index, bytes): (usize, &[u8])) -> Result<P, ReadError> {
            let fault = |fault| ReadError::Point { section: Part::Constants, index, fault };
            let point = point::<P>(bytes).map_err(fault)?;
            if point.is_identity().into() { Err(fault(PointFault::Infinity)) } else { Ok(point) }
        }
        let (g1, g2) = (G1Affine::BYTES, G2Affine::BYTES);
        Ok(VerifyingKey {
            alpha_g1: constant(next(0, g1))?,
            beta_g1: constant(next(1, g1))?,
            beta_g2: constant(next(2, g2))?,
            gamma_g2: constant(next(3, g2))?,
            delta_g1: constant(next(4, g1))?,
            delta_g2: constant(next(5, g2))?,
            ic: Vec::new(),
        })
    }

    /// Gives the points of a section to `sink`, some at a time, with the first's index.
    fn each<P: FilePoint>(
        &mut self,
        section: Part,
        range: &Range<usize>,
        sink: &mut Sink<'_, P>,
    ) -> Result<(), ReadError> {
        let per_window = WINDOW_BYTES / P::BYTES;
        let mut points = vec![P::identity(); per_window.min(range.len() / P::BYTES)];
        for (window, first) in range.clone().step_by(per_window * P::BYTES).zip((0..).step_by(per_window)) {
            let window = window..(window + per_window * P::BYTES).min(range.end);
            let copy = &mut self.copy[..window.len()];
            self.pages.copy(self.file.bytes(), window.start, copy)?;
            self.hasher.update(&*copy);
            let points = &mut points[..copy.len() / P::BYTES];
            parse_points(copy, points, point).map_err(|(index, fault)| ReadError::Point {
                section,
                index: first + index,
                fault,
            })?;
            sink(first, points)?;
        }
        Ok(())
    }

    /// All points of a section.
    pub(super) fn dense<P: FilePoint>(
        &mut self,
        section: Part,
        range: &Range<usize>,
        out: &mut [P],
    ) -> Result<(), ReadError> {
        self.each::<P>(section, range, &mut |first, points| {
            out[first..first + points.len()].copy_from_slice(points);
            Ok(())
        })
    }

    /// Those of the signals that occur; the others are infinity.
    fn sparse<P: FilePoint>(
        &mut self,
        section: Part,
        range: &Range<usize>,
        density: &Density,
    ) -> Result<Vec<P>, ReadError> {
        let mut out = Vec::with_capacity(density.total());
        self.each::<P>(section, range, &mut |first, points| {
            for (i, point) in points.iter().enumerate() {
                let index = first + i;
                if density.contains(index) {
                    out.push(*point);
                } else if !bool::from(point.is_identity()) {
                    return Err(ReadError::Unused { section, index });
                }
            }
            Ok(())
        })?;
        Ok(out)
    }
}

/// Parses points, each with `parse`, on all threads of the current pool, or tells the first that is none.
pub(super) fn parse_points<P: FilePoint>(
    bytes: &[u8],
    points: &mut [P],
    parse: impl Fn(&[u8]) -> Result<P, PointFault> + Sync,
) -> Result<(), (usize, PointFault)> {
    let parse = |index: usize| parse(&bytes[index * P::BYTES..(index + 1) * P::BYTES]);
    let first_bad = AtomicUsize::new(usize::MAX);
    pool::for_each_chunk(points, POINTS_PER_TASK, |first, points| {
        for (i, place) in points.iter_mut().enumerate() {
            match parse(first + i) {
                Ok(point) => *place = point,
                // Relaxed: the end of the loop is what makes it known.
                Err(_) => _ = first_bad.fetch_min(first + i, Ordering::Relaxed),
            }
        }
    });
    match first_bad.into_inner() {
        usize::MAX => Ok(()),
        index => Err((index, parse(index).err().unwrap_or(PointFault::NotCanonical))),
    }
}

/// Called now and then with the points checked so far and all there are; `Break` ends the check.
pub type OnChecked<'a> = &'a mut dyn FnMut(usize, usize) -> ControlFlow<()>;

/// Checks that every point of a key is in the group of prime order, on all threads of the current pool.
///
/// # Errors
/// The first that is not, by section and by its place in the key; [`ReadError::Stopped`].
pub fn check_subgroups(key: &ProvingKey, on_checked: OnChecked<'_>) -> Result<(), ReadError> {
    let g1 = [
        (Part::Ic, &key.vk.ic),
        (Part::H, &key.h.points),
        (Part::L, &key.l),
        (Part::A, &key.a),
        (Part::BG1, &key.b_g1),
    ];
    let total = g1.iter().map(|(_, points)| points.len()).sum::<usize>() + key.b_g2.len();
    let mut check = Check { done: 0, total, on_checked };
    check_constants(&key.vk)?;
    for (section, points) in g1 {
        check.all(section, 0, points)?;
    }
    check.all(Part::BG2, 0, &key.b_g2)
}

pub(super) struct Check<'a> {
    pub(super) done: usize,
    pub(super) total: usize,
    pub(super) on_checked: OnChecked<'a>,
}

impl Check<'_> {
    /// Checks points of a section, the first of which is number `first` there.
    pub(super) fn all<P: FilePoint>(&mut self, section: Part, first: usize, points: &[P]) -> Result<(), ReadError> {
        for (slab, points) in points.chunks(CHECKED_TOGETHER).enumerate() {
            let bad = pool::map_indices(points.len().div_ceil(CHECKS_PER_TASK), |task| {
                let range = task * CHECKS_PER_TASK..((task + 1) * CHECKS_PER_TASK).min(points.len());
                range.into_iter().find(|&index| !points[index].in_subgroup())
            });
            if let Some(index) = bad.into_iter().flatten().next() {
                let (index, fault) = (first + slab * CHECKED_TOGETHER + index, PointFault::NotInSubgroup);
                return Err(ReadError::Point { section, index, fault });
            }
            self.done += points.len();
            if (self.on_checked)(self.done, self.total).is_break() {
                return Err(ReadError::Stopped);
            }
        }
        Ok(())
    }
}

pub(super) fn check_constants(vk: &VerifyingKey) -> Result<(), ReadError> {
    let fault = |index| ReadError::Point { section: Part::Constants, index, fault: PointFault::NotInSubgroup };
    for (index, point) in [(0, &vk.alpha_g1), (1, &vk.beta_g1), (4, &vk.delta_g1)] {
        point.in_subgroup().then_some(()).ok_or(fault(index))?;
    }
    for (index, point) in [(2, &vk.beta_g2), (3, &vk.gamma_g2), (5, &vk.delta_g2)] {
        point.in_subgroup().then_some(()).ok_or(fault(index))?;
    }
    Ok(())
}
