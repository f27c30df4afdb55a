//! Connected UDP sockets whose backend was removed. The kernel goes on sending their datagrams there,
//! and no hook is asked; so they are destroyed, and their owners are told `ECONNABORTED`.
//!
//! A socket is destroyed only if the programs have listed its connection, by its cookie, as one to a VIP
//! that was given this backend, and if the kernel shows a socket of that cookie, in that network namespace,
//! with that backend as its peer.

mod namespaces;
mod pass;
mod rights;

pub use namespaces::Survey;
pub use pass::{Missed, Pass, destroy};
pub use rights::{Obstacle, probe};
