//! What must hold whatever is wanted, whenever the agent dies and whichever writes fail: checked by
//! the production reader after every single write.

mod script;
mod view;
mod watched;

use proptest::prelude::*;

use self::{
    script::{Event, capacity, desired, events, steady},
    watched::Watched,
};
use super::{Dump, Faulty, Maps, MemoryMaps, Plan, Realized, apply, plan};
use crate::model::{Capacity, Desired};

/// Maps under watch, and the agent that writes them.
struct World {
    capacity: Capacity,
    maps: Faulty<Watched>,
    realized: Realized,
}

impl World {
    fn new(capacity: Capacity, fault_per_mille: u16, seed: u64) -> Self {
        let maps = Watched::new(MemoryMaps::new(capacity));
        let maps = Faulty::new(maps, fault_per_mille, seed);
        Self { capacity, maps, realized: Realized::empty(capacity) }
    }

    /// Goes some of the way to what the event wants, all of it unless it says otherwise.
    fn play(&mut self, event: &Event) {
        let Event { desired, prune, stop, restart } = event;
        let mut plan = plan(desired, &self.realized, *prune);
        assert_eq!(plan.deferred, []);
        if let Some(stop) = stop {
            plan.steps.truncate(stop.index(plan.steps.len() + 1));
        }
        self.maps.maps.expect(desired, *prune, self.realized.tables());
        // A failed write is one more way to stop.
        let _ = apply(&plan, &mut self.maps, &mut self.realized);
        if *restart {
            self.restart();
        }
    }

    /// Another agent takes over what this one left.
    fn restart(&mut self) {
        let dump = self.maps.dump().expect("in memory");
        let (realized, findings) = Realized::restore(dump, self.capacity);
        assert_eq!(findings, []);
        self.realized = realized;
    }

    /// Tries until the maps hold what is wanted, and nothing else.
    fn converge(&mut self, desired: &Desired) {
        for _ in 0..1000 {
            let plan = plan(desired, &self.realized, true);
            assert_eq!(plan.deferred, []);
            self.maps.maps.expect(desired, true, self.realized.tables());
            if apply(&plan, &mut self.maps, &mut self.realized).is_ok() {
                self.maps.maps.assert_arrived();
                self.assert_known();
                assert_eq!(super::plan(desired, &self.realized, true), Plan::default());
                return;
            }
        }
        panic!("no end of it");
    }

    /// What the agent believes of the maps is so, for all that a reader can reach.
    fn assert_known(&self) {
        let reachable = |dump: &Dump| {
            let listing = dump.to_string();
            listing.lines().filter(|line| !line.starts_with("RETIRED")).collect::<String>()
        };
        let dump = self.maps.dump().expect("in memory");
        assert_eq!(reachable(self.realized.tables()), reachable(&dump));
        let reachable = Realized::restore(dump, self.capacity).0.endpoints();
        assert_eq!(self.realized.endpoints(), reachable);
    }
}

/// The maps of an agent that only ever wanted this.
fn fresh(desired: &Desired, capacity: Capacity) -> String {
    let mut world = World::new(capacity, 0, 0);
    world.converge(desired);
    world.maps.dump().expect("in memory").contents().to_string()
}

proptest! {
    #[test]
    fn every_frontend_is_whole_after_every_step(events in events(steady())) {
        let mut world = World::new(capacity(), 0, 0);
        for event in &events {
            world.play(event);
            world.maps.maps.assert_arrived();
            let again = plan(&event.desired, &world.realized, event.prune);
            prop_assert_eq!(again, Plan::default());
        }
    }

    #[test]
    fn an_agent_that_dies_anywhere_is_succeeded(
        events in events(script::interrupted()),
        last in desired(),
    ) {
        let mut world = World::new(capacity(), 0, 0);
        for event in &events {
            world.play(event);
        }
        world.converge(&last);
        let contents = world.maps.dump().expect("in memory").contents().to_string();
        prop_assert_eq!(contents, fresh(&last, capacity()));
    }

    #[test]
    fn writes_that_fail_are_made_up_for(
        events in events(script::interrupted()),
        last in desired(),
        seed in any::<u64>(),
    ) {
        let mut world = World::new(capacity(), 100, seed);
        for event in &events {
            world.play(event);
        }
        world.converge(&last);
        let contents = world.maps.dump().expect("in memory").contents().to_string();
        prop_assert_eq!(contents, fresh(&last, capacity()));
    }

    #[test]
    fn full_maps_can_be_changed(desired in prop::collection::vec(desired(), 2..6)) {
        let capacity = script::tight(&desired);
        let mut world = World::new(capacity, 0, 0);
        for desired in &desired {
            world.converge(desired);
        }
    }
}
