//! The engine on maps in memory, with writes and growth that fail, and a clock that tests move.

mod departed;
mod deserted;
mod ejection;
mod ranges;

use std::{
    cell::Cell,
    time::{Duration, Instant, SystemTime},
};

use fastrand::Rng;

use super::{
    testing::{self, Faults, GrowableMaps as _, GrowableMemoryMaps},
    *,
};
use crate::core::{
    model::{
        Endpoint, EndpointSlice, Object, ObjectEvent, ObjectRef, ServiceImport, Traffic,
        fixture::{endpoint, import, key, knowing, plain_node, slice},
    },
    tables::{MapContents, Pruning, plan},
};

const SMALL: Capacity = Capacity { vips: 1, frontends: 1, endpoints: 2, clusters: 1, imports: 1 };
pub(crate) const BOUND: Capacity =
    Capacity { vips: 32, frontends: 32, endpoints: 256, clusters: 8, imports: 32 };

/// An engine, its maps, and a clock that stands still unless a test moves it.
pub(crate) struct World {
    pub(crate) engine: Engine,
    maps: GrowableMemoryMaps,
    pub(crate) now: Cell<Instant>,
    /// By how much the clock moves each time it is read.
    tick: Duration,
}

impl World {
    pub(crate) fn new(capacity: Capacity) -> Self {
        Self::on(GrowableMemoryMaps::new(capacity))
    }

    /// An agent that finds these maps.
    fn on(maps: GrowableMemoryMaps) -> Self {
        let node = NodeContext { capacity: BOUND, ..plain_node() };
        let (mut engine, findings) =
            Engine::start(&maps, maps.capacity(), node, SystemTime::now()).expect("in memory");
        assert_eq!(findings, []);
        engine.set_most_steps(4);
        Self { engine, maps, now: Cell::new(Instant::now()), tick: Duration::ZERO }
    }

    pub(crate) fn take(&mut self, events: impl Into<Vec<ObjectEvent>>) -> BatchSummary {
        self.engine.take(EventBatch { events: events.into(), ..EventBatch::default() })
    }

    fn reconcile(&mut self) -> RoundSummary {
        let clock = || {
            self.now.set(self.now.get() + self.tick);
            self.now.get()
        };
        testing::reconcile(&mut self.engine, &mut self.maps, clock)
    }

    /// A round that gets no larger maps yet.
    fn reconcile_once(&mut self) -> RoundSummary {
        self.engine.reconcile(&mut self.maps, || self.now.get())
    }

    /// A round that leaves nothing to do.
    pub(crate) fn settle(&mut self) -> RoundSummary {
        let round = self.reconcile();
        assert!(round.is_written(), "{round:?}");
        self.assert_arrived(self.maps.contents());
        round
    }

    fn assert_arrived(&self, contents: &MapContents) {
        let (found, findings) = Realized::restore(contents.clone(), BOUND);
        assert_eq!(findings, []);
        let Plan { steps, deferred, .. } = plan(self.engine.desired(), &found, Pruning::On);
        assert_eq!((steps, deferred), (vec![], vec![]));
    }

    fn backends(&self) -> usize {
        self.engine.realized().in_force().frontends.values().map(|one| one.backends.len()).sum()
    }
}

/// An import `shop/web-<n>` of one port. From the fifth on they are of UDP.
pub(crate) fn web(number: usize) -> ServiceImport {
    let import = import(&format!("shop/web-{number}")).ip(&format!("10.0.0.{}", number + 1));
    import.port_of("http", 80, Some(protocol(number)))
}

fn protocol(number: usize) -> &'static str {
    if number < 4 { "TCP" } else { "UDP" }
}

/// A slice of that import with `count` endpoints, from `first` on.
pub(crate) fn pods(number: usize, first: usize, count: usize) -> EndpointSlice {
    let empty = slice(&format!("shop/web-{number}-a"), &format!("web-{number}"));
    let empty = empty.port_of("http", Some(8080), Some(protocol(number)));
    (first..first + count).fold(empty, |slice, pod| slice.address(&format!("10.1.{number}.{pod}")))
}

pub(crate) fn apply_import(import: ServiceImport) -> ObjectEvent {
    ObjectEvent::Apply(Object::Import(import))
}

