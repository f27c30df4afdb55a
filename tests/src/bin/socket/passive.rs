//! Passive health: backends that do not answer are ejected, and no client alone ejects one.

use std::{
    fs::File,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use mcs_tests::{bpf, site::Site, suite::Suite, suite::tell, wait};
use rustix::{io::Errno, net::connect};
use serde_json::Value;

use crate::{
    client::{Family, connected, tcp},
    world::{DEAF, Place, TCP, Target, World, backend, pod_v4},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("passive health: a cluster that is lost is ejected", loses_a_cluster);
    suite.case("passive health: what one client alone does not reach stays", one_client);
    suite.case("passive health: what a policy of clients forbids stays", has_a_policy);
    suite.case("passive health: closed ports of another service", closed_ports);
    suite.case("passive health: the program is attached while a service asks", attaches);
}

/// `BPF_CGROUP_SOCK_OPS`.
const SOCK_OPS: u32 = 3;
const EAST: [u8; 3] = [11, 12, 13];
const WEST: [u8; 3] = [14, 15, 16];
/// How long clients connect. A lost SYN is sent again for the second time after 2 or 3 seconds.
const LOAD: Duration = Duration::from_secs(7);
const PAUSE: Duration = Duration::from_millis(25);

/// Replies of a remote pod are lost while this lives.
struct Lost<'a>(&'a World, u8);

impl<'a> Lost<'a> {
    fn new(world: &'a World, pod: u8) -> anyhow::Result<Self> {
        world.remote.ip(&format!("rule add from {} blackhole", pod_v4(pod)))?;
        Ok(Self(world, pod))
    }
}

impl Drop for Lost<'_> {
    fn drop(&mut self) {
        let removed = self.0.remote.ip(&format!("rule delete from {} blackhole", pod_v4(self.1)));
        if let Err(error) = removed {
            eprintln!("{error:#}");
        }
    }
}

/// A connect that did not come to a connection: when it began.
type Failures = Vec<Duration>;

/// Connects again and again for a while, and waits for none of it. Returns which connects have failed, or were not answered at
/// the end. Those of the last second do not count: they may be on their way.
fn load(vip: SocketAddr) -> anyhow::Result<Failures> {
    let began = Instant::now();
    let mut sockets = Vec::new();
    while began.elapsed() < LOAD {
        let socket = tcp(Family::V4)?;
        socket.set_nonblocking(true)?;
        let started = began.elapsed();
        match connect(&socket, &vip) {
            Ok(()) | Err(Errno::INPROGRESS) => sockets.push((started, socket)),
            Err(error) => Err(error).context("a connect that is refused at once")?,
        }
        thread::sleep(PAUSE);
    }
    let failed = sockets.into_iter().filter(|(started, socket)| {
        *started + Duration::from_secs(1) < LOAD && socket.peer_addr().is_err()
    });
    Ok(failed.map(|(started, _)| started).collect())
}

/// The same by clients in both pods, or in one.
fn load_from(world: &World, places: &[Place], vip: SocketAddr) -> anyhow::Result<Failures> {
    thread::scope(|scope| {
        let clients: Vec<_> =
            places.iter().map(|place| scope.spawn(|| world.at(*place, || load(vip)))).collect();
        let mut all = Failures::new();
        for client in clients {
            all.extend(client.join().expect("a client")?);
        }
        Ok(all)
    })
}

const BOTH: [Place; 2] = [Place::Pod, Place::OtherPod];

fn start(world: &World, role: &str, services: &[&Target]) -> anyhow::Result<Site> {
    let services: Vec<_> = services.iter().map(|target| &target.service).collect();
    // The agent connects to what clients do not reach.
    Site::start(&world.run, role, &world.node.netns, &["--probe-peers=on"], &services)
}

fn asking(mut target: Target) -> Target {
    target.service = target.service.passive_health(true);
    target
}

/// The backends that were found dead, with their state.
fn ejections(site: &Site) -> anyhow::Result<Vec<(String, String)>> {
    let report = site.agent.status()?["report"]["ejections"].take();
    let ejections = report.as_array().context("no ejections in the report")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(ejections.iter().map(|one| (text(&one["backend"]), text(&one["state"]))).collect())
}

