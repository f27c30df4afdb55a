//! The default routes.

use std::collections::BTreeSet;

use rtnetlink::{
    Handle,
    packet_route::{
        AddressFamily, RouteNetlinkMessage,
        route::{RouteAttribute, RouteMessage, RouteType},
    },
};

use super::{NetlinkError, list::list};

/// The indices of the devices that default routes lead to, of both families and all tables, and whether one names none.
pub(super) async fn default_routes(handle: &Handle) -> Result<(BTreeSet<u32>, bool), NetlinkError> {
    let (mut devices, mut has_hidden) = (BTreeSet::new(), false);
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut request = RouteMessage::default();
        request.header.address_family = family;
        // A node can have a hundred thousand routes.
        let listed = list(handle, RouteNetlinkMessage::GetRoute(request), |message| {
            let RouteNetlinkMessage::NewRoute(route) = message else { return None };
            is_default(&route).then(|| devices_of(&route).collect::<Vec<_>>())
        });
        for found in listed.await.map_err(|error| NetlinkError::new("list the routes", error))? {
            has_hidden |= found.is_empty();
            devices.extend(found);
        }
    }
    Ok((devices, has_hidden))
}

/// Whether a route matches every destination and forwards packets.
pub(super) fn is_default(route: &RouteMessage) -> bool {
    route.header.destination_prefix_length == 0 && route.header.kind == RouteType::Unicast
}

fn devices_of(route: &RouteMessage) -> impl Iterator<Item = u32> + '_ {
    route.attributes.iter().flat_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => vec![*index],
        RouteAttribute::MultiPath(hops) => hops.iter().map(|hop| hop.interface_index).collect(),
        _ => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_route::route::RouteNextHop;

    use super::*;

    fn hop(interface_index: u32) -> RouteNextHop {
        let mut hop = RouteNextHop::default();
        hop.interface_index = interface_index;
        hop
    }

    #[test]
    fn default_routes_lead_to_devices_one_way_or_several() {
        let one = RouteAttribute::Oif(3);
        let several = RouteAttribute::MultiPath(vec![hop(4), hop(5)]);
        let table = RouteAttribute::Table(1000);
        let cases = [
            (0, RouteType::Unicast, vec![table.clone(), one.clone()], vec![3]),
            (0, RouteType::Unicast, vec![several], vec![4, 5]),
            (0, RouteType::Unicast, vec![table], vec![]),
            (0, RouteType::Unreachable, vec![one.clone()], vec![]),
            (8, RouteType::Unicast, vec![one], vec![]),
        ];
        for (length, kind, attributes, expected) in cases {
            let mut route = RouteMessage::default();
            route.header.destination_prefix_length = length;
            route.header.kind = kind;
            route.attributes = attributes;
            let found: Vec<_> =
                if is_default(&route) { devices_of(&route).collect() } else { Vec::new() };
            assert_eq!(found, expected, "{route:?}");
        }
    }
}
