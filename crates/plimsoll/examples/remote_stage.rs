//! A stage that asks a remote service, as a future: it holds its bytes while it waits, occupies no worker, is asked again
//! when the connection breaks, and is dropped in the middle when its job is cancelled.
//!
//! ```sh
//! cargo run -p plimsoll --features tokio --example remote_stage
//! ```

use std::io;
use std::time::Duration;

use plimsoll::pipeline::{JobError, JobOptions, Pipeline, Retry, Runtime};
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Budget, Bytes, Class, Demand, Ledger, Profile, Space};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PAGE: Class = Class::new("page", Space::HOST);
const PAGE_BYTES: usize = 64 << 10;

/// Serves pages filled with the byte that it is asked for. Every third connection breaks; byte 255 never comes.
async fn serve(listener: TcpListener) -> io::Result<()> {
    for number in 1.. {
        let (mut stream, _) = listener.accept().await?;
        if number % 3 == 0 {
            continue;
        }
        tokio::spawn(async move {
            let byte = stream.read_u8().await?;
            if byte == 255 {
                std::future::pending::<()>().await;
            }
            stream.write_all(&vec![byte; PAGE_BYTES]).await
        });
    }
    Ok(())
}

/// What was fetched, and what became of the job that was cancelled.
#[derive(Debug, PartialEq)]
struct Outcome {
    sums: Vec<u64>,
    retried: bool,
    cancelled: bool,
}

async fn fetch_pages() -> Result<Outcome, Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener));

    // Room for three pages: more requests than that are never under way.
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(3 * PAGE_BYTES as u64)));
    let pool = Pool::new(PoolConfig { threads: 1, ..PoolConfig::default() })?;
    let runtime = Runtime::tokio(tokio::runtime::Handle::current());
    let page = || Demand::new().bytes(PAGE, Bytes(PAGE_BYTES as u64));
    let profile = move |_: &u8| Profile::new().stage("fetch", page(), page()).stage("sum", page(), Demand::new());
    let retry = Retry::times(5).pause(Duration::from_millis(1));
    let pipeline = Pipeline::builder(&ledger, &pool, profile)
        .async_stage_again("fetch", &runtime, retry, move |cx, byte| async move {
            let mut page = cx.vec::<u8>(PAGE, PAGE_BYTES).map_err(io::Error::other)?;
            let mut stream = TcpStream::connect(address).await?;
            stream.write_u8(*byte).await?;
            let mut chunk = [0; 4096];
            loop {
                match stream.read(&mut chunk).await? {
                    0 if page.len() == PAGE_BYTES => return Ok::<_, io::Error>(page),
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    read => page.extend_from_slice(&chunk[..read]).map_err(io::Error::other)?,
                }
            }
        })
        .stage("sum", |_, page| Ok(page.iter().map(|&byte| u64::from(byte)).sum::<u64>()))
        .build()?;

    let never = pipeline.submit("never", 255)?;
    let mut sums = Vec::new();
    let tickets = (1..=10).map(|byte| {
        let options = JobOptions::new(format!("page {byte}")).timeout(Duration::from_secs(60));
        pipeline.submit(options, byte)
    });
    for ticket in tickets.collect::<Result<Vec<_>, _>>()? {
        sums.push(ticket.await?);
    }
    never.cancel();
    let cancelled = matches!(never.await, Err(JobError::Cancelled { .. }));
    assert!(ledger.snapshot().is_empty());
    Ok(Outcome { sums, retried: pipeline.stats()[0].retried > 0, cancelled })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:?}", fetch_pages().await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_page_comes_and_the_one_that_never_does_is_cancelled() {
        let sums = (1..=10).map(|byte| byte * PAGE_BYTES as u64).collect();
        assert_eq!(fetch_pages().await.unwrap(), Outcome { sums, retried: true, cancelled: true });
    }
}
