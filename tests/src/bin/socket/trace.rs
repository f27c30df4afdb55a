//! `mcs-agent trace`: it tells each decision by its names, and no connection notices that it begins or ends.

use std::{
    io::Lines,
    process::{ChildStdout, ExitStatus},
};

use mcs_tests::procfs::cpu_time;
use rustix::process::{Pid, kill_process};

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("trace: each decision has its names", names);
    suite.case("trace: filters", filters);
    suite.case("trace: the packet path", packets);
    suite.case("trace: no connect fails while it begins and ends", switches);
    suite.case("trace: what is lost is counted", losses);
    suite.case("trace: it ends when nobody reads it, with nothing to print", unread);
    suite.case("trace: it ends when nobody takes what it prints, and when its input ends", stuck);
    suite.case("trace: a second one ends the first, and so does the agent's end", ends);
    suite.full("trace: what 50,000 connects a second cost", costs);
}

/// Connects a second, and for how many.
const RATE: u32 = 50_000;
const SECONDS: u32 = 5;
/// The share of a CPU that the agent may take for a trace.
const SHARE: f64 = 0.05;

/// A pod, as the socket's cgroup names it.
const UID: &str = "0b5b7ac0-0e76-4f0b-8c3c-6d8d0b3f1a77";

/// `mcs-agent trace -o json`.
struct Trace {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Trace {
    fn command(agent: &Agent, words: &[&str]) -> Command {
        let mut command = Command::new(agent.binary());
        command.args(["trace", "--output", "json", "--bpffs"]).arg(agent.bpffs()).args(words);
        command
    }

    /// Starts one, and waits until it is told decisions.
    fn start(agent: &Agent, words: &[&str]) -> Result<Self> {
        Self::of(&mut Self::command(agent, words))
    }

    fn of(command: &mut Command) -> Result<Self> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("no output")?;
        let mut trace = Self { child, lines: BufReader::new(stdout).lines() };
        let first = trace.next()?;
        ensure!(first["mcs.seen"] == 0 && first["mcs.lost"] == 0, "{first}");
        Ok(trace)
    }

    /// The next line.
    fn next(&mut self) -> Result<Value> {
        let Some(line) = self.lines.next() else {
            let output = std::mem::replace(&mut self.child, Command::new("true").spawn()?)
                .wait_with_output()?;
            anyhow::bail!("it has ended: {}", String::from_utf8_lossy(&output.stderr));
        };
        Ok(serde_json::from_str(&line?)?)
    }

