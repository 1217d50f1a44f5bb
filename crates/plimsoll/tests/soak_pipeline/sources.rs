//! Where the jobs of a round come from, and how it ends.

use super::orders::Random;

/// Where the jobs of a round come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    OneByOne,
    /// From an iterator, or where that is built in from a stream; results in the order of inputs or as jobs end.
    Fed {
        stream: bool,
        in_order: bool,
    },
}

impl Source {
    pub(crate) fn drawn(random: &mut Random) -> Source {
        match random.below(8) {
            at @ 0..=3 => Source::Fed { stream: at % 2 == 1, in_order: at >= 2 },
            _ => Source::OneByOne,
        }
    }
}

/// How a round ends: when all is done, or in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Drained,
    /// The pipeline is dropped, or whoever feeds it.
    Dropped,
    /// The pool is aborted, which is the round's own.
    Aborted,
}

impl End {
    pub(crate) fn drawn(random: &mut Random) -> End {
        match random.below(8) {
            0 => End::Dropped,
            1 => End::Aborted,
            _ => End::Drained,
        }
    }
}

/// The results of a stream of jobs, for a thread that blocks for each.
#[cfg(feature = "stream")]
pub(crate) fn blocking<I, S>(inputs: I, run: impl FnOnce(Each<I>) -> S) -> impl Iterator<Item = S::Item>
where
    S: futures_core::Stream,
{
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};
    use std::thread::Thread;

    struct Unparks(Thread);
    impl Wake for Unparks {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut results = Box::pin(run(Each(inputs)));
    let waker = Waker::from(Arc::new(Unparks(std::thread::current())));
    std::iter::from_fn(move || {
        loop {
            match results.as_mut().poll_next(&mut Context::from_waker(&waker)) {
                Poll::Ready(next) => return next,
                Poll::Pending => std::thread::park(),
            }
        }
    })
}

/// A stream that has its next item ready.
#[cfg(feature = "stream")]
pub(crate) struct Each<I>(I);

#[cfg(feature = "stream")]
impl<I: Iterator + Unpin> futures_core::Stream for Each<I> {
    type Item = I::Item;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<I::Item>> {
        std::task::Poll::Ready(self.0.next())
    }
}
