//! Notifications of changed devices and default routes.

use std::pin::Pin;

use futures_util::{FutureExt as _, Stream, StreamExt as _};
use rtnetlink::{
    MulticastGroup,
    packet_core::{NetlinkMessage, NetlinkPayload},
    packet_route::RouteNetlinkMessage,
};

use super::{NetlinkError, routes};

const GROUPS: [MulticastGroup; 3] =
    [MulticastGroup::Link, MulticastGroup::Ipv4Route, MulticastGroup::Ipv6Route];

/// Notifications that a device or a default route has changed. The receiver lists all devices again, since
/// notifications may be lost.
pub struct Events {
    changes: Pin<Box<dyn Stream<Item = ()> + Send>>,
}

impl Events {
    /// Listens from now on, by a task of the current runtime.
    pub fn open() -> Result<Self, NetlinkError> {
        let (connection, _, messages) = rtnetlink::new_multicast_connection(&GROUPS)
            .map_err(|error| NetlinkError::new("follow changes of devices and routes", error))?;
        tokio::spawn(connection);
        let changes = messages.filter_map(async |(message, _)| matters(&message).then_some(()));
        Ok(Self { changes: Box::pin(changes) })
    }

    /// Waits for a change. `None` if the socket has overflowed: no more notifications come.
    pub async fn next(&mut self) -> Option<()> {
        self.changes.next().await
    }

    /// Drops the notifications that were already received.
    pub fn forget(&mut self) {
        while let Some(Some(())) = self.changes.next().now_or_never() {}
    }
}

fn matters(message: &NetlinkMessage<RouteNetlinkMessage>) -> bool {
    use RouteNetlinkMessage::{DelLink, DelRoute, NewLink, NewRoute};

    match &message.payload {
        NetlinkPayload::InnerMessage(NewLink(_) | DelLink(_)) | NetlinkPayload::Overrun(_) => true,
        NetlinkPayload::InnerMessage(NewRoute(route) | DelRoute(route)) => {
            routes::is_default(route)
        }
        _ => false,
    }
}