    fn signal(&self, signal: Signal) -> Result {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Waits for its end. Returns the rest of what it prints.
    fn rest(mut self) -> Result<(ExitStatus, Vec<Value>, String)> {
        let lines: Vec<_> =
            self.lines.map(|line| Ok(serde_json::from_str(&line?)?)).collect::<Result<_>>()?;
        let mut said = String::new();
        let mut stderr = self.child.stderr.take().context("no errors")?;
        std::io::Read::read_to_string(&mut stderr, &mut said)?;
        Ok((self.child.wait()?, lines, said))
    }

    /// Ends it as Ctrl-C does. Returns what it printed last.
    fn interrupt(self) -> Result<Value> {
        self.signal(Signal::INT)?;
        let (status, lines, said) = self.rest()?;
        ensure!(status.success(), "{status}: {said}");
        lines.last().cloned().context("nothing was printed last")
    }
}

fn connects(family: Family, to: SocketAddr) -> Result {
    connected(family, to)?;
    Ok(())
}

/// The ids of the programs that the agent has attached.
fn programs(agent: &Agent) -> Result<Value> {
    Ok(agent.status()?["hooks"].take())
}

fn wait_until_untraced(agent: &Agent, before: &Value) -> Result {
    wait::until("the usual programs to be back", || {
        let now = programs(agent)?;
        ensure!(now == *before, "{now} instead of {before}");
        Ok(())
    })
}

/// What of these fields an event has.
fn fields(event: &Value, names: &[&str]) -> Value {
    names.iter().map(|name| ((*name).to_owned(), event[name].clone())).collect()
}

fn names(world: &mut World) -> Result {
    let agent = &world.site.agent;
    let mut sticky = world.fresh("sticky").with(&PODS);
    sticky.service = sticky.service.affinity(600);
    world.site.apply(&sticky.service)?;
    let before = programs(agent)?;
    let mut trace = Trace::start(agent, &[])?;
    ensure!(programs(agent)? != before, "the same programs are attached");
    let own = std::process::id();
    for family in Family::ALL {
        let web = world.web.tcp(family);
        world.at(Place::Pod, || connects(family, web))?;
        let event = trace.next()?;
        let (ip, network) = if web.is_ipv4() || family == Family::Mapped {
            (world.web.tcp(Family::V4).ip(), "ipv4")
        } else {
            (web.ip(), "ipv6")
        };
        let told = [
            "destination.address",
            "destination.port",
            "mcs.affinity",
            "mcs.import",
            "mcs.path",
            "mcs.reason",
            "mcs.source_cluster",
            "mcs.verdict",
            "network.peer.port",
            "network.transport",
            "network.type",
            "process.pid",
        ];
        let expected = json!({
            "destination.address": ip, "destination.port": TCP.0, "mcs.affinity": false, "mcs.import": "default/web",
            "mcs.path": "socket", "mcs.reason": "connect_translated", "mcs.source_cluster": "remote",
            "mcs.verdict": "translated", "network.peer.port": TCP.1, "network.transport": "tcp",
            "network.type": network, "process.pid": own,
        });
        ensure!(fields(&event, &told) == expected, "{family}: {event}");
        ensure!(event["thread.name"].is_string() && event["source.address"].is_null(), "{event}");
        let cgroup = event["process.linux.cgroup"].as_str().context("no cgroup")?;
        ensure!(world.site.cgroup.path().ends_with(cgroup.trim_start_matches('/')), "{event}");

        let unknown = world.web.at(family, UNKNOWN_PORT);
        ensure!(world.at(Place::Pod, || Ok(connected(family, unknown).is_err()))?);
        let event = trace.next()?;
        let told = ["mcs.import", "mcs.reason", "mcs.verdict", "network.peer.address"];
        let expected = json!({"mcs.import": "default/web", "mcs.reason": "refused_unknown_port",
            "mcs.verdict": "refused", "network.peer.address": null});
        ensure!(fields(&event, &told) == expected, "{family}: {event}");

        let empty = world.empty.udp(family);
        ensure!(world.at(Place::Pod, || Ok(udp(family)?.send_to(b"x", empty).is_err()))?);
        let event = trace.next()?;
        let expected = json!({"mcs.import": "default/empty", "mcs.reason": "refused_no_backend",
            "mcs.verdict": "refused", "network.peer.address": null});
        ensure!(fields(&event, &told) == expected, "{family}: {event}");

        let mut first = Value::Null;
        for is_known in [false, true] {
            let vip = sticky.tcp(family);
            world.at(Place::Pod, || connects(family, vip))?;
            let event = trace.next()?;
            // A mapped address is the same client and frontend as its IPv4 address.
            let is_known = is_known || family == Family::Mapped;
            ensure!(event["mcs.affinity"] == is_known, "{family}: {event}");
            let backend = event["network.peer.address"].clone();
            ensure!(first.is_null() || first == backend, "{family}: {event}");
            first = backend;
        }
    }
    let socket = world.at(Place::Pod, || Ok(udp(Family::V4)?))?;
    for _ in 0..2 {
        socket.send_to(b"x", world.web.udp(Family::V4))?;
        let event = trace.next()?;
        ensure!(
            event["mcs.reason"] == "send_translated" && event["network.transport"] == "udp",
            "{event}"
        );
    }
    let pod = world.site.cgroup.path().join(format!("kubepods/pod{UID}"));
    fs::create_dir_all(&pod)?;
    let vip = world.web.tcp(Family::V4);
    let script = format!(
        "echo $$ > {}/cgroup.procs && exec 3<> /dev/tcp/{}/{}",
        pod.display(),
        vip.ip(),
        vip.port()
    );
    // The command looks for new cgroups, and rests twenty times as long.
    wait::until("a connect with the name of its pod", || {
        let connects = world.netns(Place::Pod).command("bash").args(["-c", &script]).status()?;
        ensure!(connects.success());
        let event = trace.next()?;
        ensure!(event["k8s.pod.uid"] == UID && event["thread.name"] == "bash", "{event}");
        Ok(())
    })?;
    fs::remove_dir(&pod)?;
    fs::remove_dir(pod.parent().context("no parent")?)?;
    let last = trace.interrupt()?;
    ensure!(last["mcs.lost"] == 0 && last["mcs.shown"] == last["mcs.seen"], "{last}");
    wait_until_untraced(agent, &before)?;
    world.site.agent.wait_until_healthy()?;
    world.site.remove(&sticky.service)
}

fn filters(world: &mut World) -> Result {
    let agent = &world.site.agent;
    let before = programs(agent)?;
    let own = std::process::id().to_string();
    for (words, is_wanted) in [
        (&["default/web"][..], true),
        (&["default/empty"], false),
        (&["--namespace", "default"], true),
        (&["--namespace", "shop"], false),
        (&["--verdict", "translated"], true),
        (&["--verdict", "refused"], false),
        (&["--pid", &own], true),
        (&["--pid", "1"], false),
        (&["--pod", UID], false),
    ] {
        let trace = Trace::start(agent, &[words, &["--count", "1"]].concat())?;
        let web = world.web.tcp(Family::V4);
        world.at(Place::Pod, || connects(Family::V4, web))?;
        if is_wanted {
            let (status, lines, said) = trace.rest()?;
            ensure!(status.success() && lines.len() == 2, "{words:?}: {lines:?}: {said}");
        } else {
            let last = trace.interrupt()?;
            ensure!(last["mcs.shown"] == 0 && last["mcs.seen"] == 1, "{words:?}: {last}");
        }
    }
    let output = agent.command(&["trace", "default/wep", "--for", "1s"])?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.contains("did you mean default/web?"), "{said}");
    let output = agent.command(&["trace", "--for", "1s"])?;
    let table = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && table.starts_with("UTC "), "{output:?}");
    wait_until_untraced(agent, &before)
}

