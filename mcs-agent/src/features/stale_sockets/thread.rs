//! Work on a thread of its own, which then ends: a thread that has been in other namespaces must not do anything else.

use std::{io, thread};

use tokio::sync::oneshot;

/// Work that a thread does.
pub(super) struct Work<T>(oneshot::Receiver<io::Result<T>>);

/// Begins some work on a new thread.
pub(super) fn begin<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Work<T> {
    let (done, result) = oneshot::channel();
    // If the thread cannot start, or panics, `done` is dropped.
    let _ = thread::Builder::new().name(name.to_owned()).spawn(move || {
        // Nobody receives it when the agent ends.
        let _ = done.send(work());
    });
    Work(result)
}

impl<T> Work<T> {
    /// Waits for the result. If the future is dropped before, the next call waits for the same work.
    pub(super) async fn result(&mut self) -> io::Result<T> {
        let result = (&mut self.0).await;
        result.unwrap_or_else(|_| Err(io::Error::other("the thread for it has failed")))
    }
}