pub(crate) fn apply_slice(slice: EndpointSlice) -> ObjectEvent {
    ObjectEvent::Apply(Object::Slice(slice))
}

fn delete(number: usize) -> ObjectEvent {
    ObjectEvent::Delete(ObjectRef {
        kind: Kind::ServiceImport,
        key: key(&format!("shop/web-{number}")),
    })
}

/// The complete lists of these imports, each with a slice of `endpoints` endpoints.
fn lists(numbers: std::ops::Range<usize>, endpoints: usize) -> [ObjectEvent; 2] {
    let imports = numbers.clone().map(|number| Object::Import(web(number))).collect();
    let slices = numbers.map(|number| Object::Slice(pods(number, 1, endpoints))).collect();
    [
        ObjectEvent::Relist { kind: Kind::ServiceImport, objects: imports },
        ObjectEvent::Relist { kind: Kind::EndpointSlice, objects: slices },
    ]
}

fn delay(round: &RoundSummary) -> Option<Duration> {
    match round.outcome {
        Outcome::Failed(delay) => Some(delay),
        _ => None,
    }
}

#[test]
fn a_round_writes_what_batches_asked_for() {
    let mut world = World::new(BOUND);
    let taken = world.take(lists(0..3, 2));
    assert_eq!((taken.changes.len(), taken.imports), (6, 3));
    let round = world.settle();
    assert!(round.became_synced);
    let Outcome::Written(changes) = round.outcome else { panic!("{round:?}") };
    assert_eq!((changes.imports(), changes.slices()), (3, 3));
    assert_eq!(world.backends(), 6);
    assert_eq!(world.settle().planned, 0);
}

#[test]
fn a_long_plan_is_written_in_parts() {
    let writes = |part| {
        let mut world = World::new(BOUND);
        world.engine.set_most_steps(part);
        world.take(lists(0..3, 2));
        (world.settle().planned, world.settle().planned)
    };
    let whole = writes(usize::MAX);
    assert_eq!(whole.1, 0);
    for part in 1..whole.0 {
        assert_eq!(writes(part), whole);
    }
}

#[test]
fn the_first_lists_wait_for_larger_maps() {
    let mut world = World::new(SMALL);
    world.take(lists(0..3, 4));
    let capacity = Capacity { vips: 4, frontends: 4, endpoints: 16, clusters: 1, imports: 4 };
    for _ in 0..2 {
        let round = world.reconcile_once();
        assert!(matches!(round.outcome, Outcome::Growing) && !round.became_synced, "{round:?}");
        assert_eq!((round.larger, round.planned), (Some(capacity), 0));
        assert_eq!(*world.maps.contents(), MapContents::default());
    }
    assert!(world.settle().became_synced);
    assert_eq!((world.maps.capacity(), world.maps.growths), (capacity, 1));
    assert_eq!(world.backends(), 12);
}

#[test]
fn what_fits_is_written_if_larger_maps_cannot_be_made() {
    let mut world = World::new(SMALL);
    world.maps.failing_growths = 1;
    world.take(lists(0..2, 2));
    let round = world.reconcile();
    assert_eq!(delay(&round), Some(Duration::from_secs(1)));
    assert_eq!((world.backends(), world.maps.capacity()), (2, SMALL), "what fits");
    world.now.set(world.engine.retry_at().unwrap());
    world.settle();
    assert_eq!((world.backends(), world.maps.growths), (4, 1));
}

