//! A start of all at once, changes, an API server that starts again, and as many nodes once more.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use mcs_agent::core::kernel::flows::monotonic_ns;
use mcs_tests::{
    suite::{Suite, is_full, tell},
    wait,
};
use serde_json::{Value, json};

use crate::{
    crowd::{Crowd, Kind, memory},
    followers::Progress,
    world::World,
};

const PATIENCE: Duration = Duration::from_mins(2);
/// By when all agents of a fleet have read everything.
const START: Duration = Duration::from_mins(1);
/// The memory of the source and the store of an agent, in bytes.
const MEMORY: u64 = 16 << 20;
/// Changes a second.
const RATE: u32 = 100;
const CHANGES: usize = 10;
/// How much more than kube-proxy an agent may receive for a change.
const MORE_BYTES: f64 = 1.2;
/// The share of a change of the large slice that a node may receive, by what it was in JSON with all conditions.
const SHARE: f64 = 1.0 / 3.0;
/// What compressed lists have of the bytes of a start, at most.
const COMPRESSED: f64 = 0.5;
/// ServiceImports and slices.
const KINDS: usize = 2;
/// Connections of an agent: one for the slices, and one for all else.
const CONNECTIONS: u64 = 2;
/// How long a connection is silent before it is probed.
const PROBED: Duration = Duration::from_secs(15);
/// When an agent notices that nobody answers any more, with the time of a thousand to ask again.
const SILENCE: Duration = Duration::from_secs(45);
/// An API server sends a bookmark each minute.
const BOOKMARKS: Duration = Duration::from_secs(75);
/// The CPU time that an agent may take to read a change, in microseconds: 3 % of a CPU at [`RATE`].
const OWN_CPU: f64 = 300.0;
/// How many requests may wait for an answer.
const WRITERS: usize = 4;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("all agents start at once", start);
    suite.case("one change reaches all nodes", one_change);
    suite.case("100 changes a second, beside kube-proxy", many_changes);
    suite.case("the API server starts again", server_starts_again);
    suite.case("one of two API servers ends", server_ends);
    suite.full("connections end without a word", silence);
    suite.case("etcd is compacted while watches are away", compaction);
    suite.case("as many nodes come once more", doubles);
    suite.case("an API server without HTTP/2 and without streamed lists", old_server);
}

fn fleet() -> usize {
    if is_full() { 1000 } else { 60 }
}

/// Nodes that follow the changes: each node gets all changes.
fn few() -> usize {
    // Of 40 nodes the changes themselves have most of the API server's CPU time, and vary by as much as a kind of followers.
    if is_full() { 160 } else { 40 }
}

fn kilobytes(bytes: u64, followers: usize) -> f64 {
    bytes as f64 / 1000.0 / followers as f64
}

/// Starts agents, and waits until they have read everything.
fn started(world: &World, count: usize) -> anyhow::Result<Crowd> {
    let (meter, before) = (world.meter()?, memory(world.server.pid())?);
    let connections = world.connections()?;
    let mut agents = world.start(Kind::Agents, count)?;
    let took = agents.wait_until_synced(PATIENCE)?;
    let cost = world.cost(&meter)?;
    let connections = world.connections()? - connections;
    let of_server = memory(world.server.pid())?.saturating_sub(before);
    let lists = agents.progress()?.lists;
    tell(format!(
        "{count} agents in {:.1} s: {lists} lists; each {:.0} kB, {:.1} ms of the API server's CPU, {:.1} ms of its own, {:.1} MB of memory and {:.2} MB of the API server's",
        took.as_secs_f64(),
        kilobytes(cost.bytes, count),
        cost.server.as_secs_f64() * 1e3 / count as f64,
        agents.cpu_time()?.as_secs_f64() * 1e3 / count as f64,
        agents.memory()? as f64 / 1e6 / count as f64,
        of_server as f64 / 1e6 / count as f64,
    ));
    ensure!(agents.memory()? <= count as u64 * MEMORY, "more than {MEMORY} bytes of memory each");
    ensure!(took <= wait::scaled(START), "they took {took:?}");
    let errors = world.server_errors()?;
    ensure!(errors == 0, "the API server answered {errors} requests with 500 or more");
    // Agents that were there before may make new ones meanwhile.
    let most = CONNECTIONS * count as u64 * 21 / 20;
    ensure!(connections <= most, "{connections} connections instead of at most {most}");
    Ok(agents)
}

