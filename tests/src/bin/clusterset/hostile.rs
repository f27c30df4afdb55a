//! A peer, or a tenant of one, that changes all that it exports, all the time: it loads the importing cluster no more than its
//! budget allows, and delays no other peer.
//!
//! API servers, etcd and clients share the CPUs of a test machine. An API server takes about 8 ms of a CPU for the writes of an
//! import, so the default of `--peer-writes` would use up the machine, and each change would wait for a CPU. The cases run
//! with less, and change five times as much as that allows.

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
    cluster::{ARRIVAL, Cluster},
    controller::MAILBOX,
    objects::{self, namespaced},
    peering,
    world::World,
};

/// The namespace of all services.
const NAMESPACE: &str = "hostile";
const HOSTILE: &str = "hostile";
const QUIET: &str = "quiet";
const TENANT: &str = "tenant";
/// How many services the hostile peer exports.
const SERVICES: usize = 300;
/// Enough that no import changes more than once a second.
const QUIET_SERVICES: usize = 10;
const PAUSE: Duration = Duration::from_millis(100);
/// More than an export can have.
const HUGE: usize = 16 << 10;
/// Half of what an export can have.
const LARGE: usize = 4 << 10;
/// How many imports may be written a second.
const WRITES: usize = 5;
/// The same, with what a machine of the tests may deviate.
const MOST_WRITES: f64 = 6.5;
/// How many exports change a second.
const CHANGES: usize = 5 * WRITES;
/// How many imports a peer may write at once after it was quiet.
const BURST: usize = 500;
/// Two measurements differ by this time on a machine that runs nothing else.
const NOISE: Duration = Duration::from_millis(15);
/// The least delay of a change that waits behind a change of the hostile peer. Less delay comes from other suites, which use the
/// CPUs too.
const TURN: Duration = Duration::from_millis(1000 / WRITES as u64);

/// What happens while changes of the quiet peer are measured.
#[derive(Clone, Copy)]
struct Beside<'a> {
    what: &'a str,
    /// How many exports change in turn.
    services: usize,
    /// An export, by its number and how often it has changed.
    export: &'a (dyn Fn(usize, usize) -> Value + Sync),
}

/// How long changes of the quiet peer took from the request to the import.
struct Times {
    /// The one of [`percentile`].
    slow: Duration,
    /// How many imports of others were written a second.
    rate: f64,
}

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a hostile peer for some seconds", hostile_peer);
    // Its importer has used up its budget only after more changes than there is time for.
    suite.full("a tenant whose exports change all the time", hostile_tenant);
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
            "kubeconfigSecretRef": { "name": mailbox },
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

/// Which change is compared. Of 30, some wait for a CPU that other suites have.
fn percentile() -> usize {
    if is_full() { 99 } else { 90 }
}

fn samples() -> usize {
    if is_full() { 300 } else { 30 }
}

/// Restarts the importing controller with a small budget, and adds the quiet peer, whose mailbox has an API server of its own.
/// Both go after `work`.
fn beside_quiet_peer(
    world: &mut World,
    work: impl FnOnce(&World) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    world.add_third()?;
    world.clusters[1].controller.restart_with(&[&format!("--peer-writes={WRITES}")])?;
    let (host, importer, quiet) = (world.first(), world.second(), &world.clusters[2]);
    for cluster in [host, importer] {
        cluster.add_namespace(NAMESPACE)?;
    }
    for (host, mailbox) in [(host, HOSTILE), (quiet, QUIET)] {
        peering::store_credentials(importer, mailbox, &host.kubeconfig(TOKEN)?)?;
    }
    fill(quiet, QUIET, QUIET_SERVICES)?;
    importer.api().apply(&peer(QUIET))?;
    wait_for_imports(importer, QUIET_SERVICES)?;
    work(world)?;
    importer.api().delete(&peer(QUIET))?;
    // One that starts does not wait for ClusterPeers that may return.
    world.clusters[1].controller.restart_with(&[])?;
    wait_for_imports(world.second(), 0)
}