#[test]
fn a_growth_that_fails_is_tried_again_ever_later_and_other_changes_go_on() {
    let mut world = World::new(SMALL);
    world.take(lists(0..1, 2));
    world.settle();
    world.maps.failing_growths = 12;
    let mut first = 7;
    for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300] {
        world.take([apply_import(web(1)), apply_slice(pods(0, first, 2))]);
        let due = world.now.get() + Duration::from_secs(seconds);
        for _ in 0..2 {
            let round = world.reconcile();
            assert_eq!(delay(&round), Some(Duration::from_secs(seconds)), "{round:?}");
            assert_eq!(round.failures.len(), 0);
            // A frontend that no endpoint serves has its own time.
            assert!(world.engine.retry_at().is_some_and(|at| at <= due));
        }
        let pending = world.engine.why_pending();
        assert!(pending[0].contains("10.0.0.2:80/TCP stays as it is"), "{pending:?}");
        let why = "cannot make larger maps: no memory for larger maps";
        assert_eq!(pending.last().map(String::as_str), Some(why));
        assert_eq!(world.engine.not_grown(), Some(why));
        let in_force = world.engine.realized().in_force();
        let addresses = in_force.frontends.values().flat_map(|frontend| &frontend.backends);
        let expected = [first, first + 1].map(|pod| format!("10.1.0.{pod}:8080"));
        assert!(addresses.map(|backend| backend.address.to_string()).eq(expected));
        world.now.set(due);
        first += 2;
    }
    world.settle();
    assert_eq!(world.maps.growths, 1);
    assert!(world.engine.why_pending().is_empty() && world.engine.retry_at().is_none());
    assert_eq!(world.engine.not_grown(), None);
}

#[test]
fn maps_grow_for_vips_that_are_refused_for_want_of_frontends() {
    let mut world = World::new(SMALL);
    let capacity = Capacity { vips: 4, frontends: 2, ..BOUND };
    world.engine.set_node(NodeContext { capacity, ..plain_node() });
    let served = |world: &World| -> Vec<String> {
        world.engine.realized().in_force().frontends.keys().map(ToString::to_string).collect()
    };
    world.take(lists(0..4, 2));
    world.settle();
    assert_eq!(served(&world), ["10.0.0.1:80/TCP", "10.0.0.2:80/TCP"]);
    assert_eq!(world.maps.contents().vips.len(), 4, "the others are refused");
    assert_eq!((world.maps.capacity().vips, world.maps.capacity().frontends), (4, 2));
    world.take([delete(0)]);
    world.settle();
    assert_eq!(served(&world), ["10.0.0.2:80/TCP", "10.0.0.3:80/TCP"]);
}

/// Room for 16 endpoints, of which 14 are there.
fn almost_full() -> World {
    let mut world =
        World::new(Capacity { vips: 8, frontends: 8, endpoints: 16, clusters: 4, imports: 8 });
    world.take(lists(0..2, 7));
    world.settle();
    assert_eq!(world.maps.growths, 0);
    world
}

#[test]
fn maps_grow_before_they_are_full_and_no_change_waits() {
    let mut world = almost_full();
    world.take([apply_slice(pods(0, 1, 9))]);
    let round = world.reconcile_once();
    assert!(round.is_written() && round.planned > 0, "it has room");
    let larger = round.larger.expect("the maps are full");
    assert_eq!(larger.endpoints, 32);
    world.maps.grow(larger).unwrap();
    world.engine.has_grown(larger);
    let round = world.reconcile_once();
    assert_eq!(
        (round.planned, round.larger),
        (0, None),
        "the larger maps hold what the former did"
    );
    world.take([apply_slice(pods(1, 1, 15))]);
    world.settle();
    assert_eq!((world.backends(), world.maps.growths), (24, 1));
}

#[test]
fn a_failure_to_grow_in_advance_is_no_failure_of_a_change() {
    let mut world = almost_full();
    world.maps.failing_growths = 3;
    world.take([apply_slice(pods(0, 1, 9))]);
    for seconds in [1, 2, 4] {
        world.settle();
        let not_grown = world.engine.not_grown().expect("it failed");
        assert_eq!(not_grown, "cannot make larger maps: no memory for larger maps");
        let due = world.now.get() + Duration::from_secs(seconds);
        assert_eq!(world.engine.retry_at(), Some(due));
        world.take([apply_slice(pods(0, 2, 9))]);
        assert_eq!(world.settle().larger, None, "not before its time");
        world.now.set(due);
    }
    world.settle();
    assert_eq!((world.maps.growths, world.engine.retry_at()), (1, None));
    assert_eq!(world.maps.capacity().endpoints, 32);
}

#[test]
fn larger_maps_that_nobody_needs_any_more_are_not_asked_for() {
    let mut world = almost_full();
    world.maps.failing_growths = 1;
    world.take([apply_slice(pods(0, 1, 9))]);
    world.settle();
    world.take([apply_slice(pods(0, 1, 2))]);
    world.settle();
    assert!(world.engine.retry_at().is_some(), "what was there took the room until then");
    world.now.set(world.engine.retry_at().unwrap());
    world.settle();
    assert_eq!((world.engine.not_grown(), world.engine.retry_at()), (None, None));
}

