//! What must hold whatever is wanted, whenever the agent dies and whichever writes fail: checked by
//! the production reader after every single write.

mod clients;
mod script;
mod view;

use proptest::prelude::*;

use self::{
    clients::Clients,
    script::{Event, capacity, desired, events, steady},
    view::after,
};
use super::{
    MapContents, MapReader as _, MapView, Maps, Plan, Planned, Pruning, Realized, apply,
    fixtures::{self, frontend, go, maps, pods},
    plan, plan_within,
    testing::{FaultyMaps, MemoryMaps, Watched, can_fail, same_attributes, same_backends},
};
use crate::core::model::{Capacity, DesiredChanges, DesiredState, Frontend, FrontendId};

/// Steps after which a plan ends.
const PART: usize = 5;

/// Maps under watch, and the agent that writes them.
#[derive(Clone)]
struct World {
    capacity: Capacity,
    maps: FaultyMaps<Watched<MemoryMaps>>,
    realized: Realized,
}

impl World {
    fn new(capacity: Capacity, fault_per_mille: u16, seed: u64) -> Self {
        let maps = Watched::new(MemoryMaps::new(capacity)).expect("consistent");
        let maps = FaultyMaps::new(maps, fault_per_mille, seed);
        Self { capacity, maps, realized: Realized::empty(capacity) }
    }

    /// Maps as found.
    fn found(capacity: Capacity, dump: MapContents) -> Self {
        let maps = MemoryMaps::with_contents(capacity, dump);
        let maps = Watched::new(maps).expect("consistent");
        let mut world = Self::new(capacity, 0, 0);
        world.maps = FaultyMaps::new(maps, 0, 0);
        world.restart();
        world
    }

    /// Writes under watch. Clients find what they found before, or what is wanted, which is returned.
    fn watched(
        &mut self,
        desired: &DesiredState,
        pruning: Pruning,
        write: impl FnOnce(&mut Self),
    ) -> MapView {
        let wanted = after(&self.maps.maps.view().expect("consistent"), desired, pruning);
        self.maps.maps.watch().expect("consistent");
        write(self);
        let verdict = self.maps.maps.verdict(std::slice::from_ref(&wanted));
        verdict.unwrap_or_else(|fault| panic!("{fault:#}"));
        wanted
    }

    /// The writes have led where they were to.
    fn assert_arrived(&self, wanted: &MapView) {
        let now = self.maps.maps.view().expect("consistent");
        assert_eq!(now.vips, wanted.vips);
        assert!(now.frontends.keys().eq(wanted.frontends.keys()), "{now}\n{wanted}");
        for (now, wanted) in now.frontends.values().zip(wanted.frontends.values()) {
            assert!(same_backends(now, wanted) && same_attributes(now, wanted), "{now}\n{wanted}");
        }
    }

    /// Goes some of the way to what the event wants, all of it unless it says otherwise. Returns what that is.
    fn play(&mut self, event: &Event) -> MapView {
        let Event { desired, pruning, stop, restart } = event;
        let mut plan = plan(desired, &self.realized, *pruning);
        assert_eq!(plan.deferred, []);
        if let Some(stop) = stop {
            plan.steps.truncate(stop.index(plan.steps.len() + 1));
        }
        let wanted = self.watched(desired, *pruning, |world| {
            // A failed write is one more way to stop.
            let plan = Planned::after(plan.steps, &world.realized);
            let _ = apply(plan, &mut world.maps, &mut world.realized);
        });
        if *restart {
            self.restart();
        }
        wanted
    }

    /// Goes some of the way, up to a write that fails, with effect or without.
    fn fail_at(&mut self, nth: usize, plan: &Plan, desired: &DesiredState, takes_effect: bool) {
        let done = nth + usize::from(takes_effect);
        self.watched(desired, Pruning::On, |world| {
            plan.steps[..done].iter().for_each(|step| world.maps.write(step).expect("no fault"));
        });
        self.realized.read_again(self.maps.reader());
    }

    /// Another agent takes over what this one left.
    fn restart(&mut self) {
        let dump = self.maps.reader().read_all().expect("in memory");
        let (realized, findings) = Realized::restore(dump, self.capacity);
        assert_eq!(findings, []);
        self.realized = realized;
    }

    /// Tries until the maps hold what is wanted, and nothing else, in parts of a few steps.
    fn converge(&mut self, desired: &DesiredState) {
        for _ in 0..1000 {
            let everything = &DesiredChanges::Everything;
            let foreseen = plan_within(everything, desired, &self.realized, Pruning::On, PART);
            let plan = foreseen.plan.clone();
            assert_eq!(plan.deferred, []);
            let recorded = self.realized.after(&plan.steps);
            let mut is_done = false;
            let wanted = self.watched(desired, Pruning::On, |world| {
                is_done = apply(foreseen, &mut world.maps, &mut world.realized).is_ok();
            });
            if is_done {
                assert_eq!(self.realized.contents(), recorded.contents());
                let [foreseen, recorded] = [&self.realized, &recorded].map(Realized::allocations);
                assert_eq!(format!("{foreseen:?}"), format!("{recorded:?}"));
                if plan.is_part {
                    continue;
                }
                self.assert_arrived(&wanted);
                self.assert_known();
                assert_eq!(super::plan(desired, &self.realized, Pruning::On), Plan::default());
                return;
            }
        }
        panic!("no end of it");
    }

    /// What the agent believes of the maps is so, for all that a reader can reach.
    fn assert_known(&self) {
        let dump = self.maps.reader().read_all().expect("in memory");
        assert_eq!(MapView::of(self.realized.contents()), MapView::of(&dump));
        let restored = Realized::restore(dump, self.capacity).0;
        assert_eq!(self.realized.slots(), restored.slots());
        assert!(self.realized.kept().eq(restored.kept()));
    }
}

