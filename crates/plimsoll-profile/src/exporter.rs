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
//! | `plimsoll_drift_alarms` | counter | `space` | times that ledger and kernel differed for too long |
//! | `plimsoll_admission_paused` | gauge | | 1 while admission is paused |
//!
//! Names and labels are stable: they may be added to, never renamed. The unit stands last in a name.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use plimsoll::Ledger;
use plimsoll::observe::Metrics;
use thiserror::Error;

use crate::watch::Look;

/// A client that says nothing for so long is let go.
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
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
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
        ledger.observe(Arc::new(Metrics::new()));
        ledger.announce_limits();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let answer_all = move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                // One scraper after another; one that goes away in the middle is nobody's error.
                let _ = stream.and_then(|stream| answer(stream, &handle));
            }
        };
        let thread = Builder::new().name("plimsoll metrics".into()).spawn(answer_all).map_err(listen)?;
        Ok(Exporter { address, stop, thread: Some(thread) })
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
        if let Some((space, _)) = look.alarm {
            counter!("plimsoll_drift_alarms", "space" => space.to_owned()).increment(1);
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread that waits for clients. If it is not to be reached any more, it is left alone.
        let woken = TcpStream::connect_timeout(&self.address, PATIENCE).is_ok();
        if let (true, Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
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
    describe_counter!("plimsoll_drift_alarms", Count, "times that ledger and kernel differed for too long");
    describe_gauge!("plimsoll_admission_paused", Count, "1 while admission is paused");
}

fn answer(mut stream: TcpStream, handle: &PrometheusHandle) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut requested = String::new();
    let mut lines = BufReader::new(stream.try_clone()?.take(REQUEST_BYTES_MAX));
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
        let alarm = Some(("host", crate::reconcile::Alarm::Beyond(Bytes(1))));
        Exporter::watch(&Look { sample: &sample, snapshot: &snapshot, tables: &tables, change: None, alarm });
        let text = get(exporter.address(), "/metrics");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        for line in [
            "plimsoll_held_bytes{class=\"aux\",space=\"host\"} 600",
            "plimsoll_limit_bytes{space=\"host\"} 1000",
            "plimsoll_process_resident_bytes 700",
            "plimsoll_unaccounted_bytes{space=\"host\"} 100",
            "plimsoll_drift_alarms{space=\"host\"} 1",
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
