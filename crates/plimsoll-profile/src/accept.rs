//! A thread that takes in clients until it is told to end, whatever has become of the address meanwhile.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::{Builder, JoinHandle};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// After a failure, as when the process has no file descriptors left, it waits for so long.
const BACK_OFF: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Something that clients connect to, set not to block.
pub(crate) trait Listener: AsFd + Send + 'static {
    type Stream;
    fn next(&self) -> io::Result<Self::Stream>;
}

impl Listener for UnixListener {
    type Stream = UnixStream;
    fn next(&self) -> io::Result<UnixStream> {
        self.accept().map(|(stream, _)| stream)
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;
    fn next(&self) -> io::Result<TcpStream> {
        self.accept().map(|(stream, _)| stream)
    }
}

/// The thread. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct Accepting {
    /// Closing it wakes the thread.
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Accepting {
    /// Starts it. `welcome` is called on it for each client.
    pub(crate) fn start<L: Listener>(
        name: &str,
        listener: L,
        mut welcome: impl FnMut(L::Stream) + Send + 'static,
    ) -> io::Result<Accepting> {
        let (wake, woken) = UnixStream::pair()?;
        let body = move || {
            loop {
                let mut ready = [PollFd::new(&listener, PollFlags::IN), PollFd::new(&woken, PollFlags::IN)];
                // A signal may have ended the wait: then nothing is ready.
                if poll(&mut ready, None).is_err() && pause(&woken) {
                    return;
                }
                if !ready[1].revents().is_empty() {
                    return;
                }
                if ready[0].revents().is_empty() {
                    continue;
                }
                match listener.next() {
                    Ok(stream) => welcome(stream),
                    // It has gone again.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) if pause(&woken) => return,
                    Err(_) => {}
                }
            }
        };
        let thread = Builder::new().name(name.to_owned()).spawn(body)?;
        Ok(Accepting { wake: Some(wake), thread: Some(thread) })
    }

    /// Ends it.
    pub(crate) fn end(&mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits a little; true if it is to end meanwhile.
fn pause(woken: &UnixStream) -> bool {
    let mut ready = [PollFd::new(woken, PollFlags::IN)];
    poll(&mut ready, Some(&BACK_OFF)).is_ok_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, mpsc};
    use std::time::{Duration, Instant};

    use super::*;

    /// A listener that always has a client, whom nobody can take in.
    struct Exhausted(UnixStream, Arc<AtomicU64>);

    impl AsFd for Exhausted {
        fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl Listener for Exhausted {
        type Stream = UnixStream;
        fn next(&self) -> io::Result<UnixStream> {
            self.1.fetch_add(1, Ordering::Relaxed);
            Err(io::Error::from_raw_os_error(24))
        }
    }

    #[test]
    fn a_process_without_descriptors_does_not_spin_and_can_end() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let asked = Arc::new(AtomicU64::new(0));
        let started = Instant::now();
        let accepting = Accepting::start("x", Exhausted(ours, asked.clone()), |_| {}).unwrap();
        while asked.load(Ordering::Relaxed) < 3 {
            std::thread::yield_now();
        }
        let at_least = Duration::from_millis(150);
        assert!(started.elapsed() >= at_least, "{:?}", started.elapsed());
        drop(accepting);
    }

    #[test]
    fn it_ends_though_nobody_can_connect_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (told, seen) = mpsc::channel();
        let accepting = Accepting::start("x", listener, move |_| told.send(()).unwrap()).unwrap();
        UnixStream::connect(folder.path().join("s")).unwrap();
        seen.recv().unwrap();
        std::fs::remove_file(folder.path().join("s")).unwrap();
        drop(accepting);
    }
}
