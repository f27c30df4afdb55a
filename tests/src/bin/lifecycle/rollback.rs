//! Starts with other sizes that are killed, and the return to the former sizes: as an upgrade that fails, and its rollback.

use std::env;

use aya::maps::MapInfo;
use mcs_common::maps;

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
    let (mut established, mut of_packets) = connect(&scene)?;
    let own = scene.site.agent.binary().to_owned();
    // Those of the starts that are killed, one after the other: each map of state has another size in one of them.
    let others =
        [(&own, &["--tc=on", "--max-flows=4096"]), (&two_slots, &["--tc=on", "--max-flows=512"])];
    let (mut killed, mut committed, mut starts) = (0, 0, 0);
    for (operation, calls) in KILLS {
        let last = calls.last().copied().unwrap_or_default();
        let calls = if is_full() { (1..=last).collect() } else { calls.to_vec() };
        for call in calls {
            let refusal = Refusal::killed_at(operation, call);
            let table = table_of_sockets(&scene)?;
            let agent = &mut scene.site.agent;
            for (binary, flags) in others {
                agent.set_binary(&refusal.script(binary, world.run.directory())?);
                start_instead(agent, flags)?;
                agent.set_binary(&own);
                starts += 1;
                killed += u32::from(is_killed(agent).with_context(|| refusal.to_string())?);
                go_on(&of_packets).with_context(|| format!("{refusal}, before the rollback"))?;
            }
            let keeps_table = table_of_sockets(&scene)? == table;
            start_instead(&mut scene.site.agent, FLAGS)?;
            scene.site.agent.wait_until_healthy()?;
            if keeps_table {
                go_on(&established).with_context(|| refusal.to_string())?;
                continue;
            }
            // The other table had taken the place of theirs: sockets go on, and show their backends.
            for (stream, _) in &established {
                still_goes(stream, stream.peer_addr()?).with_context(|| refusal.to_string())?;
            }
            committed += 1;
            (established, of_packets) = connect(&scene)?;
        }
    }
    tell(format!(
        "{killed} of {starts} starts were killed on the way, and {committed} had committed another table of sockets; every \
         connection went on"
    ));
    ensure!(killed * 2 > starts, "most of them came through");
    ensure!(
        committed * 4 < starts,
        "most of those with another table of sockets have committed it"
    );
    Ok(())
}

type Connection = (TcpStream, SocketAddr);

/// New connections of both paths, and those by packets again. Packets without a flow go elsewhere from now on.
fn connect(scene: &Scene) -> Result<(Vec<Connection>, Vec<Connection>)> {
    scene.site.apply(&scene.target.clone().with(SETS[0]).service)?;
    let established = scene.connect_all()?;
    scene.site.apply(&scene.target.clone().with(SETS[1]).service)?;
    let of_packets = established.iter().zip(CLIENTS).filter(|(_, (sockets, _))| !sockets);
    let of_packets = of_packets.map(|((stream, vip), _)| Ok((stream.try_clone()?, *vip)));
    let of_packets = of_packets.collect::<Result<_>>()?;
    Ok((established, of_packets))
}

/// The table of connected sockets. A commit that is cut short has replaced only one of its maps.
fn table_of_sockets(scene: &Scene) -> Result<[u32; 2]> {
    let state = Pins::new(scene.site.agent.bpffs()).state();
    let id = |name| anyhow::Ok(MapInfo::from_pin(state.join(name))?.id());
    Ok([id(maps::SOCKET_TAGS)?, id(maps::SOCKET_CONNS)?])
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
