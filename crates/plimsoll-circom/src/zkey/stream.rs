//! A key that stays in its file: points are read anew for each proof, a window at a time.
//!
//! [`ZkeyFile::scan_key`] goes through the file once: every point is found to be on the curve, and the digest is the one that
//! [`ZkeyFile::read_key`] makes. Beside it each window is hashed by itself. Whoever reads a window later copies it, compares its hash,
//! and parses the copy: so the points that are used are those that were checked, whatever somebody writes to the file meanwhile.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use blstrs::{G1Affine, G2Affine};
use group::prime::PrimeCurveAffine;
use plimsoll_groth16::keys::{HBasis, KeyStream, Query, StreamError, VerifyingKey};
use plimsoll_groth16::r1cs::{Density, R1cs};
use sha2::{Digest, Sha256};

use super::load::{Check, Windows, check_constants, parse_points};
use super::{KeyDigest, OnChecked, RootRatio, ZkeyFile};
use crate::error::{Part, ReadError};
use crate::map::{MappedFile, Pages};
use crate::points::{FilePoint, known_point, point};

/// Points of a window: 384 KiB of G1, 768 of G2.
const WINDOW_POINTS: usize = 1 << 12;

/// The digest of a window.
type WindowDigest = [u8; 32];

/// Points in a file, and what vouches for them.
#[derive(Clone, Debug)]
struct FileQuery {
    part: Part,
    range: Range<usize>,
    windows: Vec<WindowDigest>,
}

/// A key in its file. See [`KeyStream`].
pub struct ZkeyStream {
    map: Arc<MappedFile>,
    vk: VerifyingKey,
    h: FileQuery,
    l: FileQuery,
    a: FileQuery,
    b_g1: FileQuery,
    b_g2: FileQuery,
    ratio: RootRatio,
    window_points: usize,
}

impl ZkeyFile<'_> {
    /// Goes through the key once, on all threads of the current pool, holding a window and its points at a time.
    ///
    /// As with [`ZkeyFile::read_key`], whether each point is in the subgroup remains to be asked ([`ZkeyStream::check_subgroups`]).
    ///
    /// # Errors
    /// A point that is none of the curve, or one of a signal that does not occur and is not infinity.
    ///
    /// # Panics
    /// When `r1cs` is not this file's shape, or `map` not the file.
    pub fn scan_key(&self, r1cs: &R1cs, map: &Arc<MappedFile>) -> Result<(ZkeyStream, KeyDigest), ReadError> {
        self.scan_by(r1cs, map, WINDOW_POINTS)
    }

    pub(super) fn scan_by(
        &self,
        r1cs: &R1cs,
        map: &Arc<MappedFile>,
        window_points: usize,
    ) -> Result<(ZkeyStream, KeyDigest), ReadError> {
        assert_eq!(r1cs.variables(), self.header().signals as usize, "the shape is this file's");
        assert_eq!(self.bytes().as_ptr(), map.as_ptr(), "the map is this file's");
        let mut windows = Windows::new(self, &**map);
        let constants = windows.constants()?;
        let mut ic = vec![G1Affine::identity(); self.ic.len() / G1Affine::BYTES];
        windows.dense(Part::Ic, &self.ic, &mut ic)?;
        let vk = VerifyingKey { ic, ..constants };
        let mut scan = Scan { hasher: windows.into_hasher(), file: self, window_points };
        // In the order in which a key is read, so that its digest is the same.
        let h = scan.query::<G1Affine>(Part::H, &self.h, None)?;
        let l = scan.query::<G1Affine>(Part::L, &self.l, None)?;
        let a = scan.query::<G1Affine>(Part::A, &self.a, Some(r1cs.a_density()))?;
        let b_g1 = scan.query::<G1Affine>(Part::BG1, &self.b_g1, Some(r1cs.b_density()))?;
        let b_g2 = scan.query::<G2Affine>(Part::BG2, &self.b_g2, Some(r1cs.b_density()))?;
        let digest = KeyDigest::finish(scan.hasher);
        let ratio = RootRatio::snarkjs();
        Ok((ZkeyStream { map: map.clone(), vk, h, l, a, b_g1, b_g2, ratio, window_points }, digest))
    }

    /// What a scanned key holds in memory: input points and the windows' digests.
    pub fn stream_resident_bytes(&self) -> u64 {
        let windows = |points: u64| points.div_ceil(WINDOW_POINTS as u64) * size_of::<WindowDigest>() as u64;
        let header = self.header();
        let (signals, public) = (u64::from(header.signals), u64::from(header.public));
        let digests = windows(header.domain.into()) + windows(signals - public - 1) + 3 * windows(signals);
        (public + 1) * size_of::<G1Affine>() as u64 + digests
    }
}

