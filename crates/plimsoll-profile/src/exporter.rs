//! Metrics for Prometheus, on this machine alone.
//!
//! [`Exporter::serve`] installs a recorder, keeps [`Metrics`](plimsoll::observe::Metrics) of a ledger in it, and answers
//! `GET /metrics` on a loopback address. [`Exporter::watch`] adds what the process really holds:
//!
//! | name | kind | labels | |
//! |---|---|---|---|
//! | `plimsoll_process_resident_bytes` | gauge | | what the kernel says is resident |
//! | `plimsoll_process_line_bytes` | gauge | | the most that the process is to hold |
//! | `plimsoll_process_left_bytes` | gauge | | what could be had without somebody being killed |
//! | `plimsoll_unaccounted_bytes` | gauge | `space` | what neither ledger, baseline nor allocator account for; may be negative |
//! | `plimsoll_allocator_kept_bytes` | gauge | | free pages that the allocator keeps in memory |
//! | `plimsoll_drift_alarms_total` | counter | `space` | times that ledger and kernel differed for too long |
//! | `plimsoll_admission_paused` | gauge | | 1 while admission is paused |
//!
//! Names and labels are stable: they may be added to, never renamed. The unit stands last in a name, before the `_total` of counters;
//! counters are there from the start, at zero. One client is served after another, each for at most five seconds.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use plimsoll::Ledger;
use plimsoll::ledger::Observing;
use plimsoll::observe::Metrics;
use thiserror::Error;

use crate::accept::Accepting;
use crate::watch::Look;

/// A client that has not said all of its request, or not taken all of its answer, after so long is let go: the next one waits.
const PATIENCE: Duration = Duration::from_secs(5);
/// A longer request is none.
const REQUEST_BYTES_MAX: u64 = 8 << 10;

/// Metrics cannot be served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExporterError {
    /// The address is not this machine's alone.
    #[error("{0} can be reached from other machines; use 127.0.0.1 or [::1], and a proxy of your own in front of it")]
    NotLoopback(SocketAddr),
    /// It cannot be listened on.
    #[error("{address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The program has a recorder of metrics already.
    #[error("this program keeps its metrics elsewhere already; add plimsoll::observe::Metrics to the ledger instead")]
    Installed,
}

/// Metrics that are being served. Dropping it ends that.
#[derive(Debug)]
pub struct Exporter {
    address: SocketAddr,
    // It ends before the ledger is let go of.
    _accepting: Accepting,
    _observing: Observing,
}

impl Exporter {
    /// Serves the metrics of a ledger on a loopback address (port 0: whichever is free).
    ///
    /// # Errors
    ///
    /// If the address is not loopback, or taken, or the program has another recorder.
    pub fn serve(ledger: &Ledger, address: SocketAddr) -> Result<Exporter, ExporterError> {
        if !address.ip().is_loopback() {
            return Err(ExporterError::NotLoopback(address));
        }
        let listen = |source| ExporterError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let handle = PrometheusBuilder::new().install_recorder().map_err(|_| ExporterError::Installed)?;
        describe();
        let observing = ledger.observe_while(Arc::new(Metrics::new()));
        ledger.announce_limits();
        listener.set_nonblocking(true).map_err(listen)?;
        let accepting = Accepting::start("plimsoll metrics", listener, move |stream: TcpStream| {
            // One scraper after another; one that goes away in the middle is nobody's error.
            let _ = stream.set_nonblocking(false).and_then(|()| answer(stream, &handle));
        })
        .map_err(listen)?;
        Ok(Exporter { address, _accepting: accepting, _observing: observing })
    }

    /// Where they are.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes down what was seen of the process. Give it to [`Watch::tell`](crate::watch::Watch::tell).
    pub fn watch(look: &Look<'_>) {
        let set = |name: &'static str, value: Option<u64>| {
            if let Some(value) = value {
                gauge!(name).set(value as f64);
            }
        };
        let sample = look.sample;
        set("plimsoll_process_resident_bytes", sample.process.map(|process| process.resident_bytes));
        set("plimsoll_process_line_bytes", sample.line);
        set("plimsoll_process_left_bytes", sample.left_bytes());
        set("plimsoll_allocator_kept_bytes", sample.allocator.as_ref().and_then(|allocator| allocator.kept_bytes()));
        set("plimsoll_admission_paused", Some(u64::from(look.snapshot.paused)));
        for table in look.tables {
            gauge!("plimsoll_unaccounted_bytes", "space" => table.space.clone()).set(table.unaccounted() as f64);
        }
        for table in look.tables {
            // There from the first look on, so that its first rise is one.
            let here = look.alarms.iter().filter(|(space, _)| *space == table.space).count() as u64;
            counter!("plimsoll_drift_alarms_total", "space" => table.space.clone()).increment(here);
        }
    }
}

