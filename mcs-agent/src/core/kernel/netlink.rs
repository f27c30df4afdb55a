//! Netlink: reads devices, routes, tc filters and sockets, changes filters and destroys sockets. No type of a
//! netlink crate leaves this module.

mod filters;
mod links;
mod list;
mod routes;
mod sockets;

use std::io;

use rtnetlink::Handle;
use thiserror::Error;

pub use filters::{Direction, FilterPlace, NewFilter, Qdisc, TcFilter};
pub use links::Events;
pub use sockets::{ConnectedSocket, DestroyOutcome, SocketDiag};

use crate::core::kernel::devices::{Device, DeviceList};

/// A netlink socket. It belongs to the network namespace of the thread that opened it.
#[derive(Clone, Debug)]
pub struct Netlink {
    handle: Handle,
}

/// The error of a request to the kernel.
#[derive(Debug, Error)]
#[error("cannot {action}")]
pub struct NetlinkError {
    action: String,
    source: io::Error,
}

impl NetlinkError {
    fn new(action: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self { action: action.into(), source: source.into() }
    }

    /// Whether the device is gone.
    pub fn is_no_device(&self) -> bool {
        self.source.raw_os_error() == Some(libc::ENODEV)
    }
}

impl Netlink {
    /// Opens a socket, which a task of the current runtime serves until it is dropped.
    pub fn open() -> Result<Self, NetlinkError> {
        let (mut connection, handle, _) = rtnetlink::new_connection()
            .map_err(|error| NetlinkError::new("open a netlink socket", error))?;
        // The end of a list says whether it is whole. Without an acknowledgement the socket has broken.
        connection.set_forward_done(true);
        connection.set_forward_ack(true);
        tokio::spawn(connection);
        Ok(Self { handle })
    }

    /// All devices, and the devices of default routes.
    pub async fn list_devices(&self) -> Result<DeviceList, NetlinkError> {
        let devices = links::devices(&self.handle).await?;
        let (default_routes, has_hidden_default) = routes::default_routes(&self.handle).await?;
        Ok(DeviceList { devices, default_routes, has_hidden_default })
    }

    /// The device of this index; `None` if there is none.
    pub async fn device(&self, index: u32) -> Result<Option<Device>, NetlinkError> {
        links::device_of(&self.handle, index).await
    }
}

/// The kernel's error, if it has returned one.
fn into_io(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io(),
        error => io::Error::other(error),
    }
}
