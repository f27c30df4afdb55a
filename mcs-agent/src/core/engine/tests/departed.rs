//! VIPs that have departed: how long the maps keep them, and for whom they make room.

use std::collections::BTreeSet;

use super::*;
use crate::core::model::Departure::{Gone, HandedBack};

const SECOND: Duration = Duration::from_secs(1);

/// A node that knows its Service range: `web` imports are outside of it.
fn node(world: &mut World) {
    let range = ["10.96.0.0/16".parse().expect("a range")].into();
    let bounded = NodeContext { capacity: BOUND, ..NodeContext::default() };
    let node = knowing(bounded, |facts| facts.service_ranges = Some(range));
    world.engine.set_node(node);
}

fn ip(number: usize) -> IpAddr {
    format!("10.0.0.{}", number + 1).parse().expect("an address")
}

impl World {
    /// A sweep of the flow table after this time.
    fn sweep(&mut self, after: Duration, in_use: &[usize]) {
        self.now.set(self.now.get() + after);
        let in_use: BTreeSet<IpAddr> = in_use.iter().map(|number| ip(*number)).collect();
        if self.engine.note_flows(&in_use, self.now.get(), self.now.get()) {
            let round = self.reconcile();
            assert!(round.is_written(), "{round:?}");
        }
    }

    fn departed(&self) -> Vec<(IpAddr, Departure)> {
        self.engine.realized().departed().into_iter().collect()
    }
}

#[test]
fn a_deleted_import_is_refused_for_a_while_and_its_flows_go_on() {
    let mut world = World::new(BOUND);
    node(&mut world);
    world.take(lists(0..2, 2));
    world.settle();
    world.take([delete(0), delete(1)]);
    world.settle();
    assert_eq!(world.departed(), [(ip(0), Gone), (ip(1), Gone)]);
    world.sweep(REFUSED_FOR.saturating_sub(SECOND), &[0]);
    assert_eq!(world.departed(), [(ip(0), Gone), (ip(1), Gone)]);
    world.sweep(SECOND, &[0]);
    assert_eq!(world.departed(), [(ip(0), HandedBack)], "a flow goes on");
    world.sweep(1000 * SECOND, &[0]);
    assert_eq!(world.departed(), [(ip(0), HandedBack)]);
    world.sweep(SECOND, &[]);
    assert_eq!(world.departed(), []);
    assert!(world.maps.contents().vips.is_empty());
}

#[test]
fn an_address_that_others_can_have_is_handed_back() {
    type Harm = fn(&mut World);
    let cases: [(&str, Harm); 6] = [
        ("unknown ranges", |world| {
            world.engine.set_node(NodeContext { capacity: BOUND, ..NodeContext::default() });
            world.take([delete(0)]);
        }),
        ("in the range", |world| {
            let ranges = Some(["10.0.0.0/24".parse().expect("a range")].into());
            let bounded = NodeContext { capacity: BOUND, ..NodeContext::default() };
            let node = knowing(bounded, |facts| facts.service_ranges = ranges);
            world.engine.set_node(node);
            world.take([delete(0)]);
        }),
        ("an address of this node", |world| {
            world.engine.set_node_addresses([ip(0)].into());
            world.take([delete(0)]);
        }),
        ("a derived Service", |world| {
            let derived_service = Some("derived-web".to_owned());
            world.take([apply_import(ServiceImport { derived_service, ..web(0) })]);
            world.settle();
            world.take([delete(0)]);
        }),
        ("left alone", |world| {
            let endpoint_slice_objects = Some("Absent".to_owned());
            world.take([apply_import(ServiceImport { endpoint_slice_objects, ..web(0) })]);
        }),
        ("unreadable", |world| {
            let object = ObjectRef { kind: Kind::ServiceImport, key: key("shop/web-0") };
            world.take([ObjectEvent::Malformed { object, message: "no map".to_owned() }]);
        }),
    ];
    for (name, harm) in cases {
        let mut world = World::new(BOUND);
        node(&mut world);
        world.take(lists(0..1, 2));
        world.settle();
        harm(&mut world);
        world.settle();
        assert_eq!(world.departed(), [(ip(0), HandedBack)], "{name}");
        world.sweep(Duration::ZERO, &[]);
        assert_eq!(world.departed(), [(ip(0), HandedBack)], "a flow may have begun meanwhile");
        world.sweep(SECOND, &[]);
        assert_eq!(world.departed(), [], "{name}");
    }
}

