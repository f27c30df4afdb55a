//! What takes half a minute each, at once: each has an agent of its own, and none loads a CPU.

use anyhow::anyhow;

use crate::{
    attachment::{is_proven, is_shadowed},
    prelude::*,
    stale::bounded::Bounded,
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case(
        "nobody sends to a pod that has gone for longer than 30 s; meanwhile the attachment is proven from cgroups \
         below, and a program of others before ours is noticed",
        at_once,
    );
}

fn at_once(world: &mut World) -> Result {
    let world = &*world;
    // Its clients visit a cgroup, into which no agent may be born.
    let bounded = Bounded::begin(world)?;
    thread::scope(|scope| {
        let checks = [is_proven, is_shadowed].map(|check| scope.spawn(move || check(world)));
        let ended = bounded.ends();
        let results = checks.map(|check| check.join().map_err(|_| anyhow!("a check panicked"))?);
        results.into_iter().chain([ended]).collect()
    })
}