fn packets(world: &mut World) -> Result {
    let target = world.fresh("flows").with(World::WEB);
    world.route(&target, Place::Pod, "add")?;
    let flags = ["--socket-lb=off", "--tc=on", "--tc-devices=pod"];
    let site = world.start("packets", &flags, &[&target.service])?;
    let mut trace = Trace::start(&site.agent, &[])?;
    for family in [Family::V4, Family::V6] {
        let vip = target.tcp(family);
        let client = world.at(Place::Pod, || Ok(connected(family, vip)?.local_addr()?))?;
        let event = trace.next()?;
        let told = [
            "mcs.import",
            "mcs.path",
            "mcs.reason",
            "mcs.verdict",
            "network.peer.port",
            "process.pid",
            "source.address",
            "source.port",
        ];
        let expected = json!({"mcs.import": "default/flows", "mcs.path": "packet", "mcs.reason": "flow_created",
            "mcs.verdict": "translated", "network.peer.port": TCP.1, "process.pid": null,
            "source.address": client.ip(), "source.port": client.port()});
        ensure!(fields(&event, &told) == expected, "{family}: {event}");
        let unknown = target.at(family, UNKNOWN_PORT);
        ensure!(world.at(Place::Pod, || Ok(connected(family, unknown).is_err()))?);
        let event = trace.next()?;
        ensure!(event["mcs.reason"] == "packet_refused_unknown_port", "{event}");
        ensure!(event["mcs.import"] == "default/flows", "{event}");
    }
    let last = trace.interrupt()?;
    ensure!(last["mcs.lost"] == 0, "{last}");
    world.route(&target, Place::Pod, "delete")?;
    World::end(site)
}