fn describe() {
    use metrics::Unit::{Bytes, Count};
    describe_gauge!("plimsoll_process_resident_bytes", Bytes, "what the kernel says is resident");
    describe_gauge!("plimsoll_process_line_bytes", Bytes, "the most that the process is to hold");
    describe_gauge!("plimsoll_process_left_bytes", Bytes, "what could be had without somebody being killed");
    describe_gauge!("plimsoll_allocator_kept_bytes", Bytes, "free pages that the allocator keeps in memory");
    describe_gauge!("plimsoll_unaccounted_bytes", Bytes, "what neither ledger nor allocator account for");
    describe_counter!("plimsoll_drift_alarms_total", Count, "times that ledger and kernel differed for too long");
    describe_gauge!("plimsoll_admission_paused", Count, "1 while admission is paused");
}

/// Reads until a time, however often: one byte now and then does not hold up the others.
struct Within {
    stream: TcpStream,
    until: Instant,
}

impl Read for Within {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

fn answer(mut stream: TcpStream, handle: &PrometheusHandle) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut requested = String::new();
    let slow = Within { stream: stream.try_clone()?, until: Instant::now() + PATIENCE };
    let mut lines = BufReader::new(slow.take(REQUEST_BYTES_MAX));
    lines.read_line(&mut requested)?;
    let mut header = String::new();
    // Up to the empty line: what is left unread would reset the connection.
    while lines.read_line(&mut header)? > 2 {
        header.clear();
    }
    let (status, kind, body) = match requested.split_ascii_whitespace().collect::<Vec<_>>()[..] {
        ["GET", "/metrics", _] => {
            handle.run_upkeep();
            ("200 OK", "text/plain; version=0.0.4; charset=utf-8", handle.render())
        }
        ["GET", ..] => ("404 Not Found", "text/plain", "metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", "only GET is answered\n".to_owned()),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use plimsoll::ledger::snapshot::Snapshot;
    use plimsoll::{Budget, Bytes, Class, Space};

    use super::*;
    use crate::reconcile::{Baseline, Table};
    use crate::sample::Sample;
    use crate::sample::process::ProcessMemory;

    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_slow_client_is_let_go_however_often_it_says_something() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        client.write_all(b"GET").unwrap();
        let mut within = Within { stream, until: Instant::now() + Duration::from_millis(50) };
        let mut all = Vec::new();
        let late = within.read_to_end(&mut all).unwrap_err();
        assert!(matches!(late.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{late}");
        client.write_all(b" /metrics").unwrap();
        assert_eq!(within.read(&mut [0; 9]).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_scraper_of_this_machine_gets_ledger_and_process() {
        const AUX: Class = Class::new("aux", Space::HOST);
        let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(1000)));
        let outside = Exporter::serve(&ledger, "0.0.0.0:0".parse().unwrap());
        assert!(matches!(outside, Err(ExporterError::NotLoopback(_))), "{outside:?}");
        let exporter = Exporter::serve(&ledger, "127.0.0.1:0".parse().unwrap()).unwrap();
        let held = ledger.reserve(AUX, Bytes(600)).try_now().unwrap();
        let sample = Sample {
            process: Some(ProcessMemory { resident_bytes: 700, anonymous_bytes: 700, ..ProcessMemory::default() }),
            ..Sample::default()
        };
        let snapshot: Snapshot = ledger.snapshot();
        let tables = Table::all(&snapshot, &sample, &Baseline::default());
        let look = |alarms: &[(String, crate::reconcile::Alarm)]| {
            Exporter::watch(&Look { sample: &sample, snapshot: &snapshot, tables: &tables, change: None, alarms });
        };
        look(&[]);
        let text = get(exporter.address(), "/metrics");
        for name in ["drift_alarms_total{space=\"host\"} 0", "granted_total 1", "refused_total 0", "withdrawn_total 0"]
        {
            assert!(
                text.lines().any(|line| line == format!("plimsoll_{name}")),
                "{name} is there from the start: {text}"
            );
        }
        look(&[("host".to_owned(), crate::reconcile::Alarm::Beyond(Bytes(1)))]);
        let text = get(exporter.address(), "/metrics");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        for line in [
            "plimsoll_held_bytes{class=\"aux\",space=\"host\"} 600",
            "plimsoll_limit_bytes{space=\"host\"} 1000",
            "plimsoll_process_resident_bytes 700",
            "plimsoll_unaccounted_bytes{space=\"host\"} 100",
            "plimsoll_drift_alarms_total{space=\"host\"} 1",
            "plimsoll_admission_paused 0",
            "# TYPE plimsoll_held_bytes gauge",
        ] {
            assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
        }
        assert!(get(exporter.address(), "/").starts_with("HTTP/1.1 404"));
        let address = exporter.address();
        drop((exporter, held));
        assert!(TcpStream::connect(address).is_err());
    }
}