fn start(world: &mut World) -> anyhow::Result<()> {
    let agents = started(world, fleet())?;
    world.agents = Some(agents);
    Ok(())
}

/// Takes the shared agents, and starts them if no case has.
fn shared(world: &mut World) -> anyhow::Result<Crowd> {
    match world.agents.take() {
        Some(agents) => Ok(agents),
        None => started(world, fleet()),
    }
}

fn one_change(world: &mut World) -> anyhow::Result<()> {
    let mut agents = shared(world)?;
    let mut times = Vec::new();
    for _ in 0..CHANGES {
        let begin = monotonic_ns();
        let mark = world.change_marked()?;
        times.push(agents.wait_for(mark, begin, PATIENCE)?);
    }
    times.sort_unstable();
    tell(format!(
        "the last of {} agents sees a change after {:.0} ms (median), {:.0} ms (worst)",
        agents.count,
        times[times.len() / 2].as_secs_f64() * 1e3,
        times[times.len() - 1].as_secs_f64() * 1e3,
    ));
    let meter = world.meter()?;
    for _ in 0..CHANGES {
        world.change_large()?;
    }
    let begin = monotonic_ns();
    let mark = world.change_marked()?;
    agents.wait_for(mark, begin, PATIENCE)?;
    let one = kilobytes(world.cost(&meter)?.bytes, agents.count) / CHANGES as f64;
    let as_json = kilobytes(world.large_as_json, 1);
    tell(format!(
        "a change of a slice with 100 endpoints: {one:.2} kB a node; in JSON it was {as_json:.1} kB"
    ));
    ensure!(one <= as_json * SHARE, "more than a third of that");
    world.agents = Some(agents);
    Ok(())
}

/// What each of [`RATE`] changes a second costs for a follower.
struct Load {
    kilobytes: f64,
    /// The CPU time of the API server in microseconds, with the change itself.
    server: f64,
    /// The CPU time of the follower in microseconds.
    own: f64,
}

fn many_changes(world: &mut World) -> anyhow::Result<()> {
    // They would get the changes too.
    world.agents = None;
    let (seconds, rounds) = if is_full() { (10, 5) } else { (3, 1) };
    // One after the other in each round, so that what else the machine does strikes all.
    let kinds = [None, Some(Kind::Agents), Some(Kind::KubeProxies)];
    let mut loads = kinds.map(|_| Vec::new());
    for _ in 0..rounds {
        for (kind, loads) in kinds.iter().zip(&mut loads) {
            loads.push(loaded(world, *kind, seconds)?);
        }
    }
    let [idle, agents, proxies] = loads.map(|loads| Load {
        kilobytes: median(&loads, |load| load.kilobytes),
        server: median(&loads, |load| load.server),
        own: median(&loads, |load| load.own),
    });
    for (name, load) in [("agents", &agents), ("kube-proxies", &proxies)] {
        tell(format!(
            "{name}: {:.2} kB a change and node, {:.1} us of the API server's CPU, {:.1} us of their own",
            load.kilobytes,
            load.server - idle.server,
            load.own,
        ));
    }
    let most = proxies.kilobytes * MORE_BYTES;
    ensure!(agents.kilobytes <= most, "{:.2} kB a change, not {most:.2}", agents.kilobytes);
    if is_full() {
        ensure!(
            agents.server < proxies.server,
            "not less of the API server's CPU than kube-proxies"
        );
        ensure!(agents.own <= OWN_CPU, "{:.1} us of CPU, not {OWN_CPU}", agents.own);
    }
    Ok(())
}

