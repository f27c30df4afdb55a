//! Sockets that are connected to a backend when it is removed.

mod border;
pub(crate) mod bounded;
mod clients;
mod tcp;

use mcs_tests::{
    agent::CAPABILITY_FOR_STALE_UDP,
    manifests::{Aside, ZONE},
};

use self::clients::Clients;
use crate::prelude::*;

/// A client learns of the removal within this time.
const PROMPT: Duration = Duration::from_secs(1);
/// What lets an agent enter network namespaces.
const ENTERS: &str = CAPABILITY_FOR_STALE_UDP;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("UDP sockets of a removed backend are destroyed, and no others", destroys);
    suite.case("UDP sockets stay with backends that serve, and in an empty moment", stays);
    suite.case("backends that are removed while no agent runs", catches_up);
    suite.case("UDP sockets in a network namespace without a name", sees_processes);
    suite.case("without the right to, stale UDP sockets stay, and status says so", says_why_not);
    suite.case(
        "TCP sockets of a removed backend are destroyed by choice, and no others",
        tcp::destroys,
    );
    suite.case(
        "clients of endpoints outside of a border that closes end within 5 s, by both paths",
        border::closes,
    );
    suite.case(
        "no packet crosses a border while its pods come and go, agents are killed, and room is short",
        border::holds,
    );
    suite.case("affinity to a removed backend ends at once", forgets_affinity);
}

