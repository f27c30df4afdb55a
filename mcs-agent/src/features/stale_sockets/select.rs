//! Which connections are stale.

use std::{
    collections::{BTreeMap, HashSet},
    net::SocketAddr,
    time::Instant,
};

use crate::core::{
    kernel::sockets::{Connection, address},
    model::{DesiredState, FrontendId, KEPT_FOR, Protocol},
    tables::{Realized, contents},
};

/// The frontends that connections lead to and that nobody asks for any more, and until when these connections stay.
#[derive(Debug, Default)]
pub(super) struct DeletedFrontends(BTreeMap<FrontendId, Instant>);

impl DeletedFrontends {
    /// When the time of the next one is over.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        self.0.values().filter(|until| **until > now).min().copied()
    }
}

/// The connections whose backend no longer serves. As in kube-proxy, zones, traffic policies and termination do not count.
/// The connections of a frontend without any serving endpoint, or of a deleted one, stay for [`KEPT_FOR`]. A backend that
/// was removed and added again is not stale. `of_bounded`: only frontends that are bounded count.
pub(super) fn stale_connections(
    protocol: Protocol,
    connections: Vec<Connection>,
    desired: &DesiredState,
    realized: &Realized,
    deleted: &mut DeletedFrontends,
    of_bounded: bool,
    now: Instant,
) -> Vec<Connection> {
    let mut by_frontend = BTreeMap::<FrontendId, Vec<Connection>>::new();
    for connection in connections {
        let vip = address(&connection.value.vip());
        let id = FrontendId { ip: vip.ip(), port: vip.port(), protocol };
        by_frontend.entry(id).or_default().push(connection);
    }
    if of_bounded {
        by_frontend.retain(|id, _| desired.frontends.get(id).is_some_and(|one| one.is_bounded));
    }
    let absent = by_frontend.keys().filter(|id| !desired.frontends.contains_key(id));
    let until = |id: &FrontendId| deleted.0.get(id).copied().unwrap_or(now + KEPT_FOR);
    deleted.0 = absent.map(|id| (*id, until(id))).collect();
    let mut stale = Vec::new();
    for (id, connections) in by_frontend {
        if deleted.0.get(&id).is_some_and(|until| *until > now) {
            continue;
        }
        // The agent may not know what the maps hold of the frontend.
        let Some(in_maps) = realized.reachable_backends(&contents::frontend_key(&id)) else {
            continue;
        };
        let in_maps: HashSet<SocketAddr> = in_maps.into_iter().collect();
        let is_stale = |connection: &Connection| {
            let backend = address(&connection.key.backend);
            !desired.keeps(&id, backend) && !in_maps.contains(&backend)
        };
        stale.extend(connections.into_iter().filter(is_stale));
    }
    stale
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use mcs_common::{Address, ConnectedValue, Peer, ReverseKey};

    use super::*;
    use crate::core::{
        model::{Backend, Capacity},
        tables::{Maps as _, Planned, Pruning, Step, apply, fixtures, plan, testing::MemoryMaps},
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
        let backends: Vec<_> = backends.iter().map(|address| (*address, "")).collect();
        let id = FrontendId { ip: "10.0.0.1".parse().unwrap(), port: 53, protocol };
        fixtures::desired([(id, fixtures::frontend("dns", &backends))])
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

    /// The connections of UDP that are stale at the first look.
    fn stale_at_once(
        connections: Vec<Connection>,
        desired: &DesiredState,
        realized: &Realized,
    ) -> Vec<Connection> {
        let (mut deleted, now) = (DeletedFrontends::default(), Instant::now());
        stale_connections(Protocol::Udp, connections, desired, realized, &mut deleted, false, now)
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
        let over = of_none.frontends.keys().copied().collect();
        let deserted = DesiredState { deserted: Arc::new(over), ..of_none.clone() };
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
            // No endpoint serves, or none has served for a while.
            (&of_none, vec![&both, &of_none], vec![]),
            (&deserted, vec![&both, &of_none], vec![]),
            (&deserted, vec![&both, &of_none, &deserted], vec![kept, gone]),
            (&deserted, vec![], vec![kept, gone]),
            // B has not served since before an empty moment.
            (&of_a, vec![&both, &of_none, &of_a], vec![gone]),
            // The import has gone.
            (&none, vec![&of_a, &none], vec![]),
        ];
        for (desired, history, expected) in cases {
            let connections = vec![kept, gone, other_port];
            let mut found = stale_at_once(connections, desired, &realized(&history));
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
        assert_eq!(stale_at_once(vec![connection], &wanted, &realized(&[])), []);
    }

    #[test]
    fn a_deleted_frontend_has_stale_connections_after_a_while() {
        let a = "10.1.0.1:53";
        let (of_a, none) = (desired(Protocol::Udp, &[a]), DesiredState::default());
        let kept = connection("10.0.0.1:53", a);
        let other = connection("10.0.0.9:53", a);
        let began = Instant::now();
        let mut deleted = DeletedFrontends::default();
        let mut look = |seconds, connections: &[Connection], desired, history: &[&_]| {
            let (now, realized) = (began + Duration::from_secs(seconds), realized(history));
            let connections = connections.to_vec();
            let stale = stale_connections(
                Protocol::Udp,
                connections,
                desired,
                &realized,
                &mut deleted,
                false,
                now,
            );
            (stale, deleted.due(now).map(|due| (due - began).as_secs()))
        };
        assert_eq!(look(0, &[kept], &of_a, &[&of_a]), (vec![], None));
        assert_eq!(look(1, &[kept], &none, &[&of_a, &none]), (vec![], Some(31)));
        // It comes back, and goes again.
        assert_eq!(look(20, &[kept], &of_a, &[&of_a]), (vec![], None));
        assert_eq!(look(25, &[kept], &none, &[&none]), (vec![], Some(55)));
        assert_eq!(look(40, &[kept, other], &none, &[&none]), (vec![], Some(55)));
        // The deletion was not written.
        assert_eq!(look(55, &[kept, other], &none, &[&of_a]), (vec![], Some(70)));
        assert_eq!(look(55, &[kept, other], &none, &[&none]), (vec![kept], Some(70)));
        assert_eq!(look(70, &[kept, other], &none, &[&none]), (vec![kept, other], None));
        assert_eq!(look(71, &[], &none, &[&none]), (vec![], None));
        assert_eq!(look(72, &[kept], &none, &[&none]), (vec![], Some(102)), "it is another");
    }

    #[test]
    fn what_a_failed_write_left_out_is_not_stale_yet() {
        let wanted = desired(Protocol::Udp, &["10.1.0.1:53"]);
        let mut realized = realized(&[&wanted]);
        let other = desired(Protocol::Udp, &["10.1.0.3:53"]);
        let connection = connection("10.0.0.1:53", "10.1.0.1:53");
        let stale = |realized: &Realized| stale_at_once(vec![connection], &other, realized);
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