fn median(loads: &[Load], of: fn(&Load) -> f64) -> f64 {
    let mut all: Vec<_> = loads.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn loaded(world: &mut World, kind: Option<Kind>, seconds: u32) -> anyhow::Result<Load> {
    let mut followers = kind.map(|kind| world.start(kind, few())).transpose()?;
    if let Some(followers) = &mut followers {
        followers.wait_until_synced(PATIENCE)?;
    }
    let own =
        |followers: &Option<Crowd>| followers.as_ref().map_or(Ok(Duration::ZERO), Crowd::cpu_time);
    let (meter, before, begin) = (world.meter()?, own(&followers)?, Instant::now());
    let count = RATE * seconds;
    change(world, count, begin)?;
    let start = monotonic_ns();
    let mark = world.change_marked()?;
    if let Some(followers) = &mut followers {
        followers.wait_for(mark, start, PATIENCE)?;
    }
    let cost = world.cost(&meter)?;
    let spent = own(&followers)?.saturating_sub(before);
    let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(count) / few() as f64;
    Ok(Load {
        kilobytes: kilobytes(cost.bytes, few()) / f64::from(count),
        server: each(cost.server),
        own: each(spent),
    })
}

/// Changes slices one after the other, [`RATE`] a second.
fn change(world: &World, count: u32, begin: Instant) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let work = || -> anyhow::Result<()> {
        let api = world.server.another_client()?;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count as usize {
                return Ok(());
            }
            let due = Duration::from_secs(1) * u32::try_from(number)? / RATE;
            thread::sleep(due.saturating_sub(begin.elapsed()));
            api.apply(&turned(
                &world.slices[number % world.slices.len()],
                number / world.slices.len(),
            ))?;
        }
    };
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(work)).collect();
        writers
            .into_iter()
            .try_for_each(|writer| writer.join().ok().context("a writer panicked")?)
    })
}

/// The slice with its first endpoint as it is not in the round before.
fn turned(slice: &Value, round: usize) -> Value {
    let mut slice = slice.clone();
    let stamp = monotonic_ns();
    slice["endpoints"][0]["conditions"]["ready"] = json!(round % 2 == 1);
    slice["metadata"]["annotations"]["fleet/stamp"] = json!(stamp.to_string());
    slice
}

/// What agents have read again, and hold no longer, since `before`.
fn again(agents: &mut Crowd, before: &Progress) -> anyhow::Result<(usize, usize)> {
    // A list too many would come now.
    thread::sleep(Duration::from_secs(1));
    let now = agents.progress()?;
    Ok((now.lists - before.lists, now.removed - before.removed))
}

/// The API server answers 410 to a watch that has seen an older version than its first one. Each watch lists once.
fn server_starts_again(world: &mut World) -> anyhow::Result<()> {
    let mut agents = shared(world)?;
    let (before, received, begin) = (agents.progress()?, world.received()?, monotonic_ns());
    world.server.kill()?;
    // The listener of the dying server took connections that no API server saw: they are not counted.
    let connections = world.connections()?;
    world.server.start_again()?;
    let ready = monotonic_ns();
    let mark = world.change_marked()?;
    let took = agents.wait_for(mark, ready, PATIENCE)?;
    let (lists, removed) = again(&mut agents, &before)?;
    let bytes = world.received()? - received;
    let connections = world.connections()? - connections;
    tell(format!(
        "away for {:.1} s; all {} agents follow {:.1} s after it is ready, for {:.0} kB and {:.1} lists each, by {connections} connections",
        Duration::from_nanos(ready - begin).as_secs_f64(),
        agents.count,
        took.as_secs_f64(),
        kilobytes(bytes, agents.count),
        lists as f64 / agents.count as f64,
    ));
    ensure!(lists <= agents.count * KINDS, "{lists} lists");
    // The start may have ended a connection that a follower had just begun.
    ensure!(connections <= 2 * CONNECTIONS * agents.count as u64, "{connections} connections");
    ensure!(removed == 0, "agents lost {removed} objects");
    let errors = world.server_errors()?;
    ensure!(errors == 0, "the API server answered {errors} requests with 500 or more");
    world.agents = Some(agents);
    Ok(())
}

/// The other API server has all versions that watches have seen: nobody lists.
fn server_ends(world: &mut World) -> anyhow::Result<()> {
    world.agents = None;
    let second = world.second_server()?;
    let mut agents = started(world, fleet())?;
    let before = agents.progress()?;
    world.server.kill()?;
    resumed(world, &mut agents, &before, "the first one ended")?;
    // Without a bookmark since then, the versions that watches have seen are older than it.
    if is_full() {
        world.server.start_again()?;
        world.wait_for_servers()?;
        thread::sleep(BOOKMARKS);
        let before = agents.progress()?;
        drop(second);
        resumed(world, &mut agents, &before, "the second one ended a minute later")
    } else {
        drop((agents, second));
        world.server.start_again()
    }
}

