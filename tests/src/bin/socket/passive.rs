//! Passive health: backends that do not answer are ejected, and no client alone ejects one.

use std::panic;

use mcs_tests::{agent::fates, procfs, suite};
use rustix::{io::Errno, net::connect};

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("passive health: a cluster that is lost is ejected", loses_a_cluster);
    suite.case("passive health: a cluster that is lost to packets is ejected", loses_packets);
    suite.case("passive health: a client of each path eject together what is lost", both_paths);
    suite.case("passive health: what clients alone do not reach stays", clients_alone);
    suite.case("passive health: closed ports of another service", closed_ports);
    suite.case("passive health: what a connect costs", costs);
    suite.case("passive health: the program is attached while a service asks", attaches);
}

/// The tracepoints of connects that fail.
const FAILURES: [&str; 2] = ["tcp_receive_reset", "tcp_retransmit_skb"];
const EAST: [u8; 3] = [11, 12, 13];
const WEST: [u8; 3] = [14, 15, 16];
/// How long clients connect. A lost SYN is sent again after a second.
const LOAD: Duration = Duration::from_secs(7);
const PAUSE: Duration = Duration::from_millis(25);

/// Replies of a remote pod are lost while this lives.
struct Lost<'a>(&'a World, u8);

impl<'a> Lost<'a> {
    fn new(world: &'a World, pod: u8) -> Result<Self> {
        world.network.remote.ip(&format!("rule add from {} blackhole", pod_v4(pod)))?;
        Ok(Self(world, pod))
    }
}

impl Drop for Lost<'_> {
    fn drop(&mut self) {
        let removed =
            self.0.network.remote.ip(&format!("rule delete from {} blackhole", pod_v4(self.1)));
        if let Err(error) = removed {
            eprintln!("{error:#}");
        }
    }
}

/// A connect that did not come to a connection: when it began.
type Failures = Vec<Duration>;

