//! Which connections are stale.

use std::{
    collections::{BTreeMap, HashSet},
    net::SocketAddr,
};

use super::{Connection, socket_slots::address};
use crate::{
    model::{DesiredState, FrontendId, Protocol},
    reconcile::{Realized, convert},
};

/// The connections whose backend no longer serves, while another endpoint of their VIP does. As in kube-proxy, zones,
/// traffic policies and termination do not count. A service without any serving endpoint, or a deleted one, has no stale
/// connections. A backend that was removed and added again is not stale.
pub fn stale_connections(
    protocol: Protocol,
    connections: Vec<Connection>,
    desired: &DesiredState,
    realized: &Realized,
) -> Vec<Connection> {
    let mut by_vip = BTreeMap::<SocketAddr, Vec<Connection>>::new();
    for connection in connections {
        by_vip.entry(address(&connection.value.vip())).or_default().push(connection);
    }
    let mut stale = Vec::new();
    for (vip, connections) in by_vip {
        let id = FrontendId { ip: vip.ip(), port: vip.port(), protocol };
        let Some(frontend) = desired.frontends.get(&id) else { continue };
        // The agent may not know what the maps hold of the frontend.
        let Some(in_maps) = realized.reachable_backends(&convert::frontend_key(&id)) else {
            continue;
        };
        let in_maps: HashSet<SocketAddr> = in_maps.into_iter().collect();
        let is_stale = |connection: &Connection| {
            let backend = address(&connection.key.backend);
            !frontend.keeps(backend) && !in_maps.contains(&backend)
        };
        stale.extend(connections.into_iter().filter(is_stale));
    }
    stale
}

#[cfg(test)]
mod tests {
    use mcs_common::{Address, ConnectedValue, Peer, ReverseKey};

    use super::*;
    use crate::{
        model::{Backend, Capacity, Frontend, ObjectKey, Slots},
        reconcile::{Maps as _, Planned, Pruning, Step, apply, plan, testing::MemoryMaps},
    };

    const CAPACITY: Capacity =
        Capacity { vips: 4, frontends: 4, endpoints: 8, clusters: 2, imports: 4 };

    fn peer(text: &str) -> Peer {
        let address: SocketAddr = text.parse().unwrap();
        Peer::new(address.ip().into(), address.port())
    }

    fn connection(vip: &str, backend: &str) -> Connection {
        Connection {
            key: ReverseKey { cookie: 1, backend: peer(backend) },
            value: ConnectedValue::new(peer(vip), false, 1),
        }
    }

    fn desired(protocol: Protocol, backends: &[&str]) -> DesiredState {
        let backend =
            |address: &&str| Backend { address: address.parse().unwrap(), cluster: "".into() };
        let frontend = Frontend {
            import: ObjectKey::new("demo", "dns"),
            port_name: String::new(),
            affinity_seconds: None,
            backends: backends.iter().map(backend).collect(),
            slots: Slots::ONE_EACH,
            also_serving: vec![],
            held: 0,
        };
        let id = FrontendId { ip: "10.0.0.1".parse().unwrap(), port: 53, protocol };
        DesiredState {
            vips: [id.ip].into(),
            frontends: [(id, frontend)].into(),
            ..DesiredState::default()
        }
    }

    /// The same, with a backend that serves and that new clients do not get.
    fn beside(mut desired: DesiredState, backend: &str) -> DesiredState {
        for frontend in desired.frontends.values_mut() {
            frontend.also_serving =
                vec![Backend { address: backend.parse().unwrap(), cluster: "".into() }];
        }
        desired
    }

    fn realized(all: &[&DesiredState]) -> Realized {
        let mut maps = MemoryMaps::new(CAPACITY);
        let mut realized = Realized::empty(CAPACITY);
        for desired in all {
            let plan = plan(desired, &realized, Pruning::On);
            apply(Planned::after(plan.steps, &realized), &mut maps, &mut realized).unwrap();
        }
        realized
    }

    #[test]
    fn only_what_no_longer_serves_is_stale() {
        let (a, b) = ("10.1.0.1:53", "10.1.0.2:53");
        let of_a = desired(Protocol::Udp, &[a]);
        let of_b = desired(Protocol::Udp, &[b]);
        let none = DesiredState::default();
        let kept = connection("10.0.0.1:53", a);
        let gone = connection("10.0.0.1:53", b);
        let both = desired(Protocol::Udp, &[a, b]);
        let of_none = desired(Protocol::Udp, &[]);
        let of_a_beside_b = beside(of_a.clone(), b);
        let of_none_beside_b = beside(of_none.clone(), b);
        // Nobody says who serves there.
        let other_port = connection("10.0.0.1:54", a);
        let cases = [
            // What is wanted, what is in the maps, and what is stale.
            (&of_a, vec![&of_a], vec![gone]),
            // Wanted again, and not written yet.
            (&of_b, vec![&of_a], vec![]),
            // To go, and not gone yet.
            (&none, vec![&of_a], vec![]),
            (&of_a, vec![&of_b, &of_a], vec![gone]),
            // B serves, though new clients do not get it: it may be of another zone, or terminate.
            (&of_a_beside_b, vec![&both, &of_a_beside_b], vec![]),
            (&of_a_beside_b, vec![&of_a], vec![]),
            (&of_none_beside_b, vec![&of_a, &of_none_beside_b], vec![kept]),
            // No endpoint serves.
            (&of_none, vec![&both, &of_none], vec![]),
            // B has not served since before an empty moment.
            (&of_a, vec![&both, &of_none, &of_a], vec![gone]),
            // The import has gone.
            (&none, vec![&of_a, &none], vec![]),
        ];
        for (desired, history, expected) in cases {
            let mut found = stale_connections(
                Protocol::Udp,
                vec![kept, gone, other_port],
                desired,
                &realized(&history),
            );
            found.sort_by_key(|stale| (stale.value.vip().port, stale.key.backend.addr));
            assert_eq!(found, expected, "{history:?}");
        }
    }

    #[test]
    fn ipv4_has_one_form() {
        let mapped = Address::from(std::net::Ipv4Addr::new(10, 1, 0, 1));
        let mut connection = connection("10.0.0.1:53", "10.1.0.1:53");
        connection.key.backend = Peer::new(mapped, 53);
        let wanted = desired(Protocol::Udp, &["10.1.0.1:53"]);
        assert_eq!(stale_connections(Protocol::Udp, vec![connection], &wanted, &realized(&[])), []);
    }

    #[test]
    fn what_a_failed_write_left_out_is_not_stale_yet() {
        let wanted = desired(Protocol::Udp, &["10.1.0.1:53"]);
        let mut realized = realized(&[&wanted]);
        let other = desired(Protocol::Udp, &["10.1.0.3:53"]);
        let connection = connection("10.0.0.1:53", "10.1.0.1:53");
        let stale = |realized: &Realized| {
            stale_connections(Protocol::Udp, vec![connection], &other, realized)
        };
        let mut maps = MemoryMaps::with_contents(CAPACITY, realized.contents().clone());
        let steps = plan(&other, &realized, Pruning::On).steps;
        for (done, step) in steps.iter().enumerate() {
            let is_led_elsewhere =
                steps[..done].iter().any(|step| matches!(step, Step::Flip { .. }));
            realized.read_again(&maps);
            assert_eq!(stale(&realized).is_empty(), !is_led_elsewhere, "before {step}");
            maps.write(step).expect("no fault");
        }
    }
}
