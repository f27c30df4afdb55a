//! Tiers that spill: the engine asks for rounds that no object asks for.

use std::time::Duration;

use mcs_kube::wish;

use super::FEATURE;
use crate::core::{
    engine::tests::{BOUND, World, apply_import, apply_slice, pods, web},
    model::{
        EndpointSlice, Frontend, Kind, Object, ObjectEvent, ObjectRef, ServiceImport, Tiers,
        fixture::{endpoint, slice},
    },
};

const SECOND: Duration = Duration::from_secs(1);

/// `web` prefers cluster east, and spills.
fn near() -> ServiceImport {
    let settings = [(wish::SPILL, "70%".into()), (wish::FAILBACK_DELAY, "1m".into())];
    let tiers = Some(Box::new(Tiers::parse(r#"[{"clusters":["east"]}]"#)));
    ServiceImport { settings: settings.into(), tiers, ..web(0) }
}

/// The slice of cluster east: two endpoints, of which `ready` are ready.
fn east(ready: usize) -> EndpointSlice {
    let [one, other] = [1, 2].map(|nth| {
        endpoint(&format!("10.1.0.{nth}")).conditions(nth <= ready, nth <= ready, false)
    });
    pods(0, 1, 0).endpoint(one).endpoint(other)
}

fn west() -> EndpointSlice {
    let west = slice("shop/web-0-b", "web-0").cluster("west");
    west.port_of("http", Some(8080), Some("TCP")).address("10.2.0.1")
}

fn lists(objects: impl IntoIterator<Item = EndpointSlice>) -> [ObjectEvent; 2] {
    let slices = objects.into_iter().map(Object::Slice).collect();
    [
        ObjectEvent::Relist { kind: Kind::ServiceImport, objects: vec![near().into()] },
        ObjectEvent::Relist { kind: Kind::EndpointSlice, objects: slices },
    ]
}

impl World {
    fn spilling() -> Self {
        let mut world = Self::new(BOUND);
        world.engine.prefer((FEATURE.preference)(None));
        world
    }

    /// The round that is due without a batch. Returns after how many seconds it is, and how many slots there are.
    fn due(&mut self) -> (u64, usize) {
        let due = self.engine.retry_at().expect("a round");
        let after = due - self.now.replace(due);
        (after.as_secs(), self.slots())
    }

    fn slots(&mut self) -> usize {
        self.settle();
        self.engine.realized().in_force().frontends.values().map(Frontend::slot_count).sum()
    }
}

#[test]
fn a_round_is_due_when_a_tier_spills_and_when_it_fails_back() {
    let mut world = World::spilling();
    world.take(lists([east(2), west()]));
    assert_eq!((world.slots(), world.engine.retry_at()), (2, None));
    world.take([apply_slice(east(1))]);
    assert_eq!(world.slots(), 1);
    assert_eq!(world.due(), (10, 10), "70 % of one, 30 % of the other");
    assert_eq!(world.engine.retry_at(), None);
    world.take([apply_slice(east(2))]);
    assert_eq!(world.slots(), 30);
    assert_eq!(world.due(), (60, 2));
    assert_eq!(world.engine.retry_at(), None);
    world.take([apply_slice(east(0))]);
    world.settle();
    world.take([apply_slice(east(2))]);
    world.settle();
    assert!(world.engine.retry_at().is_some());
    world.take([ObjectEvent::Delete(ObjectRef { kind: Kind::ServiceImport, key: near().key })]);
    world.settle();
    assert_eq!(world.engine.retry_at(), None, "the import is gone");
}

/// An object that was not read yet is not missing.
#[test]
fn a_start_remembers_nothing_of_what_it_read_in_part() {
    let mut world = World::spilling();
    world.take([apply_import(near()), apply_slice(east(0)), apply_slice(west())]);
    assert_eq!(world.slots(), 1);
    world.now.set(world.now.get() + SECOND);
    world.take(lists([east(2), west()]));
    assert_eq!((world.slots(), world.engine.retry_at()), (2, None), "east serves at once");
}
