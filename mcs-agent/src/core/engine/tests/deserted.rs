//! Services that lose all endpoints: until when UDP clients stay with the backends of before.

use super::*;
use crate::core::model::KEPT_FOR;

const SECOND: Duration = Duration::from_secs(1);

/// A service of UDP and one of TCP, with two endpoints each.
fn world() -> World {
    let mut world = World::new(BOUND);
    world.take(lists(3..5, 2));
    world.settle();
    world
}

impl World {
    fn kept(&self) -> u32 {
        self.engine.realized().kept_backends()
    }

    /// Both services have this many endpoints.
    fn get(&mut self, endpoints: usize) {
        self.take([apply_slice(pods(3, 1, endpoints)), apply_slice(pods(4, 1, endpoints))]);
        self.settle();
    }

    fn pass(&mut self, time: Duration) {
        self.now.set(self.now.get() + time);
    }
}

#[test]
fn clients_stay_for_a_while_where_no_endpoint_serves() {
    let mut world = world();
    world.get(0);
    let due = Some(world.now.get() + KEPT_FOR);
    assert_eq!((world.kept(), world.engine.retry_at()), (2, due));
    world.pass(KEPT_FOR.saturating_sub(SECOND));
    // What else changes meanwhile does not prolong it.
    world.take([apply_import(web(0)), apply_slice(pods(0, 1, 0))]);
    let round = world.settle();
    assert_eq!((world.kept(), world.engine.retry_at()), (2, due));
    assert!(!round.may_leave_stale.contains(&Protocol::Udp), "{round:?}");
    world.pass(SECOND);
    let round = world.settle();
    assert_eq!(round.may_leave_stale, [Protocol::Tcp, Protocol::Udp].into());
    assert_eq!(world.kept(), 0);
    // The other service came a second before.
    assert_eq!(world.engine.retry_at(), due.map(|due| due + KEPT_FOR.saturating_sub(SECOND)));
    world.pass(KEPT_FOR);
    world.settle();
    assert_eq!(world.engine.retry_at(), None);
    world.take([apply_import(web(1)), apply_slice(pods(1, 1, 1))]);
    assert_eq!(world.settle().may_leave_stale, [Protocol::Tcp].into(), "once is enough");
}

#[test]
fn an_empty_moment_costs_nobody_anything() {
    let mut world = world();
    for _ in 0..3 {
        world.get(0);
        world.pass(KEPT_FOR.saturating_sub(SECOND));
        assert_eq!(world.settle().planned, 0);
        assert_eq!(world.kept(), 2);
        world.get(2);
        assert_eq!((world.kept(), world.engine.retry_at()), (0, None));
    }
    world.get(0);
    world.pass(KEPT_FOR);
    world.settle();
    // The service lives again: the next empty moment is another one.
    world.get(2);
    world.get(0);
    assert_eq!(world.kept(), 2);
}

#[test]
fn another_agent_gives_the_whole_time_once_it_has_read_everything() {
    let mut former = world();
    former.get(0);
    let mut world = World::on(former.maps);
    for _ in 0..2 {
        world.reconcile();
        assert_eq!((world.kept(), world.engine.retry_at()), (2, None));
        world.pass(2 * KEPT_FOR);
    }
    world.take(lists(3..5, 0));
    assert!(world.settle().became_synced);
    assert_eq!((world.kept(), world.engine.retry_at()), (2, Some(world.now.get() + KEPT_FOR)));
    world.pass(KEPT_FOR);
    world.settle();
    assert_eq!(world.kept(), 0);
}

#[test]
fn a_deleted_import_is_not_waited_for() {
    let mut world = world();
    world.get(0);
    for number in [3, 4] {
        world.take([ObjectEvent::Delete(ObjectRef {
            kind: Kind::ServiceImport,
            key: key(&format!("shop/web-{number}")),
        })]);
    }
    let round = world.settle();
    assert!(round.may_leave_stale.contains(&Protocol::Udp), "its sockets are looked at");
    assert_eq!((world.kept(), world.engine.retry_at()), (0, None));
}
