use futures_util::{TryStreamExt as _, future};
use rtnetlink::{
    Handle,
    packet_route::{
        AddressFamily,
        link::{LinkAttribute, LinkExtentMask, LinkInfo, LinkLayerType, LinkMessage},
    },
};

use super::{NetlinkError, into_io};
use crate::devices::{Device, LinkType};

/// Every device of the namespace.
pub(super) async fn devices(handle: &Handle) -> Result<Vec<Device>, NetlinkError> {
    handle
        .link()
        .get()
        .set_filter_mask(AddressFamily::Unspec, vec![LinkExtentMask::SkipStats])
        .execute()
        .try_filter_map(|message| future::ok(device(&message)))
        .try_collect()
        .await
        .map_err(|error| NetlinkError::new("list the network devices", into_io(error)))
}

/// `None` for a message without a name.
fn device(message: &LinkMessage) -> Option<Device> {
    let mut name = None;
    let mut kind = String::new();
    let mut peer_elsewhere = false;
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::LinkNetNsId(_) => peer_elsewhere = true,
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
    Some(Device { index: message.header.index, name: name?, kind, link_type, peer_elsewhere })
}
