//! Many asynchronous requests through one budget: some give up, some are cancelled, and every byte comes back.
//!
//! ```sh
//! cargo run -p plimsoll --features tokio --example async_requests
//! ```

use std::time::Duration;

use plimsoll::ledger::ReserveError;
use plimsoll::{Budget, Bytes, Charged, Class, Ledger, Space};

const IMAGE: Class = Class::new("image", Space::HOST);

/// How requests ended.
#[derive(Debug, Default, PartialEq)]
struct Count {
    served: u32,
    gave_up: u32,
    cancelled: u32,
}

/// Works on a buffer of `mib` MiB, once there is room for it; gives up after `patience`.
async fn handle(ledger: Ledger, number: u64, mib: u64, patience: Duration) -> Result<u64, ReserveError> {
    let bytes = Bytes(mib << 20);
    let reservation = ledger.reserve(IMAGE, bytes).name(&format!("request {number}")).within(patience).await?;
    let mut image: Charged<Vec<u8>> =
        Charged::with_capacity(reservation, usize::try_from(bytes.0).expect("it fits")).expect("it is paid for");
    image.extend_from_slice(&vec![7; 4096]).expect("there is room");
    // The buffer lives across an await, and so do its bytes in the ledger.
    tokio::time::sleep(Duration::from_millis(mib)).await;
    Ok(image.iter().map(|&byte| u64::from(byte)).sum())
}

/// 200 requests of 1 to 8 MiB through 32 MiB. Every seventh caller leaves early, every fifth has little patience.
async fn serve(ledger: &Ledger) -> Count {
    let requests: Vec<_> = (0..200)
        .map(|number| {
            let patience = Duration::from_millis(if number % 5 == 0 { 3 } else { 60_000 });
            let leaves = Duration::from_millis(if number % 7 == 0 { 5 } else { 120_000 });
            let request = handle(ledger.clone(), number, 1 + number % 8, patience);
            tokio::spawn(async move {
                tokio::select! {
                    result = request => Some(result),
                    // The request is dropped here, wherever it stands: waiting, granted or at work.
                    () = tokio::time::sleep(leaves) => None,
                }
            })
        })
        .collect();
    let mut count = Count::default();
    for request in requests {
        match request.await.expect("no request panics") {
            Some(Ok(sum)) => {
                assert_eq!(sum, 7 * 4096);
                count.served += 1;
            }
            Some(Err(ReserveError::TimedOut { .. })) => count.gave_up += 1,
            Some(Err(error)) => panic!("{error}"),
            None => count.cancelled += 1,
        }
    }
    count
}

fn ledger() -> Ledger {
    Ledger::new(Budget::new().space(Space::HOST, Bytes(32 << 20)))
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let ledger = ledger();
    let count = serve(&ledger).await;
    let snapshot = ledger.snapshot();
    let host = snapshot.space(Space::HOST).expect("it has a limit");
    println!("{count:?}; at most {} of {} were held, now {}", host.peak, host.limit, host.held);
    assert!(snapshot.is_empty() && snapshot.waiters.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn every_byte_comes_back() {
        let ledger = ledger();
        let count = serve(&ledger).await;
        assert_eq!(count.served + count.gave_up + count.cancelled, 200);
        assert!(count.served > 100 && count.gave_up > 0 && count.cancelled > 0, "{count:?}");
        let snapshot = ledger.snapshot();
        assert!(snapshot.is_empty() && snapshot.waiters.is_empty());
        let host = snapshot.space(Space::HOST).unwrap();
        assert!(host.peak <= host.limit && host.peak > Bytes(24 << 20), "{}", host.peak);
        ledger.quiesce(Duration::ZERO).unwrap();
    }
}