/// The maps of an agent that only ever wanted this.
fn fresh(desired: &DesiredState, capacity: Capacity) -> String {
    contents_after(World::new(capacity, 0, 0), &[], desired)
}

/// The maps after these events, and when the last wish has come true.
fn contents_after(mut world: World, events: &[Event], last: &DesiredState) -> String {
    for event in events {
        world.play(event);
    }
    world.converge(last);
    let contents = world.maps.reader().read_all().expect("in memory");
    // Which backends are kept depends on what was wanted before.
    MapView::of(&contents).without_kept().to_string()
}

/// Five backends, each alone in the middle of nowhere: the longest run of free slots is 10.
#[test]
fn blocks_move_where_no_run_is_long_enough() {
    let capacity = Capacity { vips: 6, frontends: 6, endpoints: 16, clusters: 1, imports: 6 };
    let one = |id| (id, frontend("web", &[("10.1.0.1:80", "")]));
    let scattered: [FrontendId; 5] = script::frontends()[..5].try_into().expect("five");
    let scattered = fixtures::desired(scattered.map(one));
    let mut dump = maps(capacity, &[&scattered]).0.contents().clone();
    let ids = std::mem::take(&mut dump.slots);
    for (block, index) in (10..).step_by(11).zip(1..dump.states.len()) {
        let former = std::mem::replace(&mut dump.states[index].extent.block, block);
        *dump.slots.entry(block as usize) = ids[former as usize];
    }

    let mut world = World::found(capacity, dump);
    let mut wanted = scattered;
    let large = Frontend { backends: pods(2, 11), ..frontend("web", &[]) };
    wanted.frontends.insert(script::frontends()[5], large);
    world.converge(&wanted);
}

proptest! {
    #[test]
    fn every_frontend_is_whole_after_every_step(events in events(steady())) {
        let mut world = World::new(capacity(), 0, 0);
        for event in &events {
            let wanted = world.play(event);
            world.assert_arrived(&wanted);
            let again = plan(&event.desired, &world.realized, event.pruning);
            prop_assert_eq!(again, Plan::default());
        }
    }

    #[test]
    fn an_agent_that_dies_anywhere_is_succeeded(
        events in events(script::interrupted()),
        last in desired(),
    ) {
        let world = World::new(capacity(), 0, 0);
        prop_assert_eq!(contents_after(world, &events, &last), fresh(&last, capacity()));
    }

    #[test]
    fn writes_that_fail_are_made_up_for(
        events in events(script::interrupted()),
        last in desired(),
        seed in any::<u64>(),
    ) {
        let world = World::new(capacity(), 100, seed);
        prop_assert_eq!(contents_after(world, &events, &last), fresh(&last, capacity()));
    }

    #[test]
    fn writes_that_fail_in_a_row_are_made_up_for(
        events in events(script::interrupted()),
        last in desired(),
        length in 2..40_u32,
        seed in any::<u64>(),
    ) {
        let mut world = World::new(capacity(), 0, seed);
        world.maps = FaultyMaps::in_bursts(world.maps.maps, 30, length, seed);
        prop_assert_eq!(contents_after(world, &events, &last), fresh(&last, capacity()));
    }

    #[test]
    fn udp_clients_stay_with_what_serves(
        events in prop::collection::vec((desired(), any::<bool>()), 1..8),
    ) {
        let mut world = World::new(capacity(), 0, 0);
        let mut clients = Clients::default();
        for (desired, restart) in &events {
            if *restart {
                world.restart();
            }
            world.converge(desired);
            clients.look(world.realized.contents(), desired);
        }
    }

    #[test]
    fn full_maps_can_be_changed(desired in prop::collection::vec(desired(), 2..6)) {
        let desired: Vec<DesiredState> =
            desired.into_iter().flat_map(|desired| [script::rotated(&desired), desired]).collect();
        let capacity = script::tight(&desired);
        let mut world = World::new(capacity, 0, 0);
        for desired in &desired {
            world.converge(desired);
        }
    }

    #[test]
    fn whatever_the_maps_hold_is_put_right(
        desired in desired(),
        wanted in desired(),
        harm in prop::collection::vec(script::harm(), 1..8),
    ) {
        let mut found = maps(capacity(), &[&desired]).0;
        for step in &harm {
            let _ = found.write(step);
        }
        let (mut realized, _) = Realized::restore(found.contents().clone(), capacity());
        go(&wanted, &mut found, &mut realized);
        let contents = MapView::of(found.contents()).without_kept().to_string();
        prop_assert_eq!(contents, fresh(&wanted, capacity()));
        let (realized, findings) = Realized::restore(found.contents().clone(), capacity());
        prop_assert_eq!(findings, []);
        prop_assert_eq!(plan(&wanted, &realized, Pruning::On).deferred, []);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Also where it is no longer wanted then, or something else is.
    #[test]
    fn any_write_may_fail(first in desired(), second in desired(), third in desired()) {
        let mut world = World::new(capacity(), 0, 0);
        world.converge(&first);
        let plan = plan(&second, &world.realized, Pruning::On);
        for nth in (0..plan.steps.len()).filter(|nth| can_fail(&plan.steps[*nth])) {
            for takes_effect in [false, true] {
                let mut world = world.clone();
                world.fail_at(nth, &plan, &second, takes_effect);
                for next in [&first, &second, &third] {
                    world.clone().converge(next);
                }
            }
        }
    }
}
