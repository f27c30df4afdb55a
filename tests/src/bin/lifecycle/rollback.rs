//! Starts with other sizes that are killed, and the return to the former sizes: as an upgrade that fails, and its rollback.

use std::env;

use crate::{
    orphan::{Scene, go_on},
    prelude::*,
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("starts with other sizes that are killed anywhere, and a rollback", rolls_back);
}

const FLAGS: &[&str] = &["--tc=on", "--max-flows=1024"];
/// Names an agent whose table of connected sockets has another size.
const TWO_SLOTS: &str = "MCS_AGENT_TWO_SLOTS";

/// Operations of bpf(2), and before which of their calls an agent is killed. A start makes them in this order, by and large:
/// `BPF_MAP_CREATE`, `BPF_OBJ_PIN` of new maps, `BPF_PROG_LOAD`, `BPF_MAP_UPDATE_ELEM` of flows, `BPF_LINK_UPDATE`, and
/// `BPF_OBJ_PIN` at the commit.
const KILLS: [(u32, &[u32]); 5] =
    [(0, &[3, 20]), (5, &[12]), (6, &[1, 8, 14]), (2, &[3]), (29, &[1, 5])];

fn rolls_back(world: &mut World) -> Result {
    let Some(two_slots) = env::var_os(TWO_SLOTS).map(PathBuf::from) else {
        return Err(skip(format!("{TWO_SLOTS} names no agent: `cargo xtask test` builds it")));
    };
    let mut scene = Scene::begin(world, "rolled", FLAGS)?;
    let established = scene.connect_all()?;
    // From now on packets without a flow go elsewhere.
    scene.site.apply(&scene.target.clone().with(SETS[1]).service)?;
    let of_packets: Vec<_> = established
        .iter()
        .zip(CLIENTS)
        .filter(|(_, (sockets, _))| !sockets)
        .map(|((stream, vip), _)| Ok((stream.try_clone()?, *vip)))
        .collect::<Result<_>>()?;
    let own = scene.site.agent.binary().to_owned();
    // Those of the starts that are killed, one after the other: each map of state has another size in one of them.
    let others =
        [(&own, &["--tc=on", "--max-flows=4096"]), (&two_slots, &["--tc=on", "--max-flows=512"])];
    let (mut killed, mut starts) = (0, 0);
    for (operation, calls) in KILLS {
        let last = calls.last().copied().unwrap_or_default();
        let calls = if is_full() { (1..=last).collect() } else { calls.to_vec() };
        for call in calls {
            let refusal = Refusal::killed_at(operation, call);
            let agent = &mut scene.site.agent;
            for (binary, flags) in others {
                agent.set_binary(&refusal.script(binary, world.run.directory())?);
                start_instead(agent, flags)?;
                agent.set_binary(&own);
                starts += 1;
                killed += u32::from(is_killed(agent).with_context(|| refusal.to_string())?);
                go_on(&of_packets).with_context(|| format!("{refusal}, before the rollback"))?;
            }
            start_instead(&mut scene.site.agent, FLAGS)?;
            scene.site.agent.wait_until_healthy()?;
            go_on(&established).with_context(|| refusal.to_string())?;
        }
    }
    tell(format!("{killed} of {starts} starts were killed on the way; every connection went on"));
    ensure!(killed * 2 > starts, "most of them came through");
    Ok(())
}

/// Starts another agent in the place of this one, which may have been killed.
fn start_instead(agent: &mut Agent, flags: &[&str]) -> Result {
    if !agent.has_ended()? {
        agent.kill()?;
    }
    agent.start_again(flags)
}

/// Whether it is killed before it is healthy.
fn is_killed(agent: &mut Agent) -> Result<bool> {
    wait::until("the agent to be killed or healthy", || {
        if agent.has_ended()? {
            return Ok(true);
        }
        if agent.is_healthy()? {
            return Ok(false);
        }
        bail!("it starts")
    })
}
