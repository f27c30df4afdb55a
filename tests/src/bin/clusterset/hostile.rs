//! A peer that changes all that it exports, all the time: it loads the importing cluster no more than its budget allows, and
//! delays nobody else.
//!
//! API servers, etcd and clients share the CPUs of a test machine, so writes that nobody imports delay a change too. Changes of
//! a quiet peer are therefore measured beside the same writes, made by the test, and then beside the hostile peer: the
//! difference is the controller's.

use std::{
    ops::Range,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread::{self, sleep},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use mcs_tests::{
    api_server::{Api, TOKEN},
    suite::{Suite, is_full, tell},
    wait,
};
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, conditions},
    objects::namespaced,
    peering,
    world::World,
};

/// The namespace of all services.
const NAMESPACE: &str = "hostile";
const HOSTILE: &str = "hostile";
const QUIET: &str = "quiet";
/// How many services the hostile peer exports.
const SERVICES: usize = 1000;
/// Enough that no import changes more than once a second.
const QUIET_SERVICES: usize = 10;
/// More than an export can have.
const HUGE: usize = 16 << 10;
/// Half of what an export can have.
const LARGE: usize = 4 << 10;
/// How many imports are written a second (`--peer-writes`), and what a machine of the tests may deviate.
const MOST_WRITES: f64 = 100.0 * 1.3;
/// How many imports the test writes a second in place of the controller (`--peer-writes`).
const WRITES: usize = 100;
/// By as much two measurements of the same differ.
const NOISE: Duration = Duration::from_millis(50);

/// What happens while changes of the quiet peer are measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// Nothing else.
    Nothing,
    /// The writes that the hostile peer makes and causes, without the hostile peer.
    SameWrites,
    /// The hostile peer.
    Hostile,
}

/// 99 of 100 changes of the quiet peer took at most this long.
struct Times {
    /// From the request to the import.
    whole: Duration,
    /// From the answer of the mailbox's API server to the import: the controller's part, and a write of the other API server.
    after: Duration,
    /// How many imports were written a second beside.
    rate: f64,
}

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a hostile peer for some seconds", hostile_peer);
}

fn exported(mailbox: &str, number: usize, round: usize) -> Value {
    let name = format!("{mailbox}-{number}");
    let mut exported = namespaced(
        "clusterset.mcs-agent.io/v1alpha1",
        "ExportedService",
        mailbox,
        &format!("{NAMESPACE}.{name}"),
    );
    exported["spec"] = json!({
        "clusterId": mailbox, "namespace": NAMESPACE, "name": name,
        "exportedAt": "2026-01-01T00:00:00Z", "type": "ClusterSetIP", "ipFamilies": ["IPv4"],
        "ports": [{ "name": "http", "protocol": "TCP", "port": 80 }],
        "annotations": {
            "huge": "x".repeat(HUGE), "large": "x".repeat(LARGE), "round": round.to_string(),
        },
        "slices": [],
    });
    exported
}

fn lease(mailbox: &str, services: usize) -> Value {
    let mut lease = namespaced("coordination.k8s.io/v1", "Lease", mailbox, "publisher");
    lease["metadata"]["annotations"] = json!({
        "clusterset.mcs-agent.io/epoch": "1",
        "clusterset.mcs-agent.io/complete": "true",
        "clusterset.mcs-agent.io/exported-services": services.to_string(),
    });
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    lease["spec"] = json!({ "holderIdentity": mailbox, "renewTime": now });
    lease
}

fn peer(mailbox: &str) -> Value {
    json!({
        "apiVersion": "clusterset.mcs-agent.io/v1alpha1",
        "kind": "ClusterPeer",
        "metadata": { "name": mailbox },
        "spec": {
            "clusterId": mailbox,
            "kubeconfigSecretRef": { "name": "mailboxes" },
            "mailbox": mailbox,
            "podCIDRs": ["20.0.0.0/8"],
            "limits": { "services": SERVICES },
        },
    })
}

fn import(name: &str) -> Value {
    namespaced("multicluster.x-k8s.io/v1beta1", "ServiceImport", NAMESPACE, name)
}

/// An import of another controller.
fn end() -> Value {
    let mut end = import("end");
    end["spec"] = json!({ "type": "ClusterSetIP", "ips": [], "ports": [] });
    end
}