/// What a publisher would write that exports as many services.
fn fill(host: &Cluster, mailbox: &str, services: usize) -> anyhow::Result<()> {
    host.add_namespace(mailbox)?;
    let all: Vec<_> = (0..services).map(|number| exported(mailbox, number, 0)).collect();
    host.api().apply_many(&all)?;
    host.api().apply(&lease(mailbox, services))
}

fn hostile_peer(world: &mut World) -> anyhow::Result<()> {
    beside_quiet_peer(world, |world| {
        let (host, importer) = (world.first(), world.second());
        let alone = propagation(world, 0, None)?;
        fill(host, HOSTILE, SERVICES)?;
        importer.api().apply(&peer(HOSTILE))?;
        wait_for_imports(importer, SERVICES + QUIET_SERVICES)?;
        let export = |number, round| exported(HOSTILE, number, round);
        let beside = Beside { what: "a hostile peer", services: SERVICES, export: &export };
        let hostile = propagation(world, samples(), Some(beside))?;
        many_slices(world, &alone)?;
        renews_its_lease(importer)?;
        importer.api().delete(&peer(HOSTILE))?;
        is_within_budget(&hostile)?;
        delays_nobody(&alone, &hostile)
    })
}

/// A tenant of the first cluster. The quiet peer is a cluster of its own.
fn hostile_tenant(world: &mut World) -> anyhow::Result<()> {
    let services = 1000;
    let named = |number: usize, mut object: Value| {
        object["metadata"]["name"] = json!(format!("{TENANT}-{number}"));
        object
    };
    let export = |number: usize, round: usize| {
        let mut export = named(number, objects::export(NAMESPACE));
        export["spec"] = json!({ "exportedAnnotations": {
            "large": "x".repeat(LARGE), "round": round.to_string(),
        } });
        export
    };
    beside_quiet_peer(world, |world| {
        let (host, importer) = (world.first(), world.second());
        let alone = propagation(world, 0, None)?;
        let service = |number| named(number, objects::service(NAMESPACE));
        let objects = || (0..services).flat_map(|number| [service(number), export(number, 0)]);
        host.api().apply_many(&objects().collect::<Vec<_>>())?;
        // At first there is room for a burst, and then for some a second.
        let later = services.saturating_sub(BURST - 100) / WRITES;
        let patience = Duration::from_secs((later + 30) as u64);
        wait::within(patience, "all imports", || imports(importer, services + QUIET_SERVICES))?;
        let beside = Beside { what: "a tenant of another", services, export: &export };
        let hostile = propagation(world, samples(), Some(beside))?;
        host.api().delete_many(&objects().collect::<Vec<_>>())?;
        wait_for_imports(importer, QUIET_SERVICES)?;
        is_within_budget(&hostile)?;
        delays_nobody(&alone, &hostile)
    })
}

fn delays_nobody(alone: &Times, hostile: &Times) -> anyhow::Result<()> {
    let (hostile, alone) = (hostile.slow, alone.slow);
    let noise = if is_full() { wait::scaled(NOISE) } else { TURN };
    ensure!(
        hostile <= 2 * alone + noise,
        "changes took {hostile:?} beside it, and {alone:?} alone"
    );
    Ok(())
}

fn is_within_budget(hostile: &Times) -> anyhow::Result<()> {
    ensure!(hostile.rate <= MOST_WRITES, "{:.0} imports a second are written", hostile.rate);
    Ok(())
}

fn wait_for_imports(importer: &Cluster, expected: usize) -> anyhow::Result<()> {
    wait::within(ARRIVAL, "all imports", || imports(importer, expected))
}

fn imports(importer: &Cluster, expected: usize) -> anyhow::Result<()> {
    let path = format!(
        "/apis/multicluster.x-k8s.io/v1beta1/namespaces/{NAMESPACE}/serviceimports?limit=1"
    );
    let found = importer.api().get(&path)?;
    let first = found["items"].as_array().map_or(0, Vec::len);
    let rest = found["metadata"]["remainingItemCount"].as_u64().unwrap_or_default();
    let found = first as u64 + rest;
    ensure!(found == expected as u64, "there are {found}, not {expected}");
    Ok(())
}

