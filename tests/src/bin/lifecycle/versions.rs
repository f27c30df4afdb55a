//! Upgrade to a version of the agent with longer values in the config maps, and back.

use std::{env, path::PathBuf};

use mcs_tests::suite::{Suite, skip, tell};

use crate::{load::Load, world::World};

/// Names an agent whose values are longer.
const OTHER: &str = "MCS_AGENT_WIDE";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("an upgrade to longer values, and back, under load", changes_version);
}

fn changes_version(world: &mut World) -> anyhow::Result<()> {
    let Some(other) = env::var_os(OTHER) else {
        return Err(skip(format!("{OTHER} names no agent: `cargo xtask test` builds it")));
    };
    let other = PathBuf::from(other);
    let target = world.target("upgraded");
    let mut site = world.site("upgraded", &[], &target)?;
    let _in_cgroup = site.cgroup.visit()?;
    Load::of(&target).during(&world.pod, || {
        let own = site.agent.binary().to_owned();
        for binary in [&other, &own, &other, &own] {
            site.agent.kill()?;
            site.agent.set_binary(binary);
            site.agent.start_again(&world.node.netns, &[])?;
            site.agent.wait_until_healthy()?;
            site.agent.wait_for(&target.service)?;
        }
        Ok(())
    })?;
    let moved = site.agent.log()?.matches("moved to new ones").count();
    anyhow::ensure!(moved == 4, "{moved} of 4 agents found maps of another shape and moved");
    tell("upgraded and downgraded twice");
    Ok(())
}
