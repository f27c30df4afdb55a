//! Readers of a hub: how many watches and connections each has however many mailboxes there are, and what `link` asks for.

use std::{collections::BTreeMap, fs, thread::sleep, time::Duration};

use anyhow::{Context as _, ensure};
use mcs_tests::{
    procfs::{Status, cpu_time},
    suite::{Suite, is_full, tell},
    wait,
};
use serde_json::{Value, json};

use crate::{
    clients::meanwhile,
    cluster::{ARRIVAL, Cluster, conditions},
    controller::Controller,
    hub,
    objects::namespaced,
    peering,
    silence::{follows_again, imported_service, stays},
    world::{POD_RANGES, World},
};

/// What a reader watches.
const WATCHED: [&str; 3] = ["endpointslices", "exportedservices", "leases"];
/// Requests of `link` to the hub for each cluster, and those of others meanwhile.
const REQUESTS: u64 = 20;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case(
        "readers of a hub have three watches and one connection each",
        meanwhile(three_watches),
    );
}

/// How many further readers there are, and mailboxes first and last.
fn size() -> (usize, [usize; 2]) {
    if is_full() { (50, [25, 50]) } else { (3, [2, 6]) }
}

fn three_watches(world: &mut World) -> anyhow::Result<()> {
    world.add_third()?;
    let (namespace, before) = imported_service(world)?;
    let asked = requests(&world.clusters[2])?;
    hub::link(world)?;
    let asked = requests(&world.clusters[2])? - asked;
    tell(format!("link --hub of 2 clusters: {asked} requests to the hub"));
    ensure!(asked <= 2 * REQUESTS, "{asked} requests");
    world.clusters[0].controller.restart_with(&["--mailbox=mcs-c1", "--mailbox-secret=mailbox"])?;
    world.clusters[1].controller.restart_with(&["--replica=a"])?;
    stays(world, &namespace, &before)?;

    // The hub is a cluster with a mailbox of its own too, which these do not read for now.
    for cluster in [world.first(), world.second()] {
        cluster.api().delete(&peering::peer(&world.clusters[2], POD_RANGES[2]))?;
    }
    let (readers, mailboxes) = size();
    add_mailboxes(world, 0..mailboxes[0])?;
    // On a busy machine the controllers can still be starting.
    let port = world.clusters[2].server.address().port();
    for cluster in &world.clusters[..2] {
        let pid = cluster.controller.pid()?;
        wait::within(ARRIVAL, "one connection to the hub", || {
            let count = connections(pid, port)?;
            ensure!(count == 1, "{} has {count}", cluster.id);
            Ok(())
        })?;
    }
    let base = settled(&world.clusters[2])?;
    let others = (0..readers).map(|number| {
        let replica = format!("--replica=reader-{number}");
        world.second().controller.another(&[&replica])
    });
    let others = others.collect::<anyhow::Result<Vec<_>>>()?;
    three_each(world, &base, &others, mailboxes[0])?;
    add_mailboxes(world, mailboxes[0]..mailboxes[1])?;
    three_each(world, &base, &others, mailboxes[1])?;
    stays(world, &namespace, &before)?;
    drop(others);
    follows_again(world, &namespace, &before)?;

    let (namespace, before) = imported_service(world)?;
    for number in 0..mailboxes[1] {
        world.second().api().delete(&peer(number))?;
    }
    for cluster in world.clusters.iter_mut().take(2) {
        cluster.controller.restart_with(&[])?;
    }
    peering::connect(world.first(), world.second(), POD_RANGES[1])?;
    peering::connect(world.second(), world.first(), POD_RANGES[0])?;
    for cluster in [world.first(), world.second()] {
        peering::connect(cluster, &world.clusters[2], POD_RANGES[2])?;
    }
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace, &before)
}

/// Each of these readers has three watches and one connection, and follows all mailboxes.
fn three_each(
    world: &World,
    base: &BTreeMap<String, u64>,
    readers: &[Controller],
    mailboxes: usize,
) -> anyhow::Result<()> {
    let hub = &world.clusters[2];
    let more = u64::try_from(readers.len())?;
    let port = hub.server.address().port();
    wait::within(ARRIVAL, "three watches for each reader", || {
        let found = watches(hub)?;
        for resource in WATCHED {
            let (now, before) = (found.get(resource), base.get(resource));
            let further = now.unwrap_or(&0).saturating_sub(*before.unwrap_or(&0));
            ensure!(further == more, "{further} watches of {resource} for {more} readers");
        }
        let (now, before): (u64, u64) = (found.values().sum(), base.values().sum());
        ensure!(now == before + 3 * more, "{now} watches, and {before} before");
        Ok(())
    })?;
    let mut most = 0;
    // The first cluster publishes there too.
    for reader in readers.iter().chain([&world.first().controller]) {
        let pid = reader.pid()?;
        wait::until("one connection", || {
            let count = connections(pid, port)?;
            ensure!(count == 1, "{count} connections");
            Ok(())
        })?;
        most = most.max(Status::of(pid)?.number("VmRSS")?);
    }
    let memory = Status::of(hub.server.pid())?.number("VmRSS")? >> 10;
    let used = cpu_time(hub.server.pid())?;
    tell(format!(
        "{more} readers of {} mailboxes: {} watches, {more} connections; a reader has {} MiB, the hub's API server {memory} \
         MiB and {:.1} s of CPU time",
        mailboxes + 1,
        3 * more,
        most >> 10,
        used.as_secs_f64(),
    ));
    Ok(())
}