#[test]
fn an_address_that_others_get_later_is_handed_back_then() {
    let mut world = World::new(BOUND);
    node(&mut world);
    world.take(lists(0..1, 2));
    world.settle();
    world.take([delete(0)]);
    world.settle();
    assert_eq!(world.departed(), [(ip(0), Gone)]);
    let derived_service = Some("derived-web".to_owned());
    let back = ServiceImport { derived_service, ..import("shop/back").ip("10.0.0.1") };
    world.take([apply_import(back)]);
    world.settle();
    assert_eq!(world.departed(), [(ip(0), HandedBack)], "it has no slices: kube-proxy serves it");
}

#[test]
fn an_import_that_returns_is_served_at_once() {
    let mut world = World::new(BOUND);
    node(&mut world);
    world.take(lists(0..1, 2));
    world.settle();
    for _ in 0..3 {
        world.take([delete(0)]);
        world.settle();
        assert_eq!(world.departed(), [(ip(0), Gone)]);
        world.take([apply_import(web(0))]);
        world.settle();
        assert_eq!((world.departed(), world.backends()), (vec![], 2));
        world.sweep(REFUSED_FOR, &[]);
    }
    assert!(world.engine.realized().has_vip(ip(0)));
}

#[test]
fn those_that_are_served_go_first_and_the_oldest_go() {
    let mut world = World::new(BOUND);
    node(&mut world);
    let count = BOUND.vips as usize;
    world.take(lists(0..count, 1));
    world.settle();
    for number in [2, 1, 0] {
        world.take([delete(number)]);
        world.settle();
        world.now.set(world.now.get() + SECOND);
    }
    assert_eq!(world.departed().len(), 3);
    world.take([apply_import(import("shop/one").ip("10.7.0.1").port("http", 80))]);
    world.settle();
    assert_eq!(world.departed(), [(ip(0), Gone), (ip(1), Gone)]);
    world.take([
        apply_import(web(2)),
        apply_import(import("shop/two").ip("10.7.0.2").port("http", 80)),
    ]);
    world.settle();
    assert_eq!(world.departed(), []);
    assert_eq!(world.engine.desired().rejections, []);
}

#[test]
fn another_agent_goes_on_and_the_time_starts_anew() {
    let mut world = World::new(BOUND);
    node(&mut world);
    world.take(lists(0..2, 2));
    world.settle();
    world.take([delete(0)]);
    world.settle();
    let contents = world.maps.contents().clone();
    let mut world =
        World::on(GrowableMemoryMaps::with_contents(BOUND, contents, Faults::default()));
    node(&mut world);
    let round = world.reconcile();
    assert_eq!((round.planned, world.departed()), (0, vec![(ip(0), Gone)]));
    // While sources still list, the departure of an address ends unless an import serves it.
    world.sweep(REFUSED_FOR, &[]);
    assert_eq!(world.departed(), []);
    assert!(world.engine.realized().has_vip(ip(1)));
    world.take(lists(2..3, 1));
    world.settle();
    assert_eq!(world.departed(), [(ip(1), Gone)], "it was deleted while no agent ran");
}

#[test]
fn larger_maps_keep_them() {
    let mut world =
        World::new(Capacity { vips: 2, frontends: 2, endpoints: 8, clusters: 2, imports: 2 });
    node(&mut world);
    world.take(lists(0..2, 1));
    world.settle();
    world.take([delete(0)]);
    world.settle();
    world.take(lists(1..2, 30));
    world.settle();
    assert!(world.maps.capacity().endpoints > 8);
    assert_eq!(world.departed(), [(ip(0), Gone)]);
}