/// Waits until all follow again after an API server has ended.
fn resumed(
    world: &mut World,
    agents: &mut Crowd,
    before: &Progress,
    after: &str,
) -> anyhow::Result<()> {
    let (received, begin) = (world.received()?, monotonic_ns());
    let mark = world.change_marked()?;
    let took = agents.wait_for(mark, begin, PATIENCE)?;
    let bytes = kilobytes(world.received()? - received, agents.count);
    let (lists, _) = again(agents, before)?;
    tell(format!(
        "{after}: all {} agents follow after {:.1} s, for {bytes:.0} kB and {lists} lists",
        agents.count,
        took.as_secs_f64(),
    ));
    ensure!(lists == 0, "{lists} lists, although every watch can resume");
    Ok(())
}

/// A load balancer forgets the connections of all: no packet of them arrives any more.
fn silence(world: &mut World) -> anyhow::Result<()> {
    let mut agents = shared(world)?;
    let before = agents.progress()?;
    world.silence()?;
    let begin = monotonic_ns();
    let mark = world.change_marked()?;
    let took = agents.wait_for(mark, begin, PATIENCE);
    world.end_silence()?;
    let took = took?;
    let (lists, removed) = again(&mut agents, &before)?;
    tell(format!("all {} agents follow {:.1} s later", agents.count, took.as_secs_f64()));
    ensure!(took >= PROBED, "the change passed by connections that were to be silent");
    ensure!(took <= wait::scaled(SILENCE), "not within {SILENCE:?}");
    ensure!((lists, removed) == (0, 0), "{lists} lists, {removed} objects gone");
    world.agents = Some(agents);
    Ok(())
}

/// A slice goes meanwhile. Until the agents can ask, they keep it. Then they list once, because no API server has the versions
/// that they have seen.
fn compaction(world: &mut World) -> anyhow::Result<()> {
    let mut agents = shared(world)?;
    let before = agents.progress()?;
    world.bar(true)?;
    // It ends their connections.
    world.server.kill()?;
    world.server.start_again()?;
    let gone = world.slices.pop().context("no slices")?;
    world.server.api.delete(&gone)?;
    let mark = world.change_marked()?;
    world.server.kill()?;
    world.compact()?;
    world.server.start_again()?;
    let (lists, removed) = again(&mut agents, &before)?;
    ensure!((lists, removed) == (0, 0), "{lists} lists, {removed} objects gone while away");
    let (received, begin) = (world.received()?, monotonic_ns());
    world.bar(false)?;
    let took = agents.wait_for(mark, begin, PATIENCE)?;
    agents.wait_for_lists(before.lists + agents.count * KINDS, PATIENCE)?;
    let bytes = kilobytes(world.received()? - received, agents.count);
    let (lists, removed) = again(&mut agents, &before)?;
    tell(format!(
        "all {} agents have listed once {:.1} s after they can ask, for {bytes:.0} kB each",
        agents.count,
        took.as_secs_f64(),
    ));
    ensure!(lists == agents.count * KINDS, "{lists} lists");
    ensure!(removed == agents.count, "{removed} objects gone");
    world.agents = Some(agents);
    Ok(())
}

fn doubles(world: &mut World) -> anyhow::Result<()> {
    let _first = shared(world)?;
    started(world, fleet()).map(drop)
}

fn old_server(world: &mut World) -> anyhow::Result<()> {
    // They would receive something meanwhile.
    world.agents = None;
    let server = world.old_server()?;
    let streamed = bytes_of_start(world, &world.kubeconfig(Kind::Agents))?;
    let listed = bytes_of_start(world, &server.agents_kubeconfig())?;
    drop(server);
    tell(format!(
        "an agent starts with {listed:.0} kB in compressed lists, and with {streamed:.0} kB in streams"
    ));
    ensure!(listed <= streamed * COMPRESSED, "more than {COMPRESSED} of what streams have");
    Ok(())
}

/// What one agent receives until it has read everything.
fn bytes_of_start(world: &World, kubeconfig: &Path) -> anyhow::Result<f64> {
    let before = world.received()?;
    let mut agent = world.start_with(Kind::Agents, kubeconfig, 1)?;
    agent.wait_until_synced(PATIENCE)?;
    Ok(kilobytes(world.received()? - before, 1))
}
