//! Whether a key is loaded whole or stays in its file, and how much of it is in memory at a time then.

use plimsoll::Bytes;

/// Where a key's points are while proofs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residence {
    /// In memory, all of them.
    Whole,
    /// In the file, from where they pass through memory for each proof.
    File {
        /// How many at a time.
        piece: usize,
    },
}

/// The residence for a ledger of `room` bytes: whole if that fits, else the largest of the pieces that fits, which are `window` points,
/// twice as many and so on until one has `points`, all of them. Larger pieces take fewer additions. `whole` and `needed` say what a
/// proof at a time takes with the key, of a piece.
///
/// # Errors
/// What the smallest piece needs.
pub fn choose(
    room: Bytes,
    whole: Bytes,
    window: usize,
    points: usize,
    needed: impl Fn(usize) -> Bytes,
) -> Result<Residence, Bytes> {
    if whole <= room {
        return Ok(Residence::Whole);
    }
    let doublings = (0..).map(|doubling| window << doubling);
    let mut pieces: Vec<usize> = doublings.take_while(|piece| *piece < points).collect();
    pieces.push(window << pieces.len());
    match pieces.iter().rev().find(|piece| needed(**piece) <= room) {
        Some(piece) => Ok(Residence::File { piece: *piece }),
        None => Err(needed(window)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_of_the_key_is_in_memory_as_fits() {
        let needed = |piece: usize| Bytes(100 + piece as u64);
        let choose = |room| choose(Bytes(room), Bytes(1000), 4, 30, needed);
        let file = |piece| Ok(Residence::File { piece });
        assert_eq!(choose(1000), Ok(Residence::Whole));
        assert_eq!((choose(999), choose(132)), (file(32), file(32)), "32 are all of 30 points");
        assert_eq!((choose(131), choose(116)), (file(16), file(16)));
        assert_eq!((choose(104), choose(103)), (file(4), Err(Bytes(104))));
    }
}