impl ZkeyStream {
    /// The points of a window, by which pieces are counted.
    pub const WINDOW_POINTS: usize = WINDOW_POINTS;

    /// What reading takes for itself: the copy of a window.
    pub const READ_BYTES: u64 = (WINDOW_POINTS * G2Affine::BYTES) as u64;

    /// What scanning, checking and reading hold for themselves, whichever is under way: the copy of a window, and its points where
    /// nobody hands in room for them.
    pub const SCRATCH_BYTES: u64 = 2 * (WINDOW_POINTS * G2Affine::BYTES) as u64 + (2 << 20);

    /// Checks that every point is in the group of prime order, on all threads of the current pool.
    ///
    /// # Errors
    /// The first that is not, by section and by its place in the file; [`ReadError::Stopped`].
    pub fn check_subgroups(&self, on_checked: OnChecked<'_>) -> Result<(), ReadError> {
        check_constants(&self.vk)?;
        let g1 = [&self.h, &self.l, &self.a, &self.b_g1];
        let total = self.vk.ic.len()
            + g1.iter().map(|query| query.points::<G1Affine>()).sum::<usize>()
            + self.b_g2.points::<G2Affine>();
        let mut check = Check { done: 0, total, on_checked };
        check.all(Part::Ic, 0, &self.vk.ic)?;
        for query in g1 {
            self.check::<G1Affine>(query, &mut check)?;
        }
        self.check::<G2Affine>(&self.b_g2, &mut check)
    }

    fn check<P: FilePoint>(&self, query: &FileQuery, check: &mut Check<'_>) -> Result<(), ReadError> {
        let total = query.points::<P>();
        let mut points = vec![P::identity(); self.window_points.min(total)];
        for first in (0..total).step_by(self.window_points) {
            let points = &mut points[..self.window_points.min(total - first)];
            self.read(query, first, points)?;
            check.all(query.part, first, points)?;
        }
        Ok(())
    }

    /// Reads whole windows: each is copied, its copy compared, and the copy parsed.
    fn read<P: FilePoint>(&self, query: &FileQuery, first: usize, out: &mut [P]) -> Result<(), ReadError> {
        assert_eq!(first % self.window_points, 0, "windows are read whole");
        assert!(
            out.len().is_multiple_of(self.window_points) || first + out.len() == query.points::<P>(),
            "windows are read whole"
        );
        let mut copy = vec![0; P::BYTES * self.window_points.min(out.len())];
        for (i, out) in out.chunks_mut(self.window_points).enumerate() {
            let window = first / self.window_points + i;
            let start = query.range.start + window * self.window_points * P::BYTES;
            let bytes = start..start + out.len() * P::BYTES;
            let copy = &mut copy[..bytes.len()];
            self.map.copy(&self.map, bytes.start, copy)?;
            if WindowDigest::from(Sha256::digest(&*copy)) != query.windows[window] {
                return Err(ReadError::Changed);
            }
            // These are the bytes of which the scan found that they are points of the curve.
            let parsed = parse_points(copy, out, known_point);
            parsed.map_err(|(index, fault)| ReadError::Point {
                section: query.part,
                index: window * self.window_points + index,
                fault,
            })?;
        }
        Ok(())
    }