#[test]
fn a_vip_is_inserted_only_with_its_frontends() {
    let mut world =
        World::new(Capacity { vips: 8, frontends: 8, endpoints: 2, clusters: 1, imports: 8 });
    world.take(lists(0..0, 0));
    world.settle();
    world.take([apply_import(web(0)), apply_slice(pods(0, 1, 3))]);
    let round = world.reconcile_once();
    assert!(matches!(round.outcome, Outcome::Growing), "{round:?}");
    assert!(world.maps.contents().vips.is_empty(), "a client would be refused");
    world.settle();
    assert_eq!((world.maps.contents().vips.len(), world.backends()), (1, 3));
}

#[test]
fn delays_grow_with_each_failure_until_a_success() {
    let mut world = World::new(BOUND);
    let broken = Faults { per_mille: 1000, length: 1, seed: 0 };
    world.maps.set_faults(broken);
    world.take(lists(0..1, 1));
    for millis in [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000] {
        let round = world.reconcile();
        assert_eq!(delay(&round), Some(Duration::from_millis(millis)));
        assert_eq!(world.engine.retry_at(), Some(world.now.get() + delay(&round).unwrap()));
        world.now.set(world.engine.retry_at().unwrap());
    }
    assert_eq!(
        (world.engine.pending_changes().imports(), world.engine.pending_changes().slices()),
        (1, 1)
    );
    world.maps.set_faults(Faults::default());
    world.settle();
    assert_eq!(world.engine.retry_at(), None);
    assert_eq!(world.engine.pending_changes().imports(), 0);
    world.maps.set_faults(broken);
    world.take([apply_import(web(1))]);
    assert_eq!(delay(&world.reconcile()), Some(Duration::from_millis(50)));
}

#[test]
fn nothing_is_pruned_before_the_source_is_synced() {
    let mut former = World::new(BOUND);
    former.take(lists(0..3, 2));
    former.settle();
    let mut world = World::on(former.maps);
    let [imports, slices] = lists(0..1, 1);
    for event in [vec![], vec![imports], vec![apply_slice(pods(0, 1, 1))]] {
        world.take(event);
        let round = world.reconcile();
        assert!(round.is_written() && !round.became_synced);
        assert_eq!((round.planned, round.deferred), (0, vec![]));
        assert_eq!(world.backends(), 6);
    }
    world.take([slices]);
    assert!(world.settle().became_synced);
    assert_eq!(world.backends(), 1);
}

#[test]
fn an_agent_that_reads_the_same_as_its_predecessor_writes_nothing() {
    let mut former = World::new(SMALL);
    former.take(lists(0..4, 3));
    former.settle();
    let contents = former.maps.contents().clone();
    let mut world = World::on(former.maps);
    world.take(lists(0..4, 3));
    assert_eq!(world.settle().planned, 0);
    assert_eq!(*world.maps.contents(), contents);
}

#[test]
fn the_first_change_is_written_at_once_and_those_that_follow_together() {
    const PERIOD: Duration = Duration::from_millis(25);
    let mut world = World::new(BOUND);
    world.engine.set_min_sync_period(PERIOD);
    world.take(lists(0..2, 1));
    assert_eq!(world.engine.gather_until(), None, "nothing was before");
    world.settle();
    let until = Some(world.now.get() + PERIOD);
    world.now.set(world.now.get() + PERIOD / 5);
    for pod in 2..4 {
        world.take([apply_slice(pods(0, pod, 1)), apply_slice(pods(1, pod, 1))]);
        assert_eq!(world.engine.gather_until(), until, "each waits for the same moment");
    }
    world.now.set(world.now.get() + PERIOD);
    world.settle();
    let until = Some(world.now.get() + PERIOD);
    world.now.set(world.now.get() + PERIOD / 5);
    world.reconcile();
    world.take([apply_slice(pods(0, 4, 1))]);
    assert_eq!(world.engine.gather_until(), until, "a round without changes delays none");
    world.now.set(world.now.get() + PERIOD);
    assert!(world.engine.gather_until() < Some(world.now.get()), "the next one is the first again");
}