fn hostile_peer(world: &mut World) -> anyhow::Result<()> {
    let (host, importer) = (world.first(), world.second());
    importer.add_namespace(NAMESPACE)?;
    peering::store_credentials(importer, "mailboxes", &host.kubeconfig(TOKEN)?)?;
    for (mailbox, services) in [(HOSTILE, SERVICES), (QUIET, QUIET_SERVICES)] {
        host.add_namespace(mailbox)?;
        let all: Vec<_> = (0..services).map(|number| exported(mailbox, number, 0)).collect();
        host.api().create_many(&all)?;
        host.api().apply(&lease(mailbox, services))?;
    }
    let samples = if is_full() { 300 } else { 10 };
    importer.api().apply(&peer(QUIET))?;
    wait_for_imports(importer, QUIET_SERVICES)?;
    let alone = propagation(world, 1..9, Beside::Nothing)?;
    let same = propagation(world, 9..9 + samples, Beside::SameWrites)?;
    for import in (0..WRITES).map(|number| foreign_import(number, 0)) {
        importer.api().delete(&import)?;
    }
    importer.api().apply(&peer(HOSTILE))?;
    wait_for_imports(importer, SERVICES + QUIET_SERVICES)?;
    let hostile = propagation(world, 9 + samples..9 + 2 * samples, Beside::Hostile)?;
    over_limit(world)?;
    for mailbox in [HOSTILE, QUIET] {
        importer.api().delete(&peer(mailbox))?;
    }
    ensure!(hostile.rate <= MOST_WRITES, "{:.0} imports a second are written", hostile.rate);
    let parts: [fn(&Times) -> Duration; 2] = [|times| times.whole, |times| times.after];
    for part in parts {
        let [alone, same, hostile] = [&alone, &same, &hostile].map(part);
        ensure!(
            hostile <= 2 * same.max(alone) + wait::scaled(NOISE),
            "changes took {hostile:?} beside a hostile peer, {same:?} beside the same writes, and {alone:?} alone"
        );
    }
    Ok(())
}

fn wait_for_imports(importer: &Cluster, expected: usize) -> anyhow::Result<()> {
    wait::until("all imports", || {
        let path = format!(
            "/apis/multicluster.x-k8s.io/v1beta1/namespaces/{NAMESPACE}/serviceimports?limit=1"
        );
        let found = importer.api().get(&path)?;
        let first = found["items"].as_array().map_or(0, Vec::len);
        let rest = found["metadata"]["remainingItemCount"].as_u64().unwrap_or_default();
        let found = first as u64 + rest;
        ensure!(found == expected as u64, "there are {found}, not {expected}");
        Ok(())
    })
}

/// One service more than the limit does not come, and what is there stays.
fn over_limit(world: &World) -> anyhow::Result<()> {
    let (host, importer) = (world.first(), world.second());
    let path = format!("/apis/clusterset.mcs-agent.io/v1alpha1/clusterpeers/{HOSTILE}");
    let within = |expected: &str| {
        wait::until(expected, || {
            let found = conditions(&importer.api().get(&path)?);
            ensure!(found.iter().any(|one| one == expected), "{found:?}");
            Ok(())
        })
    };
    within("WithinLimits=True/WithinLimits")?;
    let further = exported(HOSTILE, SERVICES, 0);
    host.api().apply(&further)?;
    within("WithinLimits=False/OverLimit")?;
    importer.api().read(&import(&format!("{HOSTILE}-0")))?;
    host.api().delete(&further)?;
    within("WithinLimits=True/WithinLimits")
}