    fn query(&self, query: Query) -> &FileQuery {
        match query {
            Query::H => &self.h,
            Query::L => &self.l,
            Query::A => &self.a,
            Query::B => &self.b_g1,
        }
    }

    /// What is in memory of it.
    pub fn resident_bytes(&self) -> u64 {
        let queries = [&self.h, &self.l, &self.a, &self.b_g1, &self.b_g2];
        let digests: usize = queries.iter().map(|query| query.windows.capacity() * size_of::<WindowDigest>()).sum();
        (self.vk.ic.capacity() * size_of::<G1Affine>() + digests) as u64
    }

    /// What of the file is read for each proof.
    pub fn streamed_bytes(&self) -> u64 {
        [&self.h, &self.l, &self.a, &self.b_g1, &self.b_g2].iter().map(|query| query.range.len() as u64).sum()
    }
}

impl KeyStream for ZkeyStream {
    fn verifying_key(&self) -> &VerifyingKey {
        &self.vk
    }

    fn basis(&self) -> HBasis {
        HBasis::OddCosetLagrange
    }

    fn points(&self, query: Query) -> usize {
        self.query(query).points::<G1Affine>()
    }

    fn window_points(&self) -> usize {
        self.window_points
    }

    fn scratch_bytes(&self) -> u64 {
        // The copy of a window.
        (self.window_points * G2Affine::BYTES) as u64
    }

    fn h_place(&self, index: usize) -> usize {
        self.ratio.odd_place(index, self.h.points::<G1Affine>())
    }

    fn read_g1(&self, query: Query, first: usize, out: &mut [G1Affine]) -> Result<(), StreamError> {
        Ok(self.read(self.query(query), first, out)?)
    }

    fn read_g2(&self, first: usize, out: &mut [G2Affine]) -> Result<(), StreamError> {
        Ok(self.read(&self.b_g2, first, out)?)
    }
}

impl fmt::Debug for ZkeyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkeyStream").field("h", &self.h.points::<G1Affine>()).finish_non_exhaustive()
    }
}

impl FileQuery {
    fn points<P: FilePoint>(&self) -> usize {
        self.range.len() / P::BYTES
    }
}

/// The first walk through the file.
struct Scan<'f, 'a> {
    hasher: Sha256,
    file: &'f ZkeyFile<'a>,
    window_points: usize,
}

impl Scan<'_, '_> {
    fn query<P: FilePoint>(
        &mut self,
        part: Part,
        range: &Range<usize>,
        density: Option<&Density>,
    ) -> Result<FileQuery, ReadError> {
        let window_bytes = self.window_points * P::BYTES;
        let mut windows = Vec::with_capacity(range.len().div_ceil(window_bytes));
        let mut copy = vec![0; window_bytes.min(range.len())];
        let mut points = vec![P::identity(); copy.len() / P::BYTES];
        for start in range.clone().step_by(window_bytes) {
            let window = start..(start + window_bytes).min(range.end);
            let copy = &mut copy[..window.len()];
            self.file.container.copy(window.start, copy)?;
            self.hasher.update(&*copy);
            windows.push(Sha256::digest(&*copy).into());
            let points = &mut points[..copy.len() / P::BYTES];
            let first = (start - range.start) / P::BYTES;
            parse_points(copy, points, point).map_err(|(index, fault)| ReadError::Point {
                section: part,
                index: first + index,
                fault,
            })?;
            let stray = density.and_then(|density| {
                let mut indices = 0..points.len();
                indices.find(|i| !density.contains(first + i) && !bool::from(points[*i].is_identity()))
            });
            if let Some(index) = stray {
                return Err(ReadError::Unused { section: part, index: first + index });
            }
        }
        Ok(FileQuery { part, range: range.clone(), windows })
    }
}

#[cfg(test)]
mod tests;