/// How many slices one service of the hostile peer has: as many as an ExportedService can name.
fn slices() -> usize {
    if is_full() { 20_000 } else { 500 }
}

/// The copy of a slice of a service in the mailbox, with one endpoint.
fn copied(service: &str, name: &str, round: usize, number: usize) -> Value {
    let mut slice =
        namespaced("discovery.k8s.io/v1", "EndpointSlice", HOSTILE, &format!("{NAMESPACE}.{name}"));
    slice["metadata"]["labels"] = json!({
        "clusterset.mcs-agent.io/cluster": HOSTILE,
        "clusterset.mcs-agent.io/namespace": NAMESPACE,
        "clusterset.mcs-agent.io/service": service,
    });
    slice["metadata"]["annotations"] = json!({
        "clusterset.mcs-agent.io/source-slice": name,
        "clusterset.mcs-agent.io/source-generation": round.to_string(),
    });
    slice["addressType"] = json!("IPv4");
    slice["ports"] = json!([{ "name": "http", "protocol": "TCP", "port": 8080 }]);
    let [high, low] = u16::try_from(number).unwrap_or_default().to_be_bytes();
    slice["endpoints"] = json!([
        { "addresses": [format!("20.1.{high}.{low}")], "conditions": { "ready": true } },
    ]);
    slice
}

/// One service with many slices, which change in turn.
fn many_slices(world: &World, alone: &Times) -> anyhow::Result<()> {
    let host = world.first();
    let large = format!("{HOSTILE}-0");
    let name = |number: usize| format!("large-{number:05}");
    let of = |number: usize, round: usize| copied(&large, &name(number), round, number);
    let all: Vec<_> = (0..slices()).map(|number| of(number, 0)).collect();
    host.api().create_many(&all)?;
    let mut exported = exported(HOSTILE, 0, 0);
    exported["spec"]["slices"] = (0..slices()).map(name).collect();
    host.api().apply(&exported)?;
    let beside = Beside { what: "a service of many slices", services: slices(), export: &of };
    let hostile = propagation(world, 2 * samples(), Some(beside))?;
    host.api().delete_many(&all)?;
    exported["spec"]["slices"] = json!([]);
    host.api().apply(&exported)?;
    delays_nobody(alone, &hostile)
}

/// The Lease by which others see that this cluster lives.
fn renews_its_lease(importer: &Cluster) -> anyhow::Result<()> {
    // It renews the Lease each 10 s; others miss it after 20 s.
    const LATE: Duration = Duration::from_secs(14);
    let lease = namespaced("coordination.k8s.io/v1", "Lease", MAILBOX, "publisher");
    let lease = importer.api().read(&lease)?;
    let renewed: Timestamp =
        lease["spec"]["renewTime"].as_str().context("no renewTime")?.parse()?;
    let age = Timestamp::now().duration_since(renewed).unsigned_abs();
    ensure!(age < wait::scaled(LATE), "the Lease is {age:?} old");
    Ok(())
}

