//! Backends that this node ejects.

use super::*;
use crate::core::{
    model::{Ejection, EjectionState, Ejections, Frontend},
    rules::EjectsAll,
};

fn ejections(state: EjectionState) -> Ejections {
    let dead = Ejection {
        import: key("shop/web-0"),
        backend: "10.1.0.1:8080".parse().unwrap(),
        cluster: "east".into(),
        state,
        times: 1,
        used: false,
    };
    std::iter::once(&dead).collect()
}

impl World {
    /// The slots of each backend of both imports.
    fn by_backend(&mut self) -> Vec<usize> {
        self.settle();
        let frontends = self.engine.realized().in_force().frontends;
        let slots = |frontend: &Frontend| frontend.slots.counts(frontend.backends.len()).collect();
        frontends.values().flat_map(|one| -> Vec<u32> { slots(one) }).map(|n| n as usize).collect()
    }
}

#[test]
fn an_ejected_backend_leaves_its_own_import_and_comes_back_with_one_slot() {
    let mut world = World::new(BOUND);
    world.engine.prefer(Some(Box::new(EjectsAll)));
    let slice = |nth| pods(nth, 1, 0).address("10.1.0.1").address("10.1.0.2");
    let imports = vec![web(0).into(), web(1).into()];
    let slices = [slice(0), slice(1)].map(Object::Slice).into();
    world.take([
        ObjectEvent::Relist { kind: Kind::ServiceImport, objects: imports },
        ObjectEvent::Relist { kind: Kind::EndpointSlice, objects: slices },
    ]);
    assert_eq!(world.by_backend(), [1, 1, 1, 1]);
    assert_eq!(world.engine.rules().ejecting().len(), 2);
    let served = |(_, id)| world.engine.realized().served(id).count();
    assert_eq!(world.engine.rules().watchable().map(served).collect::<Vec<_>>(), [2, 2]);
    assert!(world.engine.set_ejections(ejections(EjectionState::Ejected)));
    assert_eq!(world.by_backend(), [1, 1, 1]);
    assert!(!world.engine.set_ejections(ejections(EjectionState::Ejected)));
    assert!(world.engine.set_ejections(ejections(EjectionState::HalfOpen)));
    assert_eq!(world.by_backend(), [1, 4, 1, 1]);
    assert!(world.engine.set_ejections(Ejections::default()));
    assert_eq!(world.by_backend(), [1, 1, 1, 1]);
}

#[test]
fn an_import_that_does_not_ask_ejects_nothing() {
    let mut world = World::new(BOUND);
    let slice = pods(0, 1, 0).address("10.1.0.1").address("10.1.0.2");
    world.take([
        ObjectEvent::Relist { kind: Kind::ServiceImport, objects: vec![web(0).into()] },
        ObjectEvent::Relist { kind: Kind::EndpointSlice, objects: vec![Object::Slice(slice)] },
    ]);
    assert_eq!(world.by_backend(), [1, 1]);
    assert!(world.engine.rules().ejecting().is_empty());
    world.engine.set_ejections(ejections(EjectionState::Ejected));
    assert_eq!(world.by_backend(), [1, 1]);
}