/// An agent with more capabilities than others have.
fn start(
    world: &World,
    role: &str,
    capabilities: &[&'static str],
    flags: &[&str],
    services: &[&Service],
) -> Result<Site> {
    world.agent(role).capabilities(capabilities).flags(flags).knows(services)
}

fn report(agent: &Agent, protocol: Protocol) -> Result<Value> {
    let place = match protocol {
        Protocol::Tcp => "stale_tcp",
        Protocol::Udp => "stale_udp",
    };
    Ok(agent.status()?["report"][place].take())
}

/// Waits until that many sockets have been destroyed, and makes sure that none failed.
fn count(agent: &Agent, protocol: Protocol, expected: usize) -> Result {
    wait::until("the report of destroyed sockets", || {
        let report = report(agent, protocol)?;
        ensure!(report["destroyed"] == expected, "{report} instead of {expected}");
        ensure!(report["failed"] == 0, "{report}");
        Ok(())
    })
}

/// Under load on another service, whose sockets have the same backends.
fn destroys(world: &mut World) -> Result {
    let turns = if is_full() { 100 } else { 6 };
    let target = world.target("stale");
    let other = world.target("kept").with(&SETS.concat());
    let second = world.another_pod("second", Subnet(21))?;
    let places = [&world.network.pod, &second, &world.network.node.netns];
    let services = [&target.service, &other.service];
    let site = start(world, "stale", &[ENTERS], &[], &services)?;
    let _in_cgroup = site.cgroup.visit()?;
    let (mut aborted, mut untouched, mut failures) = (0, 0, Vec::new());
    let mut slowest = Duration::ZERO;
    Load::of(&other).during(&world.network.pod, || {
        for turn in 0..turns {
            let all = Clients::begin(&places, &target, &other)?;
            let changed = target.clone().with(SETS[(turn + 1) % 2]);
            site.apply(&changed.service)?;
            let left = backends(SETS[(turn + 1) % 2]);
            let took = all.wait_until_aborted(PROMPT, &mut failures);
            slowest = slowest.max(took);
            failures.extend(all.move_on(&target, &left));
            failures.extend(all.go_on(&target, &other, &left));
            aborted += all.aborted();
            untouched += all.untouched();
        }
        Ok(())
    })?;
    tell(format!(
        "{aborted} sockets were aborted within {} ms, {untouched} others had nothing to do with it: {} \
         failures",
        slowest.as_millis(),
        failures.len()
    ));
    ensure!(
        failures.is_empty(),
        "{} failures, of which the first: {}",
        failures.len(),
        failures[0]
    );
    count(&site.agent, Protocol::Udp, aborted)
}

/// New clients do not get these backends; then nobody does; then others serve.
fn stays(world: &mut World) -> Result {
    let target = world.target("stays");
    let other = world.target("beside").with(&SETS.concat());
    let services = [&target.service, &other.service];
    let site = start(world, "stays", &[ENTERS], &["--zone", ZONE], &services)?;
    let _in_cgroup = site.cgroup.visit()?;
    let [former, later] = SETS.map(backends);
    let clients =
        Clients::begin(&[&world.network.pod, &world.network.node.netns], &target, &other)?;
    let all = target.clone().with(&SETS.concat());
    let changes = [
        ("hints for another zone", all.clone().aside(Aside::OfOtherZone, SETS[0])),
        ("draining", all.clone().aside(Aside::Draining, SETS[0])),
        ("an empty moment", target.clone().with(&[])),
    ];
    for (what, changed) in &changes {
        site.apply(&changed.service)?;
        thread::sleep(PROMPT);
        let mut failures = clients.still_work();
        failures.extend(clients.go_on(&target, &other, &former));
        ensure!(failures.is_empty(), "{what}: {failures:?}");
        let new = world
            .network
            .pod
            .run(|| Family::ALL.map(|family| udp_connected(family, target.udp(family))))?;
        for socket in new {
            let is_right = match socket {
                Ok(socket) => {
                    socket.send(b"who are you")?;
                    later.contains(&receive_nameless(&socket)?)
                }
                Err(_) => changed.service.slices()[0]["endpoints"] == json!([]),
            };
            ensure!(is_right, "{what}: a new client gets a backend of before");
        }
    }
    count(&site.agent, Protocol::Udp, 0)?;
    let mut failures = Vec::new();
    site.apply(&target.clone().with(SETS[1]).service)?;
    clients.wait_until_aborted(PROMPT, &mut failures);
    failures.extend(clients.go_on(&target, &other, &later));
    tell(format!("{} sockets, {} failures", clients.aborted(), failures.len()));
    ensure!(failures.is_empty(), "{failures:?}");
    count(&site.agent, Protocol::Udp, clients.aborted())
}

fn catches_up(world: &mut World) -> Result {
    let target = world.target("missed");
    let other = world.target("met").with(&SETS.concat());
    let services = [&target.service, &other.service];
    let mut site = start(world, "missed", &[ENTERS], &[], &services)?;
    let _in_cgroup = site.cgroup.visit()?;
    let clients = Clients::begin(&[&world.network.pod], &target, &other)?;
    let changed = target.clone().with(SETS[1]);

    site.agent.kill()?;
    site.manifests.write(&changed.service)?;
    site.manifests.write(&target.service)?;
    site.agent.come_back(&[])?;
    thread::sleep(PROMPT);
    let failures = clients.still_work();
    ensure!(failures.is_empty(), "a backend that is there again: {failures:?}");
    count(&site.agent, Protocol::Udp, 0)?;

    site.agent.kill()?;
    site.manifests.write(&changed.service)?;
    site.agent.start_again(&[])?;
    site.agent.wait_for(&changed.service)?;
    let mut failures = Vec::new();
    clients.wait_until_aborted(PROMPT, &mut failures);
    ensure!(failures.is_empty(), "{failures:?}");
    count(&site.agent, Protocol::Udp, clients.aborted())?;

    // The import goes, and comes back with other backends.
    let clients = Clients::begin(&[&world.network.pod], &changed, &other)?;
    site.remove(&changed.service)?;
    thread::sleep(PROMPT);
    failures.extend(clients.still_work());
    site.apply(&target.service)?;
    clients.wait_until_aborted(PROMPT, &mut failures);
    tell(format!("{} sockets, {} failures", 2 * clients.aborted(), failures.len()));
    ensure!(failures.is_empty(), "{failures:?}");
    Ok(())
}

/// A process in an unnamed network namespace. It connects to a VIP and waits.
struct Hermit(Child);

impl Hermit {
    fn begin(netns: &Namespace, target: &Target) -> Result<Self> {
        let vip = target.udp(Family::V4);
        let script = format!(
            "ip link set lo up && ip address add 10.76.0.1/32 dev lo \
             && ip route add 10.77.0.0/16 dev lo \
             && exec 3<>/dev/udp/{}/{} && echo ready && exec cat <&3",
            vip.ip(),
            vip.port()
        );
        let mut command = netns.command("unshare");
        command.args(["--net", "--", "bash", "-c", &script]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut hermit = Self(child.spawn()?);
        let mut ready = [0; 6];
        let output = hermit.0.stdout.as_mut().context("no output")?;
        std::io::Read::read_exact(output, &mut ready).context("the process did not connect")?;
        Ok(hermit)
    }

    /// What it says when its socket is destroyed.
    fn last_words(&mut self) -> Result<String> {
        wait::within(PROMPT, "the process to end", || {
            self.0.try_wait()?.context("it still waits for its socket")
        })?;
        let mut said = String::new();
        let errors = self.0.stderr.as_mut().context("no errors")?;
        std::io::Read::read_to_string(errors, &mut said)?;
        Ok(said)
    }
}

impl Drop for Hermit {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Only a process that may trace it sees the namespace of another one.
fn sees_processes(world: &mut World) -> Result {
    let target = world.target("hermit");
    for (capabilities, is_seen) in [(vec![ENTERS], false), (vec![ENTERS, "sys_ptrace"], true)] {
        let role = if is_seen { "hermit-seen" } else { "hermit" };
        let site = start(world, role, &capabilities, &[], &[&target.service])?;
        let _in_cgroup = site.cgroup.visit()?;
        let mut hermit = Hermit::begin(&world.network.pod, &target)?;
        site.apply(&target.clone().with(SETS[1]).service)?;
        if is_seen {
            let said = hermit.last_words()?;
            ensure!(said.contains("connection abort"), "{said}");
            count(&site.agent, Protocol::Udp, 1)?;
        } else {
            wait::until("the socket to be given up", || {
                let report = report(&site.agent, Protocol::Udp)?;
                // Before Linux 5.14 nobody knows in which namespace it is.
                let is_said = report["out_of_reach"] == 1 || report["gone"] == 1;
                ensure!(is_said && report["destroyed"] == 0, "{report}");
                ensure!(report["closed"].as_u64() > Some(0), "{report}");
                Ok(())
            })?;
            ensure!(hermit.0.try_wait()?.is_none(), "it has ended");
        }
    }
    Ok(())
}

fn says_why_not(world: &mut World) -> Result {
    let target = world.target("powerless");
    let cases: [(&str, &[&'static str], &[&str], &str); 2] = [
        ("powerless", &[], &[], "sockets stay connected to removed backends: this process may not"),
        ("flag-leave", &[ENTERS], &["--stale-udp=leave"], "Stale UDP: off"),
    ];
    for (role, capabilities, flags, why) in cases {
        let site = start(world, role, capabilities, flags, &[&target.service])?;
        let _in_cgroup = site.cgroup.visit()?;
        let clients = Clients::begin(&[&world.network.pod], &target, &target)?;
        site.apply(&target.clone().with(SETS[1]).service)?;
        thread::sleep(PROMPT);
        let failures = clients.still_work();
        ensure!(failures.is_empty(), "{failures:?}");
        let status = site.agent.command(&["status"])?;
        let said = String::from_utf8(status.stdout)?;
        let line = said.lines().find(|line| line.starts_with("Stale UDP: "));
        let line = line.context("status has no line for it")?;
        ensure!(line.contains(why), "{line}");
        ensure!(status.status.success(), "it is degraded");
    }
    Ok(())
}

/// No remembered affinity leads to a removed backend.
fn forgets_affinity(world: &mut World) -> Result {
    let mut target = world.target("sticky");
    target.service = target.service.affinity(600);
    let site = world.start("sticky", &[], &[&target.service])?;
    let _in_cgroup = site.cgroup.visit()?;
    let (mut choices, mut failures) = (0, 0);
    for turn in 0..10 {
        let set = SETS[turn % 2];
        site.apply(&target.clone().with(set).service)?;
        let found = world.network.pod.run(|| {
            Family::ALL.map(|family| {
                let tcp = identity(&connected(family, target.tcp(family))?)?;
                let socket = udp_connected(family, target.udp(family))?;
                socket.send(b"who are you")?;
                anyhow::Ok([tcp, receive_nameless(&socket)?])
            })
        })?;
        for answered in found {
            for backend in answered? {
                choices += 1;
                failures += usize::from(!backends(set).contains(&backend));
            }
        }
    }
    tell(format!("{choices} choices, {failures} failures"));
    ensure!(failures == 0, "{failures} of {choices} clients were led to a backend that is gone");
    Ok(())
}
