//! A future that waits once. The unit tests of the pipeline use it as well as the tests in this folder.

use std::future::poll_fn;
use std::task::Poll;

/// Ready at the second poll.
pub(crate) async fn once_around() {
    let mut polled = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