/// Connects and closes again and again until `is_over`. Returns how many connects there were.
fn connect_until(is_over: &AtomicBool, vip: SocketAddr) -> Result<u64> {
    let mut connects = 0;
    while !is_over.load(Ordering::Relaxed) {
        let stream = connected(Family::V4, vip).with_context(|| format!("after {connects}"))?;
        ensure!(stream.peer_addr()? == vip, "it shows its backend");
        connects += 1;
    }
    Ok(connects)
}

fn switches(world: &mut World) -> Result {
    let agent = &world.site.agent;
    let before = programs(agent)?;
    let turns = if is_full() { 20 } else { 10 };
    let (web, is_over) = (world.web.tcp(Family::V4), AtomicBool::new(false));
    let (traced, connects) = thread::scope(|scope| {
        let load = scope.spawn(|| world.at(Place::Pod, || connect_until(&is_over, web)));
        let traced = (0..turns).try_for_each(|_| {
            let words = ["--count", "1", "--for", "30s"];
            let (status, lines, said) = Trace::start(agent, &words)?.rest()?;
            ensure!(
                status.success() && lines[0]["mcs.import"] == "default/web",
                "{lines:?}: {said}"
            );
            Ok(())
        });
        is_over.store(true, Ordering::Relaxed);
        (traced, load.join().map_err(|_| anyhow::anyhow!("the thread has panicked")))
    });
    // Without connects there is nothing to trace.
    let connects = connects??;
    traced?;
    tell(format!("{connects} connects while the programs were switched {} times", 2 * turns));
    wait_until_untraced(agent, &before)
}

fn losses(world: &mut World) -> Result {
    /// More than the ring buffer has room for.
    const SENDS: u64 = 20_000;
    let agent = &world.site.agent;
    let before = programs(agent)?;
    let trace = Trace::start(agent, &["--verdict", "translated"])?;
    trace.signal(Signal::STOP)?;
    let empty = world.empty.udp(Family::V4);
    world.at(Place::Pod, || {
        let socket = udp(Family::V4)?;
        for _ in 0..SENDS {
            ensure!(socket.send_to(b"x", empty).is_err());
        }
        Ok(())
    })?;
    trace.signal(Signal::CONT)?;
    let last = trace.interrupt()?;
    let number = |name: &str| last[name].as_u64().context("no number");
    ensure!(
        number("mcs.lost")? > 0 && number("mcs.seen")? + number("mcs.lost")? == SENDS,
        "{last}"
    );
    wait_until_untraced(agent, &before)
}