#[test]
fn a_full_round_waits_for_three_times_the_last_ones_duration() {
    let mut world = World::new(BOUND);
    world.tick = Duration::from_millis(10);
    world.take(lists(0..1, 1));
    assert_eq!(world.engine.gather_until(), None, "the first one does not wait");
    let round = world.settle();
    assert!(round.took >= world.tick);
    let until = world.now.get() + 3 * round.took;
    assert_eq!(world.engine.gather_until(), None, "there is nothing to do");
    world.take([apply_slice(pods(0, 2, 1))]);
    world.take([apply_import(web(1))]);
    assert_eq!(world.engine.gather_until(), None, "a partial round does not wait");
    let with_the_vip_of_another = |number| apply_import(web(number).ip("10.0.0.1"));
    world.take([with_the_vip_of_another(1)]);
    assert_eq!(world.engine.gather_until(), Some(until));
    world.tick = Duration::from_secs(10);
    world.settle();
    world.take([with_the_vip_of_another(2)]);
    assert_eq!(world.engine.gather_until(), Some(world.now.get() + Duration::from_secs(1)));
}

#[test]
fn only_a_removal_leaves_stale_sockets() {
    for (protocol, its) in [("UDP", Protocol::Udp), ("TCP", Protocol::Tcp)] {
        let mut world = World::new(BOUND);
        let dns = |addresses: &[&str]| {
            let empty = slice("shop/dns-a", "dns").port_of("dns", Some(53), Some(protocol));
            apply_slice(addresses.iter().fold(empty, |slice, address| slice.address(address)))
        };
        let import = import("shop/dns").ip("10.0.0.1").port_of("dns", 53, Some(protocol));
        world.take(lists(0..0, 0));
        world.take([apply_import(import), dns(&["10.1.0.1", "10.1.0.2"])]);
        assert_eq!(world.settle().may_leave_stale, [its].into(), "an import comes back");
        world.take([dns(&["10.1.0.1", "10.1.0.2", "10.1.0.3"])]);
        assert!(world.settle().may_leave_stale.is_empty());
        world.take([dns(&["10.1.0.1"])]);
        assert_eq!(world.settle().may_leave_stale, [its].into(), "{protocol}");
        world.take([dns(&[])]);
        world.settle();
        world.take([dns(&["10.1.0.9"])]);
        assert_eq!(world.settle().may_leave_stale, [its].into(), "{protocol} serves again");
    }
}

/// A UDP service of two endpoints, of which the second terminates.
fn draining() -> [ObjectEvent; 2] {
    let import = import("shop/dns").ip("10.0.0.53").port_of("dns", 53, Some("UDP"));
    let slice = slice("shop/dns-a", "dns").port_of("dns", Some(53), Some("UDP"));
    let slice = slice.address("10.1.53.1").endpoint(endpoint("10.1.53.2").draining());
    [apply_import(import), apply_slice(slice)]
}

/// The same service before the second endpoint terminates.
fn steady() -> ObjectEvent {
    let slice = slice("shop/dns-a", "dns").port_of("dns", Some(53), Some("UDP"));
    apply_slice(slice.address("10.1.53.1").address("10.1.53.2"))
}

#[test]
fn a_kept_backend_survives_a_restart_and_larger_maps() {
    let mut former =
        World::new(Capacity { vips: 4, frontends: 4, endpoints: 4, clusters: 1, imports: 4 });
    former.take(lists(0..0, 0));
    former.take(draining());
    former.take([steady()]);
    former.settle();
    former.take(draining());
    former.settle();
    assert_eq!((former.backends(), former.engine.realized().kept_backends()), (1, 1));

    let mut world = World::on(former.maps);
    assert_eq!(world.engine.realized().kept_backends(), 1);
    world.take([apply_import(web(0)), apply_slice(pods(0, 1, 9))]);
    assert!(world.reconcile().is_written());
    assert!(world.maps.capacity().endpoints > 4, "the maps grew");
    assert_eq!(world.engine.realized().kept_backends(), 1, "before the source is synced");

    world.take(lists(0..1, 9));
    world.take(draining());
    let round = world.settle();
    assert!(round.became_synced && round.may_leave_stale.is_empty(), "{round:?}");
    assert_eq!((world.backends(), world.engine.realized().kept_backends()), (10, 1));
    world.take([steady()]);
    world.settle();
    assert_eq!((world.backends(), world.engine.realized().kept_backends()), (11, 0));
}

