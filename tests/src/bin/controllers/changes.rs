//! What happens to a service in the same way whoever imports it: backends, endpoints that leave, exports that end.

use crate::{prelude::*, service::set_last_ready};

/// A way in which a service is exported: a row of the table of controllers in `deploy/limits.md`.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    pub(crate) kind: Kind,
    /// As the table names it.
    pub(crate) row: &'static str,
    /// Lets exactly these clusters export the service of a namespace.
    pub(crate) export: fn(&Stage, &str, &[usize]) -> Result,
    /// Whether the agent serves what its own cluster alone exports.
    pub(crate) serves_alone: bool,
}

/// What a case of a way shows.
pub(crate) type Claim = fn(&mut World, Way) -> Result;

impl Way {
    /// What its cases begin with.
    pub(crate) fn title(self) -> &'static str {
        self.row.split(" (").next().unwrap_or_default()
    }
}

/// The cases of a way that the agent serves.
pub(crate) fn cases(suite: &mut Suite<World>, way: Way) {
    let claims: [(&str, Claim); 3] = [
        ("every backend has its source cluster", served),
        ("an endpoint leaves and comes back", endpoint),
        ("a cluster exports no more, and again", unexported),
    ];
    for (claim, body) in claims {
        suite.case(format!("{}: {claim}", way.title()), move |world| body(world, way));
    }
}

/// Both clusters export a service, and the agent serves it. Returns the namespace.
pub(crate) fn exported(world: &mut World, way: Way) -> Result<(String, Duration)> {
    world.enter(way.kind)?;
    let namespace = world.fresh()?;
    let stage = world.stage()?;
    (way.export)(stage, &namespace, &[0, 1])?;
    let time = stage.wait_for_backends(&namespace, &stage.backends_of(&[0, 1]))?;
    Ok((namespace, time))
}

fn served(world: &mut World, way: Way) -> Result {
    let (namespace, time) = exported(world, way)?;
    world.stage()?.reach(world, &namespace)?;
    world.saw(way.row, "two clusters export", "c1: 2 backends, c2: 2; clients reach all", time)
}

pub(crate) fn endpoint(world: &mut World, way: Way) -> Result {
    let (namespace, _) = exported(world, way)?;
    let stage = world.stage()?;
    let mut without = stage.backends_of(&[0, 1]);
    let [_, second] = stage.both();
    without.remove(&set_last_ready(second, &namespace, false)?);
    let left = stage.wait_for_backends(&namespace, &without)?;
    stage.reach(world, &namespace)?;
    set_last_ready(second, &namespace, true)?;
    let back = stage.wait_for_backends(&namespace, &stage.backends_of(&[0, 1]))?;
    stage.reach(world, &namespace)?;
    world.saw(way.row, "a pod of c2 is not ready", "it is no backend", left)?;
    world.saw(way.row, "it is ready again", "it is one", back)
}

pub(crate) fn unexported(world: &mut World, way: Way) -> Result {
    let (namespace, _) = exported(world, way)?;
    let stage = world.stage()?;
    (way.export)(stage, &namespace, &[0])?;
    let alone = if way.serves_alone { stage.backends_of(&[0]) } else { BTreeSet::new() };
    let left = stage.wait_for_backends(&namespace, &alone)?;
    if way.serves_alone {
        stage.reach(world, &namespace)?;
    }
    (way.export)(stage, &namespace, &[0, 1])?;
    let back = stage.wait_for_backends(&namespace, &stage.backends_of(&[0, 1]))?;
    stage.reach(world, &namespace)?;
    let seen = if way.serves_alone { "c1: 2 backends" } else { "the agent serves nothing" };
    world.saw(way.row, "c2 exports no more", seen, left)?;
    world.saw(way.row, "c2 exports again", "c1: 2 backends, c2: 2", back)
}