/// Connects [`RATE`] times a second. Returns how many connects there were a second.
fn load(world: &World, vip: SocketAddr) -> Result<f64> {
    world.at(Place::Pod, || {
        let socket = udp(Family::V4)?;
        let begin = Instant::now();
        for millisecond in 0..SECONDS * 1000 {
            for _ in 0..RATE / 1000 {
                connect(&socket, vip)?;
            }
            let next = begin + Duration::from_millis(u64::from(millisecond) + 1);
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(f64::from(RATE * SECONDS) / begin.elapsed().as_secs_f64())
    })
}

fn costs(world: &mut World) -> Result {
    let agent = &world.site.agent;
    let (before, web) = (programs(agent)?, world.web.udp(Family::V4));
    let share = |pid, rate: &mut f64| {
        let spent = cpu_time(pid)?;
        *rate = load(world, web)?;
        let spent = cpu_time(pid)?.saturating_sub(spent);
        anyhow::Ok(spent.as_secs_f64() * *rate / f64::from(RATE * SECONDS))
    };
    let mut rate = 0.0;
    let without = share(agent.pid(), &mut rate)?;
    // Of an import that nobody connects to.
    let trace = Trace::start(agent, &["default/empty"])?;
    let with = share(agent.pid(), &mut rate)?;
    let command = share(trace.child.id(), &mut rate)?;
    let told = trace.interrupt()?;
    let number = |name: &str| told[name].as_u64().context("no number");
    let (seen, lost) = (number("mcs.seen")?, number("mcs.lost")?);
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    tell(format!(
        "{rate:.0} connects a second: the agent takes {} of a CPU, {} without a trace, the command {}; {seen} seen, {lost} lost",
        percent(with),
        percent(without),
        percent(command),
    ));
    ensure!(seen + lost == u64::from(2 * RATE * SECONDS), "{told}");
    ensure!(with - without <= SHARE, "{} more", percent(with - without));
    wait_until_untraced(agent, &before)
}

/// As the process that `kubectl exec` leaves behind.
fn unread(world: &mut World) -> Result {
    let agent = &world.site.agent;
    let before = programs(agent)?;
    let Trace { mut child, lines } = Trace::start(agent, &["--for", "5m"])?;
    drop(lines);
    let ended = wait::until("the end of the trace", || child.try_wait()?.context("it goes on"));
    child.kill()?;
    let status = ended?;
    ensure!(status.success(), "{status}");
    wait_until_untraced(agent, &before)
}

/// Its output is a pipe that somebody holds open and nobody reads, as containerd does when kubectl is killed.
fn stuck(world: &mut World) -> Result {
    /// As many lines as fill a pipe of 64 KiB, and more.
    const CONNECTS: usize = 400;
    let agent = &world.site.agent;
    let before = programs(agent)?;
    let web = world.web.tcp(Family::V4);
    let fill =
        || world.at(Place::Pod, || (0..CONNECTS).try_for_each(|_| connects(Family::V4, web)));
    let end = |mut trace: Trace| {
        let ended =
            wait::until("the end of the trace", || trace.child.try_wait()?.context("it goes on"));
        trace.child.kill()?;
        ensure!(ended?.success());
        wait_until_untraced(agent, &before)
    };
    let trace = Trace::start(agent, &["--for", "2s"])?;
    fill()?;
    end(trace)?;
    let mut command = Trace::command(agent, &["--until-input-ends"]);
    let mut trace = Trace::of(command.stdin(Stdio::piped()))?;
    fill()?;
    ensure!(trace.child.try_wait()?.is_none(), "its input has not ended");
    drop(trace.child.stdin.take());
    end(trace)
}

fn ends(world: &mut World) -> Result {
    let target = world.fresh("ends").with(World::WEB);
    let mut site = world.start("ends", &[], &[&target.service])?;
    let client = || {
        let _visit = site.cgroup.visit()?;
        let vip = target.tcp(Family::V4);
        world.at(Place::Pod, || connects(Family::V4, vip))
    };
    let first = Trace::start(&site.agent, &[])?;
    let second = Trace::start(&site.agent, &[])?;
    let (status, _, said) = first.rest()?;
    ensure!(status.code() == Some(1) && said.contains("traces now"), "{status}: {said}");
    let traced = programs(&site.agent)?;
    site.agent.kill()?;
    let (status, _, said) = second.rest()?;
    ensure!(status.code() == Some(1) && said.contains("the agent has ended"), "{status}: {said}");
    let output = site.agent.command(&["trace", "--for", "1s"])?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && said.contains("no agent runs"), "{said}");
    ensure!(programs(&site.agent)? == traced, "the killed agent's programs are gone");
    client()?;
    site.agent.come_back(&[])?;
    let usual = programs(&site.agent)?;
    ensure!(usual != traced, "the programs of the trace are still attached");
    let third = Trace::start(&site.agent, &[])?;
    site.agent.stop()?;
    let (status, _, said) = third.rest()?;
    ensure!(status.code() == Some(1) && said.contains("the agent has ended"), "{status}: {said}");
    ensure!(programs(&site.agent)? == usual, "the programs of the trace are left behind");
    client()?;
    site.agent.come_back(&[])
}