/// Changes services of the quiet peer.
fn propagation(world: &World, rounds: Range<usize>, beside: Beside) -> anyhow::Result<Times> {
    let (host, importer) = (world.first(), world.second());
    let (flapper, watcher) = (host.server.another_client()?, importer.server.another_client()?);
    let writer = importer.server.another_client()?;
    let is_quiet = beside == Beside::Nothing;
    let (stop, changes, written) =
        (AtomicBool::new(is_quiet), AtomicUsize::new(0), AtomicUsize::new(0));
    let (sender, seen) = mpsc::channel();
    let (times, rate) = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            watcher.watch_all(&import(""), |import| {
                let name = import["metadata"]["name"].as_str().unwrap_or_default();
                if name.starts_with(HOSTILE) {
                    written.fetch_add(1, Ordering::Relaxed);
                } else if name.starts_with(QUIET) {
                    let round = &import["metadata"]["annotations"]["round"];
                    // The receiver is gone when a change takes too long.
                    let _ = sender
                        .send((round.as_str().unwrap_or_default().to_owned(), Instant::now()));
                }
                name != "end"
            })
        });
        let flapping = scope.spawn(|| flap(&flapper, &stop, &changes));
        let writing =
            (beside == Beside::SameWrites).then(|| scope.spawn(|| write_imports(&writer, &stop)));
        // What it has at once is used up.
        sleep(Duration::from_secs(if is_quiet { 1 } else { 5 }));
        let (began, written_before) = (Instant::now(), written.load(Ordering::Relaxed));
        let times = measure(host.api(), rounds, &seen);
        let seconds = began.elapsed().as_secs_f64();
        let written = written.load(Ordering::Relaxed) - written_before;
        stop.store(true, Ordering::Relaxed);
        // The watch ends with this, whatever has failed.
        importer.api().apply(&end())?;
        watch.join().map_err(|_| anyhow::anyhow!("the watch panics"))??;
        importer.api().delete(&end())?;
        for thread in [Some(flapping), writing].into_iter().flatten() {
            thread.join().map_err(|_| anyhow::anyhow!("a writer panics"))??;
        }
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        anyhow::Ok((times?, written as f64 / seconds))
    })?;
    let p99 = |mut all: Vec<Duration>| {
        all.sort_unstable();
        all.get((all.len().max(1) - 1) * 99 / 100).copied().context("no sample")
    };
    let after = times.iter().map(|(request, whole)| whole.saturating_sub(*request)).collect();
    let whole = times.into_iter().map(|(_, whole)| whole).collect();
    let times = Times { whole: p99(whole)?, after: p99(after)?, rate };
    tell(format!(
        "a change of another peer took {} ms (p99), and {} ms (p99) once its request was answered, {}: {} exports were changed, and \
         {rate:.0} imports a second written",
        times.whole.as_millis(),
        times.after.as_millis(),
        match beside {
            Beside::Nothing => "alone",
            Beside::SameWrites => "beside the writes of a hostile peer",
            Beside::Hostile => "beside a hostile peer",
        },
        changes.load(Ordering::Relaxed),
    ));
    Ok(times)
}

/// Of nobody's export, and as large as those of the hostile peer.
fn foreign_import(number: usize, round: usize) -> Value {
    let mut import = import(&format!("{HOSTILE}-by-test-{number}"));
    import["metadata"]["annotations"] =
        json!({ "large": "x".repeat(LARGE), "round": round.to_string() });
    import["spec"] = json!({ "type": "ClusterSetIP", "ips": [], "ports": [] });
    import
}

/// Writes as many imports as the hostile peer may cause.
fn write_imports(importer: &Api, stop: &AtomicBool) -> anyhow::Result<()> {
    let began = Instant::now();
    for written in 0.. {
        let due = Duration::from_secs(1) * u32::try_from(written)? / u32::try_from(WRITES)?;
        sleep(due.saturating_sub(began.elapsed()));
        if stop.load(Ordering::Relaxed) {
            break;
        }
        importer.apply(&foreign_import(written % WRITES, written / WRITES))?;
    }
    Ok(())
}

/// Changes all exports of the hostile peer, again and again.
fn flap(host: &Api, stop: &AtomicBool, changes: &AtomicUsize) -> anyhow::Result<()> {
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let all: Vec<_> = (0..SERVICES).map(|number| exported(HOSTILE, number, round)).collect();
        for some in all.chunks(100) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            host.apply_many(some)?;
            changes.fetch_add(some.len(), Ordering::Relaxed);
        }
    }
    Ok(())
}

/// How long the requests of changes of the quiet peer's services take, and how long it takes until each is imported.
fn measure(
    host: &Api,
    rounds: Range<usize>,
    seen: &mpsc::Receiver<(String, Instant)>,
) -> anyhow::Result<Vec<(Duration, Duration)>> {
    let mut times = Vec::new();
    for round in rounds {
        let began = Instant::now();
        host.apply(&exported(QUIET, round % QUIET_SERVICES, round))?;
        let request = began.elapsed();
        loop {
            let (found, at) = seen.recv_timeout(wait::scaled(Duration::from_secs(30)))?;
            if found == round.to_string() {
                times.push((request, at.saturating_duration_since(began)));
                break;
            }
        }
        sleep(Duration::from_millis(150));
    }
    Ok(times)
}
