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

/// Word that a device or a default route has changed. What has changed is to be looked up anew:
/// words may be lost.
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

    /// Waits for a change. `None` when there is nothing to hear any more: the kernel had more to say
    /// than the socket could hold.
    pub async fn next(&mut self) -> Option<()> {
        self.changes.next().await
    }

    /// Forgets what has been heard but not been asked for.
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