/// Connects again and again for a while, and waits for none of it. Returns which connects have failed, or were not answered at
/// the end. Those of the last second do not count: they may be on their way.
fn load(vip: SocketAddr) -> Result<Failures> {
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
fn load_from(world: &World, places: &[Place], vip: SocketAddr) -> Result<Failures> {
    thread::scope(|scope| {
        let clients: Vec<_> =
            places.iter().map(|place| scope.spawn(|| world.at(*place, || load(vip)))).collect();
        let mut all = Failures::new();
        for client in clients {
            all.extend(client.join().unwrap_or_else(|panic| panic::resume_unwind(panic))?);
        }
        Ok(all)
    })
}

const BOTH: [Place; 2] = [Place::Pod, Place::OtherPod];

fn ensure_tracepoints() -> Result {
    if Features::probe()?.socket_tracepoints {
        Ok(())
    } else {
        Err(skip("passive health takes Linux 5.12"))
    }
}

fn start(world: &World, role: &str, services: &[&Target]) -> Result<Site> {
    ensure_tracepoints()?;
    let services: Vec<_> = services.iter().map(|target| &target.service).collect();
    // The agent connects to what clients do not reach.
    world.start(role, &["--probe-peers=on"], &services)
}

fn asking(mut target: Target) -> Target {
    target.service = target.service.passive_health(true);
    target
}

/// The backends that were found dead, with their state.
fn ejections(site: &Site) -> Result<Vec<(String, String)>> {
    let report = site.agent.status()?["report"]["ejections"].take();
    let ejections = report.as_array().context("no ejections in the report")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(ejections.iter().map(|one| (text(&one["backend"]), text(&one["state"]))).collect())
}

/// Waits until these pods are ejected, and no others.
fn until_ejected(site: &Site, pods: &[u8]) -> Result {
    let expected = pods.iter().map(|pod| backend(*pod, Family::V4, TCP.1).to_string());
    wait::until("the pods in the east to be ejected", || {
        let found = ejections(site)?;
        let ejected = found.iter().filter(|(_, state)| state == "ejected");
        let ejected = ejected.map(|(backend, _)| backend.clone());
        ensure!(ejected.eq(expected.clone()), "{found:?}");
        Ok(())
    })
}

fn loses_a_cluster(world: &mut World) -> Result {
    let two = |name| world.fresh(name).with_cluster("east", &EAST).with_cluster("west", &WEST);
    let (web, other) = (asking(two("lost")), world.fresh("elsewhere").with_cluster("west", &WEST));
    let site = start(world, "passive", &[&web, &other])?;
    let _in_cgroup = site.cgroup.visit()?;
    let lost: Vec<_> = EAST.into_iter().map(|pod| Lost::new(world, pod)).collect::<Result<_>>()?;
    let (failures, others) = thread::scope(|scope| {
        let others = scope.spawn(|| load_from(world, &BOTH, other.tcp(Family::V4)));
        let failures = load_from(world, &BOTH, web.tcp(Family::V4));
        anyhow::Ok((failures?, others.join().unwrap_or_else(|panic| panic::resume_unwind(panic))?))
    })?;
    let until = failures.iter().max().copied().unwrap_or_default();
    tell(format!("{} connects failed, the last one after {until:.1?}", failures.len()));
    assert!(!failures.is_empty(), "nothing was lost");
    assert!(until < wait::scaled(Duration::from_secs(5)), "{until:?} until no connect failed");
    assert_eq!(others, Failures::new(), "of another service");
    until_ejected(&site, &EAST)?;
    assert_eq!(ejections(&site)?.len(), EAST.len());
    let said = site.agent.explain(&world.network.node.netns, &["default/lost"], 0, &[])?;
    for pod in EAST {
        let expected = format!("{} ejected", pod_v4(pod));
        ensure!(fates(&said).contains(&expected), "{said:#}");
    }
    let printed = site.agent.command(&["backends", "default/lost"])?;
    let printed = String::from_utf8(printed.stdout)?;
    assert!(printed.contains("10.77.9.11:8080 (east) ejected"), "{printed}");
    drop(lost);
    Ok(())
}

/// The same without programs for sockets: clients in one pod alone eject nothing, clients in both eject what is lost.
fn loses_packets(world: &mut World) -> Result {
    let two = |name| world.fresh(name).with_cluster("east", &EAST).with_cluster("west", &WEST);
    let web = asking(two("lost-packets"));
    let flags = ["--probe-peers=on", "--socket-lb=off", "--tc=on", "--tc-devices=pod,other"];
    let site = world.start("lost-packets", &flags, &[&web.service])?;
    BOTH.iter().try_for_each(|place| world.route(&web, *place, "add"))?;
    let lost: Vec<_> = EAST.into_iter().map(|pod| Lost::new(world, pod)).collect::<Result<_>>()?;
    let vip = web.tcp(Family::V4);
    assert!(!load_from(world, &BOTH[..1], vip)?.is_empty(), "nothing was lost");
    assert_eq!(ejections(&site)?, [], "one client alone");
    let failures = load_from(world, &BOTH, vip)?;
    let until = failures.iter().max().copied().unwrap_or_default();
    tell(format!("{} connects failed, the last one after {until:.1?}", failures.len()));
    assert!(until < wait::scaled(Duration::from_secs(5)), "{until:?} until no connect failed");
    until_ejected(&site, &EAST)?;
    drop(lost);
    BOTH.iter().try_for_each(|place| world.route(&web, *place, "delete"))?;
    World::end(site)
}

/// A pod connects by sockets, and another one, outside of the cgroup, by packets. Then one of the lost pods is deleted.
fn both_paths(world: &mut World) -> Result {
    ensure_tracepoints()?;
    let fresh = asking(world.fresh("lost-to-both").with_cluster("west", &WEST));
    let web = fresh.clone().with_cluster("east", &EAST);
    let flags = ["--probe-peers=on", "--tc=on", "--tc-devices=pod,other"];
    let site = world.start("lost-to-both", &flags, &[&web.service])?;
    world.route(&web, Place::OtherPod, "add")?;
    let lost: Vec<_> = EAST.into_iter().map(|pod| Lost::new(world, pod)).collect::<Result<_>>()?;
    let vip = web.tcp(Family::V4);
    let in_cgroup = site.cgroup.visit()?;
    assert!(!load_from(world, &[Place::Pod], vip)?.is_empty(), "nothing was lost");
    drop(in_cgroup);
    assert_eq!(ejections(&site)?, [], "one client alone");
    load_from(world, &[Place::OtherPod], vip)?;
    until_ejected(&site, &EAST)?;
    // The maps have no ejected endpoint, so `Site::apply` would wait for those of the east.
    site.manifests.write(&fresh.with_cluster("east", &EAST[1..]).service)?;
    until_ejected(&site, &EAST[1..])?;
    assert_eq!(ejections(&site)?.len(), EAST.len() - 1, "a verdict is left");
    drop(lost);
    world.route(&web, Place::OtherPod, "delete")?;
    World::end(site)
}

/// One of two clients gets no answer of a pod, and a policy keeps both from another pod. The pods are in order.
fn clients_alone(world: &mut World) -> Result {
    let web = asking(world.fresh("alone").with(&EAST));
    let site = start(world, "alone", &[&web])?;
    let _in_cgroup = site.cgroup.visit()?;
    let rules = [("pod", EAST[0]), ("pod", EAST[1]), ("other", EAST[1])];
    let rule = |what| {
        rules.iter().try_for_each(|(device, pod)| {
            let rule = format!("rule {what} to {} iif {device} blackhole", pod_v4(*pod));
            world.network.node.netns.ip(&rule)
        })
    };
    rule("add")?;
    let failures = load_from(world, &BOTH, web.tcp(Family::V4));
    rule("delete")?;
    assert!(failures?.len() > 20);
    // It stays in use, and is named.
    let alone = backend(EAST[1], Family::V4, TCP.1).to_string();
    wait::until("the pod that answers the agent and no client", || {
        let found = ejections(&site)?;
        ensure!(found == [(alone.clone(), "answers_agent".to_owned())], "{found:?}");
        Ok(())
    })
}

/// A tenant connects to closed ports of its own service. Another one has the same pods.
fn closed_ports(world: &mut World) -> Result {
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

/// The tracepoints at which a process runs programs.
fn tracepoints(pid: u32) -> Result<BTreeSet<String>> {
    let described = procfs::descriptors(pid)?;
    let name = |info: &String| {
        info.lines().find_map(|line| line.strip_prefix("tp_name:\t").map(str::to_owned))
    };
    Ok(described.iter().filter_map(name).collect())
}

fn attaches(world: &mut World) -> Result {
    let web = world.fresh("asked").with(&EAST);
    let mut site = start(world, "asked", &[&web])?;
    let until = |site: &Site, expected: &[&str]| {
        wait::until("programs to be attached or detached", || {
            let found = tracepoints(site.agent.pid())?;
            ensure!(found.iter().eq(expected), "{found:?}");
            Ok(())
        })
    };
    until(&site, &[])?;
    site.apply(&asking(web.clone()).service)?;
    until(&site, &FAILURES)?;
    // A connect that fails.
    let closed = site.cgroup.visit().and_then(|_in_cgroup| {
        world.at(Place::Pod, || Ok(connected(Family::V4, web.at(Family::V4, DEAF.0))))
    })?;
    assert!(closed.is_err());
    until(&site, &["inet_sock_set_state", FAILURES[0], FAILURES[1]])?;
    site.apply(&web.service)?;
    until(&site, &[])?;
    site.agent.stop()?;
    site.agent.start_again(&["--passive-health=all"])?;
    until(&site, &FAILURES)?;
    site.agent.replace(&["--passive-health=off"])?;
    site.apply(&asking(web).service)?;
    until(&site, &[])
}

/// Connects by an agent that watches, and in turn by one that does not.
fn costs(world: &mut World) -> Result {
    const CONNECTS: usize = 100;
    ensure_tracepoints()?;
    let rounds = if suite::is_full() { 400 } else { 40 };
    let web = asking(world.fresh("priced").with(&EAST));
    let start = |role, flags: &[&str]| world.start(role, flags, &[&web.service]);
    let sites = [start("watching", &[])?, start("not-watching", &["--passive-health=off"])?];
    let connect_all = |site: &Site| {
        let _in_cgroup = site.cgroup.visit()?;
        world.at(Place::Pod, || {
            let mut took = Vec::new();
            for _ in 0..CONNECTS {
                let socket = tcp(Family::V4)?;
                let began = Instant::now();
                connect(&socket, &web.tcp(Family::V4))?;
                took.push(began.elapsed());
            }
            took.sort_unstable();
            Ok(took[CONNECTS / 10])
        })
    };
    let mut differences = Vec::new();
    for round in 0..rounds {
        let mut took = [0; 2];
        // The second one profits from warm caches.
        for nth in [round % 2, 1 - round % 2] {
            took[nth] = i64::try_from(connect_all(&sites[nth])?.as_nanos())?;
        }
        differences.push(took[0] - took[1]);
    }
    differences.sort_unstable();
    let quarter = rounds / 4;
    let middle = &differences[quarter..rounds - quarter];
    let mean = middle.iter().sum::<i64>() / i64::try_from(middle.len())?;
    tell(format!("{mean} ns more for a connect that is watched"));
    // A busy machine measures anything; a look-up that is not bounded would take longer.
    assert!(mean < 10_000, "{mean} ns");
    Ok(())
}