/// Changes services of the quiet peer, from that round on.
fn propagation(world: &World, first: usize, beside: Option<Beside<'_>>) -> anyhow::Result<Times> {
    let (host, importer, quiet) = (world.first(), world.second(), &world.clusters[2]);
    let (flapper, watcher) = (host.server.another_client()?, importer.server.another_client()?);
    let (stop, changes, written) =
        (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let (sender, seen) = mpsc::channel();
    let (times, rate) = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            watcher.watch_all(&import(""), |import| {
                let name = import["metadata"]["name"].as_str().unwrap_or_default();
                if name.starts_with(QUIET) {
                    let round = &import["metadata"]["annotations"]["round"];
                    // The receiver is gone when a change takes too long.
                    let _ = sender
                        .send((round.as_str().unwrap_or_default().to_owned(), Instant::now()));
                } else {
                    written.fetch_add(1, Ordering::Relaxed);
                }
                name != "end"
            })
        });
        let flapping = beside.map(|beside| {
            let (flapper, stop, changes) = (&flapper, &stop, &changes);
            scope.spawn(move || flap(flapper, beside, stop, changes))
        });
        // The watch begins with all that there is.
        let listed = (0..QUIET_SERVICES)
            .try_for_each(|_| seen.recv_timeout(wait::scaled(Duration::from_secs(30))).map(drop));
        let waited = listed.map_err(Into::into).and_then(|()| {
            beside.map_or(Ok(()), |beside| used_up(beside.services, &changes, &written))
        });
        let (began, written_before) = (Instant::now(), written.load(Ordering::Relaxed));
        let rounds = 1 + first..1 + first + samples();
        let times = waited.and_then(|()| measure(quiet.api(), rounds, &seen));
        let seconds = began.elapsed().as_secs_f64();
        let written = written.load(Ordering::Relaxed) - written_before;
        stop.store(true, Ordering::Relaxed);
        // The watch ends with this, whatever has failed.
        importer.api().apply(&end())?;
        watch.join().map_err(|_| anyhow::anyhow!("the watch panics"))??;
        importer.api().delete(&end())?;
        if let Some(flapping) = flapping {
            flapping.join().map_err(|_| anyhow::anyhow!("a writer panics"))??;
        }
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        anyhow::Ok((times?, written as f64 / seconds))
    })?;
    let slow = slow(times).context("no sample")?;
    tell(format!(
        "a change of another peer took {} ms (p{}) {}: {} exports were changed, and {rate:.0} imports a second written",
        slow.as_millis(),
        percentile(),
        beside.map_or_else(|| "alone".to_owned(), |beside| format!("beside {}", beside.what)),
        changes.load(Ordering::Relaxed),
    ));
    Ok(Times { slow, rate })
}

/// Waits until more has changed than may be written at once, and no more is written than the budget of a second.
fn used_up(services: usize, changes: &AtomicUsize, written: &AtomicUsize) -> anyhow::Result<()> {
    const SECONDS: u32 = 3;
    wait::within(Duration::from_mins(1), "a burst to be used up", || {
        let changes = changes.load(Ordering::Relaxed);
        ensure!(changes >= quick(services), "only {changes} changes");
        let before = written.load(Ordering::Relaxed);
        sleep(Duration::from_secs(SECONDS.into()));
        let written = u32::try_from(written.load(Ordering::Relaxed) - before)?;
        let rate = f64::from(written) / f64::from(SECONDS);
        ensure!(rate <= MOST_WRITES, "{rate:.0} imports a second are written");
        Ok(())
    })
}

/// How many changes follow four times as fast: those that may be written at once, and a few more, since time has passed since the
/// imports came.
const fn quick(services: usize) -> usize {
    50 + BURST.saturating_sub(services)
}

fn slow(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    times.get((times.len().max(1) - 1) * percentile() / 100).copied()
}

/// Changes all exports in turn: quickly until a burst is used up.
fn flap(
    host: &Api,
    beside: Beside<'_>,
    stop: &AtomicBool,
    changes: &AtomicUsize,
) -> anyhow::Result<()> {
    let mut due = Instant::now();
    for change in 0.. {
        let pace = if change < quick(beside.services) { 4 * CHANGES } else { CHANGES };
        due = due.max(Instant::now()) + Duration::from_secs(1) / u32::try_from(pace)?;
        sleep(due.saturating_duration_since(Instant::now()));
        if stop.load(Ordering::Relaxed) {
            break;
        }
        host.apply(&(beside.export)(change % beside.services, 1 + change / beside.services))?;
        changes.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// How long it takes from the request of each change of the quiet peer's services until it is imported.
fn measure(
    quiet: &Api,
    rounds: Range<usize>,
    seen: &mpsc::Receiver<(String, Instant)>,
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    for round in rounds {
        let began = Instant::now();
        quiet.apply(&exported(QUIET, round % QUIET_SERVICES, round))?;
        loop {
            let (found, at) = seen.recv_timeout(wait::scaled(Duration::from_secs(30)))?;
            if found == round.to_string() {
                times.push(at.saturating_duration_since(began));
                break;
            }
        }
        sleep(PAUSE);
    }
    Ok(times)
}
