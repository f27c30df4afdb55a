use std::collections::BTreeSet;

use futures_util::TryStreamExt as _;
use rtnetlink::{
    Handle,
    packet_route::{
        AddressFamily,
        route::{RouteAttribute, RouteMessage, RouteType},
    },
};

use super::{NetlinkError, into_io};

/// The indices of the devices that default routes lead to, of both families and all tables.
pub(super) async fn default_routes(handle: &Handle) -> Result<BTreeSet<u32>, NetlinkError> {
    let mut devices = BTreeSet::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut request = RouteMessage::default();
        request.header.address_family = family;
        let routes = handle.route().get(request).execute();
        devices = routes
            .try_fold(devices, async |mut devices, route| {
                if is_default(&route) {
                    devices.extend(ways(&route));
                }
                Ok(devices)
            })
            .await
            .map_err(|error| NetlinkError::new("list the routes", into_io(error)))?;
    }
    Ok(devices)
}

/// Whether a route leads to somewhere for any destination.
pub(super) fn is_default(route: &RouteMessage) -> bool {
    route.header.destination_prefix_length == 0 && route.header.kind == RouteType::Unicast
}

fn ways(route: &RouteMessage) -> impl Iterator<Item = u32> + '_ {
    route.attributes.iter().flat_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => vec![*index],
        RouteAttribute::MultiPath(hops) => hops.iter().map(|hop| hop.interface_index).collect(),
        _ => Vec::new(),
    })
}
