//! `--socket-lb`, and several agents on one kernel.

use mcs_agent::core::kernel::loader::own_netns_cookie;
use mcs_tests::agent::HOOKS;

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("--socket-lb=host leaves pods alone", host_only);
    suite.case("--socket-lb=off attaches nothing", off);
    suite.case("two agents with a cgroup each", two_agents);
    suite.case("a second agent on the same directory waits", second_waits);
    suite.case("status without an agent", is_down);
    suite.case("a program that was detached is attached again", is_detached);
    suite.case("cleanup removes what is ours", cleans_up);
}

/// The VIP is an address without a route.
fn is_left_alone(world: &World, place: Place, family: Family) -> Result {
    world.at(place, || {
        let unreachable = Some(io::ErrorKind::NetworkUnreachable);
        let error = connected(family, world.web.tcp(family)).err();
        assert_eq!(error.map(|error| error.kind()), unreachable);
        let error = udp(family)?.send_to(b"hello", world.web.udp(family)).err();
        assert_eq!(error.map(|error| error.kind()), unreachable);
        Ok(())
    })
}

fn is_served(world: &World, place: Place, family: Family) -> Result {
    world.at(place, || {
        let stream = connected(family, world.web.tcp(family))?;
        identity(&stream)?;
        assert_eq!(stream.peer_addr()?, world.web.tcp(family));
        let vip = world.web.udp(family);
        assert_eq!(ask(&udp(family)?, vip)?.source, vip);
        Ok(())
    })
}

fn host_only(world: &mut World) -> Result {
    if let Err(error) = own_netns_cookie() {
        return Err(skip(format!("a process cannot know its network namespace's cookie: {error}")));
    }
    let site = start(world, "host", &["--socket-lb=host"])?;
    let _in_cgroup = site.cgroup.visit()?;
    for family in Family::ALL {
        is_served(world, Place::Node, family)?;
        is_left_alone(world, Place::Pod, family)?;
    }
    Ok(())
}

fn off(world: &mut World) -> Result {
    let site = start(world, "off", &["--socket-lb=off"])?;
    let attached = attached(&site.agent)?;
    assert!(attached.is_empty(), "{attached:?}");
    let _in_cgroup = site.cgroup.visit()?;
    for family in Family::ALL {
        is_left_alone(world, Place::Node, family)?;
        is_left_alone(world, Place::Pod, family)?;
    }
    Ok(())
}

fn start(world: &World, role: &str, flags: &[&str]) -> Result<Site> {
    world.start(role, flags, &[&world.web.service])
}

/// The hooks with a program.
fn attached(agent: &Agent) -> Result<Vec<Value>> {
    let hooks: Vec<Value> = serde_json::from_value(agent.status()?["hooks"].take())?;
    Ok(hooks.into_iter().filter(|hook| !hook["program_id"].is_null()).collect())
}

fn two_agents(world: &mut World) -> Result {
    let theirs = world.web.clone().with(&PODS[3..]);
    let site = world.start("two", &[], &[&theirs.service])?;
    let seen = |world: &World| {
        world.at(Place::Pod, || {
            let vip = world.web.tcp(Family::V4);
            (0..30).map(|_| identity(&connected(Family::V4, vip)?)).collect()
        })
    };
    let ours: BTreeSet<SocketAddr> = seen(world)?;
    let in_cgroup = site.cgroup.visit()?;
    let others: BTreeSet<SocketAddr> = seen(world)?;
    drop(in_cgroup);
    assert!(ours.is_subset(&backends(World::WEB, Family::V4, TCP.1).into_iter().collect()));
    assert!(others.is_subset(&backends(&PODS[3..], Family::V4, TCP.1).into_iter().collect()));
    drop(site);
    is_served(world, Place::Pod, Family::V4)
}

fn second_waits(world: &mut World) -> Result {
    let node = &world.network.node.netns;
    let mut site = start(world, "first", &[])?;
    let mut config = site.agent.config().clone();
    config.log = world.run.directory().join("second.log");
    let mut second = Agent::start(node, config)?;
    let first = format!("process {}", site.agent.pid());
    wait::until("the second agent to name the first", || {
        ensure!(second.log()?.contains(&first), "it logged: {}", second.log()?);
        Ok(())
    })?;
    assert_eq!(site.agent.status()?["report"]["agent"]["pid"], site.agent.pid());
    assert_eq!(attached(&site.agent)?.len(), HOOKS);
    let degraded = site.agent.status()?["degraded"].to_string();
    assert!(degraded.contains("a second agent waits"), "{degraded}");
    site.agent.stop()?;
    second.wait_until_healthy()?;
    second.stop()
}

fn is_down(world: &mut World) -> Result {
    let mut site = start(world, "down", &[])?;
    assert!(site.agent.is_healthy()?);
    let services = site.agent.services()?;
    site.agent.stop()?;
    assert!(!site.agent.is_healthy()?);
    let status = site.agent.status()?;
    assert_eq!((&status["running"], &status["state"]), (&false.into(), &"degraded".into()));
    let now = site.agent.services()?;
    for part in ["frontends", "imports"] {
        assert_eq!(now[part], services[part], "{part}");
    }
    assert_eq!(now["reported"], false, "{now}");
    let _in_cgroup = site.cgroup.visit()?;
    is_served(world, Place::Pod, Family::V4)
}

fn is_detached(world: &mut World) -> Result {
    let mut site = start(world, "detached", &[])?;
    let pin = site.bpffs.path().join("mcs/links/connect4");
    let mut detach = std::process::Command::new("bpftool");
    // The agent would attach it again before a slow machine can ask.
    site.agent.signal(Signal::STOP)?;
    process::run(detach.args(["link", "detach", "pinned"]).arg(pin), "")?;
    let degraded = site.agent.status()?["degraded"].to_string();
    site.agent.signal(Signal::CONT)?;
    assert!(degraded.contains("connect4"), "{degraded}");
    site.agent.wait_until_healthy()?;
    assert!(site.agent.log()?.contains("connect4 was detached"));
    let _in_cgroup = site.cgroup.visit()?;
    is_served(world, Place::Pod, Family::V4)
}

fn cleans_up(world: &mut World) -> Result {
    let mut site = start(world, "cleaned", &[])?;
    assert!(!site.agent.cleanup()?.status.success(), "cleaned up under a running agent");
    let foreign = site.bpffs.path().join("mcs/state/foreign");
    std::fs::create_dir(&foreign)?;
    let in_cgroup = site.cgroup.visit()?;
    site.agent.stop()?;
    is_served(world, Place::Pod, Family::V4)?;
    let cleanup = site.agent.cleanup()?;
    assert!(cleanup.status.success(), "{cleanup:?}");
    std::fs::remove_dir(&foreign)?;
    assert!(site.agent.cleanup()?.status.success());
    is_left_alone(world, Place::Pod, Family::V4)?;
    drop(in_cgroup);
    assert_eq!(std::fs::read_dir(site.bpffs.path())?.count(), 0, "pins are left");
    is_served(world, Place::Pod, Family::V4)
}