fn loses_a_cluster(world: &mut World) -> anyhow::Result<()> {
    let two = |name| world.fresh(name).with_cluster("east", &EAST).with_cluster("west", &WEST);
    let (web, other) = (asking(two("lost")), world.fresh("elsewhere").with_cluster("west", &WEST));
    let site = start(world, "passive", &[&web, &other])?;
    let _in_cgroup = site.cgroup.visit()?;
    let lost: Vec<_> =
        EAST.into_iter().map(|pod| Lost::new(world, pod)).collect::<anyhow::Result<_>>()?;
    let (failures, others) = thread::scope(|scope| {
        let others = scope.spawn(|| load_from(world, &BOTH, other.tcp(Family::V4)));
        let failures = load_from(world, &BOTH, web.tcp(Family::V4));
        anyhow::Ok((failures?, others.join().expect("clients")?))
    })?;
    let last = failures.iter().max().copied().unwrap_or_default();
    tell(format!("{} connects failed, the last one after {last:.1?}", failures.len()));
    assert!(!failures.is_empty(), "nothing was lost");
    assert!(last < wait::scaled(Duration::from_secs(5)), "{last:?} until no connect failed");
    assert_eq!(others, Failures::new(), "of another service");
    let expected: Vec<_> =
        EAST.map(|pod| (backend(pod, Family::V4, TCP.1).to_string(), "ejected".to_owned())).into();
    assert_eq!(ejections(&site)?, expected);
    let printed = site.agent.command(&["backends", "default/lost"])?;
    let printed = String::from_utf8(printed.stdout)?;
    assert!(printed.contains("10.77.9.11:8080 (east) ejected"), "{printed}");
    drop(lost);
    Ok(())
}

fn one_client(world: &mut World) -> anyhow::Result<()> {
    let web = asking(world.fresh("alone").with(&EAST));
    let site = start(world, "alone", &[&web])?;
    let _in_cgroup = site.cgroup.visit()?;
    let _lost = Lost::new(world, EAST[0])?;
    let failures = load_from(world, &[Place::Pod], web.tcp(Family::V4))?;
    assert!(failures.len() > 10, "{failures:?}");
    assert_eq!(ejections(&site)?, []);
    Ok(())
}

/// The same packets are lost, on the clients' side alone.
fn has_a_policy(world: &mut World) -> anyhow::Result<()> {
    let web = asking(world.fresh("forbidden").with(&EAST));
    let site = start(world, "forbidden", &[&web])?;
    let _in_cgroup = site.cgroup.visit()?;
    let rule = |what| {
        let from = |device| format!("rule {what} to {} iif {device} blackhole", pod_v4(EAST[0]));
        ["pod", "other"].iter().try_for_each(|device| world.node.netns.ip(&from(device)))
    };
    rule("add")?;
    let failures = load_from(world, &BOTH, web.tcp(Family::V4));
    rule("delete")?;
    assert!(failures?.len() > 10);
    assert_eq!(ejections(&site)?, []);
    Ok(())
}

/// A tenant connects to closed ports of its own service. Another one has the same pods.
fn closed_ports(world: &mut World) -> anyhow::Result<()> {
    let bad = asking(world.fresh("bad").with(&EAST));
    let good = asking(world.fresh("good").with(&EAST));
    let site = start(world, "closed", &[&bad, &good])?;
    let _in_cgroup = site.cgroup.visit()?;
    let hammer = |place| {
        world.at(place, || {
            for _ in 0..300 {
                assert!(connected(Family::V4, bad.at(Family::V4, DEAF.0)).is_err());
            }
            thread::sleep(Duration::from_secs(1));
            Ok(())
        })
    };
    hammer(Place::Pod)?;
    assert_eq!(ejections(&site)?, [], "one client alone");
    hammer(Place::OtherPod)?;
    wait::until("closed ports to be ejected", || {
        let ejected = ejections(&site)?;
        ensure!(ejected.len() == EAST.len(), "{ejected:?}");
        let is_closed = |one: &(String, _)| one.0.ends_with(&format!(":{}", DEAF.1));
        ensure!(ejected.iter().all(is_closed), "{ejected:?}");
        Ok(())
    })?;
    site.agent.wait_for(&good.service)
}

fn attaches(world: &mut World) -> anyhow::Result<()> {
    let web = world.fresh("asked").with(&EAST);
    let mut site = start(world, "asked", &[&web])?;
    let cgroup = File::open(site.cgroup.path())?;
    let until = |count: usize| {
        wait::until("the program to be attached or detached", || {
            let attached = bpf::attached_to_cgroup(&cgroup, SOCK_OPS)?;
            ensure!(attached.len() == count, "{attached:?}");
            Ok(())
        })
    };
    until(0)?;
    site.apply(&asking(web.clone()).service)?;
    until(1)?;
    site.apply(&web.service)?;
    until(0)?;
    site.agent.stop()?;
    site.agent.start_again(&world.node.netns, &["--passive-health=all"])?;
    until(1)?;
    site.agent.kill()?;
    until(0)?;
    site.agent.start_again(&world.node.netns, &["--passive-health=off"])?;
    site.agent.wait_until_healthy()?;
    site.apply(&asking(web).service)?;
    until(0)
}
