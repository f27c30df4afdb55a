//! Work on threads of their own, which then end, and whether this process may destroy sockets of other processes.

use std::{io, path::Path, thread};

use thiserror::Error;
use tokio::sync::oneshot;

use crate::core::{
    kernel::{netlink::SocketDiag, sockets::NetNamespace},
    model::Protocol,
};

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

/// Why the agent cannot destroy sockets.
#[derive(Debug, Error)]
pub enum Obstacle {
    /// `setns(2)` failed.
    #[error("this process may not enter network namespaces: it takes CAP_SYS_ADMIN ({0})")]
    Namespaces(io::Error),
    /// The kernel has no `SOCK_DESTROY`.
    #[error("this kernel cannot destroy sockets: it was built without CONFIG_INET_DIAG_DESTROY")]
    Kernel,
    /// The kernel module is not loaded.
    #[error("this kernel does not list {0} sockets: load its module {1} ({2})")]
    Module(Protocol, &'static str, io::Error),
    /// Another error.
    #[error("cannot ask the kernel for sockets: {0}")]
    Other(io::Error),
}

/// Tries each step, on sockets that do not exist.
pub fn probe(protocol: Protocol) -> Result<(), Obstacle> {
    // A thread that has moved must not do anything else.
    thread::spawn(move || try_all(protocol))
        .join()
        .unwrap_or_else(|_| Err(Obstacle::Other(io::Error::other("the attempt has failed"))))
}

fn try_all(protocol: Protocol) -> Result<(), Obstacle> {
    let own = NetNamespace::open(Path::new("/proc/thread-self/ns/net"));
    own.and_then(|own| own.enter()).map_err(Obstacle::Namespaces)?;
    let diag = SocketDiag::open().map_err(Obstacle::Other)?;
    let module = match protocol {
        Protocol::Tcp => "tcp_diag",
        Protocol::Udp => "udp_diag",
    };
    diag.probe(protocol).map_err(|error| match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => Obstacle::Kernel,
        Some(libc::ENOENT) => Obstacle::Module(protocol, module, error),
        _ => Obstacle::Other(error),
    })
}