/// Watches by resource.
fn watches(hub: &Cluster) -> anyhow::Result<BTreeMap<String, u64>> {
    let metrics = hub.api().text("/metrics")?;
    let mut all = BTreeMap::new();
    for line in metrics.lines().filter(|line| line.starts_with("apiserver_longrunning_requests{")) {
        if label(line, "verb") == Some("WATCH") {
            let resource = label(line, "resource").context("a watch of nothing")?;
            *all.entry(resource.to_owned()).or_default() += value(line)?;
        }
    }
    Ok(all)
}

/// The same once nobody begins or ends any.
fn settled(hub: &Cluster) -> anyhow::Result<BTreeMap<String, u64>> {
    wait::within(ARRIVAL, "watches that stay", || {
        let before = watches(hub)?;
        // A new mailbox makes a reader connect once more for a while, which is long on a busy machine.
        sleep(wait::scaled(Duration::from_secs(3)));
        let now = watches(hub)?;
        ensure!(before == now, "{before:?}, then {now:?}");
        Ok(now)
    })
}

/// Requests that have ended.
fn requests(hub: &Cluster) -> anyhow::Result<u64> {
    let metrics = hub.api().text("/metrics")?;
    let lines = metrics.lines().filter(|line| line.starts_with("apiserver_request_total{"));
    lines.filter(|line| label(line, "verb") != Some("WATCH")).map(value).sum()
}

fn label<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!("{name}=\""))?;
    rest.split('"').next()
}

fn value(line: &str) -> anyhow::Result<u64> {
    let text = line.rsplit(' ').next().unwrap_or_default();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count, which can be written as 1e+06"
    )]
    Ok(text.parse::<f64>()? as u64)
}

/// The established connections of a process to a port.
fn connections(pid: u32, port: u16) -> anyhow::Result<usize> {
    /// Column of the state in `/proc/PID/net/tcp`, and its value.
    const ESTABLISHED: (usize, &str) = (3, "01");
    let files = fs::read_dir(format!("/proc/{pid}/fd"))?;
    let sockets: Vec<_> = files
        .filter_map(|file| fs::read_link(file.ok()?.path()).ok())
        .filter_map(|target| target.to_str().map(str::to_owned))
        .collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp"))?;
    let is_one = |line: &&str| {
        let columns: Vec<_> = line.split_whitespace().collect();
        let column = |number: usize| columns.get(number).copied().unwrap_or_default();
        column(2).ends_with(&format!(":{port:04X}"))
            && column(ESTABLISHED.0) == ESTABLISHED.1
            && sockets.contains(&format!("socket:[{}]", column(9)))
    };
    Ok(table.lines().filter(is_one).count())
}

fn mailbox(number: usize) -> String {
    format!("mcs-shared-{number}")
}

fn peer(number: usize) -> Value {
    let id = format!("shared-{number}");
    json!({
        "apiVersion": "clusterset.mcs-agent.io/v1alpha1", "kind": "ClusterPeer",
        "metadata": { "name": id },
        "spec": {
            "clusterId": id,
            "kubeconfigSecretRef": { "name": "mailbox" },
            "mailbox": mailbox(number),
            "podCIDRs": [format!("20.{number}.0.0/16")],
        },
    })
}

/// Makes further mailboxes, of clusters that export nothing, and waits until they are read.
fn add_mailboxes(world: &World, numbers: std::ops::Range<usize>) -> anyhow::Result<()> {
    let (second, hub) = (world.second(), &world.clusters[2]);
    for number in numbers.clone() {
        hub.add_namespace(&mailbox(number))?;
        let mut lease =
            namespaced("coordination.k8s.io/v1", "Lease", &mailbox(number), "publisher");
        lease["metadata"]["annotations"] = json!({
            "clusterset.mcs-agent.io/complete": "true",
            "clusterset.mcs-agent.io/exported-services": "0",
        });
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        lease["spec"] = json!({ "holderIdentity": format!("shared-{number}"), "renewTime": now });
        hub.api().apply(&lease)?;
        second.api().apply(&peer(number))?;
    }
    for number in numbers {
        wait::within(ARRIVAL, "a mailbox that is read", || {
            let found = conditions(&second.api().read(&peer(number))?);
            ensure!(found.iter().any(|one| one == "Synced=True/Synced"), "{found:?}");
            Ok(())
        })?;
    }
    Ok(())
}
