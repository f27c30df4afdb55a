//! The network devices, and notifications of changed devices and default routes.

use std::pin::Pin;

use futures_util::{FutureExt as _, Stream, StreamExt as _, TryStreamExt as _};
use rtnetlink::{
    Handle, MulticastGroup,
    packet_core::{NetlinkMessage, NetlinkPayload},
    packet_route::{
        RouteNetlinkMessage,
        link::{LinkAttribute, LinkExtentMask, LinkInfo, LinkLayerType, LinkMessage},
    },
};

use super::{NetlinkError, into_io, list::list, routes};
use crate::core::kernel::devices::{Device, LinkType};

/// Every device of the namespace.
pub(super) async fn devices(handle: &Handle) -> Result<Vec<Device>, NetlinkError> {
    let mut request = LinkMessage::default();
    request.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    let listed = list(handle, RouteNetlinkMessage::GetLink(request), |message| match message {
        RouteNetlinkMessage::NewLink(message) => device(&message),
        _ => None,
    });
    listed.await.map_err(|error| NetlinkError::new("list the network devices", error))
}

/// The device of this index; `None` if there is none.
pub(super) async fn device_of(handle: &Handle, index: u32) -> Result<Option<Device>, NetlinkError> {
    match handle.link().get().match_index(index).execute().try_next().await {
        Ok(message) => Ok(message.as_ref().and_then(device)),
        Err(error) => {
            let error = NetlinkError::new(format!("look at device {index}"), into_io(error));
            if error.is_no_device() { Ok(None) } else { Err(error) }
        }
    }
}

/// `None` for a message without a name.
fn device(message: &LinkMessage) -> Option<Device> {
    let mut name = None;
    let mut kind = String::new();
    let mut peer_elsewhere = false;
    let mut peer = None;
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::LinkNetNsId(_) => peer_elsewhere = true,
            LinkAttribute::Link(index) => peer = Some(*index),
            LinkAttribute::LinkInfo(infos) => {
                for info in infos {
                    if let LinkInfo::Kind(found) = info {
                        kind = found.to_string();
                    }
                }
            }
            _ => {}
        }
    }
    let link_type = match message.header.link_layer_type {
        LinkLayerType::Ether => LinkType::Ethernet,
        LinkLayerType::None | LinkLayerType::Rawip => LinkType::Bare,
        LinkLayerType::Loopback => LinkType::Loopback,
        other => LinkType::Other(other.to_string()),
    };
    Some(Device { index: message.header.index, name: name?, kind, link_type, peer_elsewhere, peer })
}

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

#[cfg(test)]
mod tests {
    use rtnetlink::packet_route::link::{InfoKind, LinkHeader};

    use super::*;

    fn message(link_layer_type: LinkLayerType, attributes: Vec<LinkAttribute>) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header = LinkHeader { index: 7, link_layer_type, ..LinkHeader::default() };
        message.attributes = attributes;
        message
    }

    fn name() -> LinkAttribute {
        LinkAttribute::IfName("a".to_owned())
    }

    fn kind(kind: InfoKind) -> LinkAttribute {
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)])
    }

    #[test]
    fn a_device_is_read_from_its_message() {
        let expected = |kind: &str, link_type, peer_elsewhere| {
            let (name, kind) = ("a".to_owned(), kind.to_owned());
            Some(Device { index: 7, name, kind, link_type, peer_elsewhere, peer: None })
        };
        let peer = || LinkAttribute::LinkNetNsId(0);
        let cases = [
            (LinkLayerType::Ether, vec![name()], expected("", LinkType::Ethernet, false)),
            (
                LinkLayerType::Ether,
                vec![name(), peer(), kind(InfoKind::Veth)],
                expected("veth", LinkType::Ethernet, true),
            ),
            (
                LinkLayerType::None,
                vec![name(), kind(InfoKind::Wireguard)],
                expected("wireguard", LinkType::Bare, false),
            ),
            (LinkLayerType::Rawip, vec![name()], expected("", LinkType::Bare, false)),
            (LinkLayerType::Loopback, vec![name()], expected("", LinkType::Loopback, false)),
            (
                LinkLayerType::Tunnel,
                vec![name(), kind(InfoKind::IpIp)],
                expected("ipip", LinkType::Other(LinkLayerType::Tunnel.to_string()), false),
            ),
            (LinkLayerType::Ether, vec![peer()], None),
        ];
        for (link_type, attributes, expected) in cases {
            assert_eq!(device(&message(link_type, attributes.clone())), expected, "{attributes:?}");
        }
    }
}