#[test]
fn facts_of_flags_take_precedence_over_those_of_the_source() {
    let mut world = World::new(BOUND);
    let traffic = Traffic::parse(r#"{"west":{"drain":true}}"#).unwrap();
    let node = NodeFacts { zone: Some("a".to_owned()), traffic, ..NodeFacts::default() };
    world.engine.take(EventBatch { node: node.into(), ..EventBatch::default() });
    assert_eq!(world.engine.node().facts.zone.as_deref(), Some("a"));
    assert!(world.engine.node().facts.traffic.is_drained("west"), "no flag says anything of it");
    assert!(world.engine.set_node_addresses(["10.0.0.9".parse().unwrap()].into()));
    assert!(!world.engine.set_node_addresses(["10.0.0.9".parse().unwrap()].into()));
    assert_eq!(world.engine.node().facts.zone.as_deref(), Some("a"));
    let west = || ["west".into()].into();
    assert!(world.engine.set_past_deadline(west()));
    assert!(world.engine.node().facts.traffic.is_past_deadline("west"));
    assert!(!world.engine.set_past_deadline(west()));
    let zone = Some("b".to_owned());
    world.engine.set_node(knowing(world.engine.node().clone(), |facts| facts.zone = zone));
    assert_eq!(world.engine.node().facts.zone.as_deref(), Some("b"));
}

/// A random change of one of eight services.
fn change(random: &mut Rng) -> ObjectEvent {
    let number = random.usize(0..8);
    match random.u8(0..10) {
        0 => apply_import(web(number)),
        1 => ObjectEvent::Delete(ObjectRef {
            kind: Kind::ServiceImport,
            key: key(&format!("shop/web-{number}")),
        }),
        _ => {
            let mut slice = pods(number, random.usize(1..9), random.usize(0..9));
            let endpoints = slice.endpoints.iter().cloned();
            let some_drain = |one: Endpoint| if random.bool() { one.draining() } else { one };
            slice.endpoints = endpoints.map(some_drain).collect();
            apply_slice(slice)
        }
    }
}

/// Bursts of changes while writes and growths fail: in the end the maps are as desired.
fn converges(faults: Faults) -> usize {
    let mut random = Rng::with_seed(faults.seed);
    let mut world =
        World::on(GrowableMemoryMaps::with_contents(SMALL, MapContents::default(), faults));
    world.take(lists(0..4, 2));
    let mut failures = 0;
    for _ in 0..60 {
        let burst: Vec<_> = (0..random.usize(1..5)).map(|_| change(&mut random)).collect();
        world.take(burst);
        world.maps.failing_growths = u32::from(random.u8(0..3) == 0);
        failures += world.reconcile().failures.len();
        // No frontend may be unfit for a reader.
        assert_eq!(Realized::restore(world.maps.contents().clone(), BOUND).1, []);
    }
    for _ in 0..1000 {
        world.now.set(world.engine.retry_at().unwrap_or_else(|| world.now.get()));
        let round = world.reconcile();
        failures += round.failures.len();
        if round.is_written() {
            world.assert_arrived(world.maps.contents());
            assert!(world.maps.growths > 0, "the maps grew");
            return failures;
        }
    }
    panic!("no end after 1000 rounds: {:?}", world.engine.why_pending());
}

#[test]
fn one_system_call_in_ten_fails_and_the_maps_end_as_desired() {
    let failures: usize =
        (0..40).map(|seed| converges(Faults { per_mille: 100, length: 1, seed })).sum();
    assert!(failures > 100, "{failures}");
}

#[test]
fn writes_fail_in_bursts_and_the_maps_end_as_desired() {
    let failures: usize =
        (0..40).map(|seed| converges(Faults { per_mille: 10, length: 50, seed })).sum();
    assert!(failures > 400, "{failures}");
}
