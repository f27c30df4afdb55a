//! Many mailboxes on one hub: how long they take to be read, what the controller keeps, and how soon the change of one
//! cluster is written while another one changes much.

mod load;

use std::{
    env,
    net::Ipv4Addr,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle, sleep},
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

use self::load::Loads;
use crate::{controller, objects::namespaced, world::World};

/// The variable with other numbers, such as `200x150`: of mailboxes, and of slices in each.
const VARIABLE: &str = "MCS_SCALE";
/// Of a slice.
const ENDPOINTS: u32 = 100;
/// Slices of a service.
const SLICES: usize = 3;
/// The namespace of all services.
const NAMESPACE: &str = "scale";
/// The Secret for all mailboxes.
const SECRET: &str = "scale-hub";
/// How many changes of the busy cluster there are in a second, one time after the other.
const CHURN: [usize; 3] = [0, 300, 1000];
/// How many times a second it changes something.
const BATCHES: usize = 10;
/// How long the busy cluster changes before anything is measured.
const WARM_UP: Duration = Duration::from_secs(10);
/// How often publishers renew their Leases.
const RENEWAL: Duration = Duration::from_secs(10);
/// How long everything may take.
const PATIENCE: Duration = Duration::from_mins(20);
/// What the controller may have resident at any time, in MiB.
const MOST_MEMORY: u64 = 1024;
/// How long a controller that starts may take to read everything.
const COLD: Duration = Duration::from_mins(1);
/// How long 99 of 100 changes may take when nothing else changes.
const QUIET: Duration = Duration::from_millis(100);

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("many mailboxes on one hub", many);
}

/// The size of a run. The busy cluster has one mailbox more, and changes much. Its slices have one endpoint each: the API servers
/// of a small machine do not take 1,000 changes of large slices a second.
#[derive(Clone, Copy)]
struct Size {
    mailboxes: usize,
    /// In each mailbox.
    slices: usize,
}

impl Size {
    fn get() -> anyhow::Result<Self> {
        let (mailboxes, slices) = if is_full() { (200, 150) } else { (10, 3) };
        let Ok(text) = env::var(VARIABLE) else { return Ok(Self { mailboxes, slices }) };
        let (mailboxes, slices) = text.split_once('x').context("MCS_SCALE is such as 200x150")?;
        Ok(Self { mailboxes: mailboxes.parse()?, slices: slices.parse()? })
    }

    /// The mailbox of the busy cluster.
    const fn busy(self) -> usize {
        self.mailboxes
    }

    /// The mailboxes, and one of the busy cluster.
    const fn all(self) -> Range<usize> {
        0..self.mailboxes + 1
    }

    const fn total(self) -> usize {
        (self.mailboxes + 1) * self.slices
    }

    const fn endpoints(self, mailbox: usize) -> u32 {
        if mailbox == self.busy() { 1 } else { ENDPOINTS }
    }

    /// What a mailbox holds, but for its Lease.
    fn objects(self, mailbox: usize) -> Vec<Value> {
        let services = (0..self.slices).step_by(SLICES).map(|first| {
            let names: Vec<_> = (first..self.slices.min(first + SLICES))
                .map(|slice| name(mailbox, slice))
                .collect();
            exported_service(mailbox, first, &names)
        });
        let slices = (0..self.slices).map(|number| slice(self, mailbox, number, 1));
        services.chain(slices).collect()
    }
}

fn mailbox_name(mailbox: usize) -> String {
    format!("scale-{mailbox}")
}

/// The name of a slice in its own cluster. A service has the name of its first slice.
fn name(mailbox: usize, slice: usize) -> String {
    format!("s{mailbox}-{slice}")
}

fn exported_service(mailbox: usize, first: usize, slices: &[String]) -> Value {
    let service = name(mailbox, first);
    let mut exported = namespaced(
        "clusterset.mcs-agent.io/v1alpha1",
        "ExportedService",
        &mailbox_name(mailbox),
        &format!("{NAMESPACE}.{service}"),
    );
    exported["spec"] = json!({
        "clusterId": mailbox_name(mailbox), "namespace": NAMESPACE, "name": service,
        "exportedAt": "2026-01-01T00:00:00Z", "type": "ClusterSetIP", "ipFamilies": ["IPv4"],
        "ports": [{ "name": "http", "protocol": "TCP", "port": 80 }],
        "slices": slices,
    });
    exported
}

fn slice(size: Size, mailbox: usize, number: usize, generation: usize) -> Value {
    let name = name(mailbox, number);
    let service = self::name(mailbox, number - number % SLICES);
    let mut slice = namespaced(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        &mailbox_name(mailbox),
        &format!("{NAMESPACE}.{name}"),
    );
    slice["metadata"]["labels"] = json!({
        "clusterset.mcs-agent.io/namespace": NAMESPACE,
        "clusterset.mcs-agent.io/service": service,
        "endpointslice.kubernetes.io/managed-by": "mcs-controller",
    });
    slice["metadata"]["annotations"] = json!({
        "clusterset.mcs-agent.io/source-slice": name,
        "clusterset.mcs-agent.io/source-generation": generation.to_string(),
        "endpoints.kubernetes.io/last-change-trigger-time": Timestamp::now().to_string(),
    });
    slice["addressType"] = json!("IPv4");
    slice["ports"] = json!([{ "name": "http", "protocol": "TCP", "port": 8080 }]);
    let place = u32::try_from(mailbox * size.slices + number).unwrap_or_default();
    let first = u32::from(Ipv4Addr::new(20, 0, 0, 0)) + place * ENDPOINTS;
    let endpoint = |one: u32| {
        json!({
            "addresses": [Ipv4Addr::from(first + one).to_string()],
            // One pod comes and goes.
            "conditions": { "ready": one > 0 || generation % 2 == 1, "serving": true, "terminating": false },
            "nodeName": format!("node-{}", one % 20),
            "zone": format!("zone-{}", one % 3),
        })
    };
    slice["endpoints"] = (0..size.endpoints(mailbox)).map(endpoint).collect();
    slice
}

fn lease(mailbox: usize, services: usize) -> Value {
    let mut lease =
        namespaced("coordination.k8s.io/v1", "Lease", &mailbox_name(mailbox), "publisher");
    lease["metadata"]["annotations"] = json!({
        "clusterset.mcs-agent.io/complete": "true",
        "clusterset.mcs-agent.io/exported-services": services.to_string(),
    });
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    lease["spec"] = json!({ "holderIdentity": mailbox_name(mailbox), "renewTime": now });
    lease
}

fn peer(mailbox: usize) -> Value {
    json!({
        "apiVersion": "clusterset.mcs-agent.io/v1alpha1",
        "kind": "ClusterPeer",
        "metadata": { "name": mailbox_name(mailbox) },
        "spec": {
            "clusterId": mailbox_name(mailbox),
            "kubeconfigSecretRef": { "name": SECRET },
            "mailbox": mailbox_name(mailbox),
            "podCIDRs": ["20.0.0.0/8"],
        },
    })
}

/// How many slices the importer has.
fn imported(api: &Api) -> anyhow::Result<usize> {
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices?limit=1");
    let list = api.get(&path)?;
    let rest = list["metadata"]["remainingItemCount"].as_u64().unwrap_or_default();
    Ok(list["items"].as_array().map_or(0, Vec::len) + usize::try_from(rest)?)
}

fn many(world: &mut World) -> anyhow::Result<()> {
    world.add_third()?;
    let size = Size::get()?;
    let endpoints = size.mailboxes * size.slices * ENDPOINTS as usize;
    tell(format!("{} mailboxes, {} slices, {endpoints} endpoints", size.mailboxes, size.total()));
    let mut loads = Loads::begin(world)?;
    fill(world, size)?;
    loads.note(world, "the mailboxes are filled")?;

    world.clusters[1].controller.kill()?;
    let peers: Vec<_> = size.all().map(peer).collect();
    world.second().api().apply_many(&peers)?;
    let publishers = Publishers::begin(world, size)?;
    loads.restart(world)?;
    start(world, size)?;
    wait::within(PATIENCE, "all slices", || {
        let found = imported(world.second().api())?;
        ensure!(found == size.total(), "there are {found}");
        Ok(())
    })?;
    loads.note(world, "first start: all is imported")?;

    world.clusters[1].controller.kill()?;
    loads.restart(world)?;
    start(world, size)?;
    let cold = loads.note(world, "cold start: all is read")?;
    load::wait_until_calm(world)?;
    loads.note(world, "until nothing is left to do")?;
    let samples = if is_full() { 300 } else { 8 };
    let mut quiet = Duration::MAX;
    for (round, churn) in CHURN.into_iter().enumerate() {
        let generations = round * samples + 2..(round + 1) * samples + 2;
        let (rate, most) = propagation(world, size, generations, churn)?;
        quiet = quiet.min(most);
        loads.note(world, &format!("{samples} changes, and {rate:.0} a second of another"))?;
    }
    let most = loads.most_memory();
    loads.tell(world)?;
    publishers.end()?;
    world.clusters[1].controller.kill()?;
    world.second().api().delete_many(&peers)?;
    ensure!(most <= MOST_MEMORY, "the controller had {most} MiB resident");
    ensure!(cold <= wait::scaled(COLD), "a cold start took {cold:?}");
    // The others of a short run are too few to tell.
    ensure!(!is_full() || quiet <= wait::scaled(QUIET), "changes took {quiet:?}");
    world.clusters[1].controller.start_again()
}

fn fill(world: &World, size: Size) -> anyhow::Result<()> {
    let hub = &world.clusters[2];
    world.second().add_namespace(NAMESPACE)?;
    let mut secret = namespaced("v1", "Secret", controller::NAMESPACE, SECRET);
    secret["stringData"] = json!({ "kubeconfig": hub.kubeconfig(TOKEN)?, "mailboxes": "all" });
    world.second().api().apply(&secret)?;
    for mailbox in size.all() {
        hub.add_namespace(&mailbox_name(mailbox))?;
        let mut objects = size.objects(mailbox);
        objects.push(lease(mailbox, size.slices.div_ceil(SLICES)));
        hub.api().create_many(&objects)?;
    }
    Ok(())
}

/// Renews the Leases of all mailboxes.
struct Publishers {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Publishers {
    fn begin(world: &World, size: Size) -> anyhow::Result<Self> {
        let hub = world.clusters[2].server.another_client()?;
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let pause = RENEWAL / u32::try_from(size.all().len())?;
        let thread = thread::spawn(move || {
            for mailbox in size.all().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                hub.apply(&lease(mailbox, size.slices.div_ceil(SLICES)))?;
                sleep(pause);
            }
            Ok(())
        });
        Ok(Self { stop, thread })
    }

    fn end(self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("the publishers panic"))?
    }
}

/// Starts the controller, and waits until every peer is known.
fn start(world: &mut World, size: Size) -> anyhow::Result<()> {
    let controller = &mut world.clusters[1].controller;
    let known = |log: String| log.matches(" is known: cluster scale-").count();
    let before = known(controller.logged()?);
    controller.start_again()?;
    wait::within(PATIENCE, "all peers", || {
        let found = known(controller.logged()?) - before;
        ensure!(found == size.all().len(), "{found} are known");
        Ok(())
    })
}

/// Changes of one cluster, while the busy cluster tries to make a number of changes each second. Returns the changes that the busy
/// cluster made, and the time within which 99 of 100 changes of the other cluster arrived.
fn propagation(
    world: &World,
    size: Size,
    generations: Range<usize>,
    wanted: usize,
) -> anyhow::Result<(f64, Duration)> {
    let stop = AtomicBool::new(false);
    let changes = AtomicUsize::new(0);
    let hub = world.clusters[2].server.another_client()?;
    let began = Instant::now();
    let times = thread::scope(|scope| {
        let churn = scope.spawn(|| churn(&hub, size, wanted, &stop, &changes));
        if wanted > 0 {
            // The busy cluster uses up what it has at once.
            sleep(if is_full() { WARM_UP } else { WARM_UP / 10 });
        }
        let times = measure(world, size, generations);
        stop.store(true, Ordering::Relaxed);
        churn.join().map_err(|_| anyhow::anyhow!("churn panics"))??;
        times
    });
    let seconds = began.elapsed().as_secs_f64();
    let mut times = times?;
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let rate = changes.load(Ordering::Relaxed) as f64 / seconds;
    tell(format!(
        "from the request of a change to the written slice: median {} ms, p99 {} ms, with {rate:.0} changes of \
         another cluster a second ({wanted} were tried)",
        at(50).as_millis(),
        at(99).as_millis(),
    ));
    Ok((rate, at(99)))
}

/// Changes the slices of the busy cluster, one after the other.
fn churn(
    hub: &Api,
    size: Size,
    wanted: usize,
    stop: &AtomicBool,
    changes: &AtomicUsize,
) -> anyhow::Result<()> {
    let mut change = size.slices;
    while wanted > 0 && !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let batch = change..change + wanted / BATCHES;
        change = batch.end;
        let slices: Vec<_> = batch
            .map(|one| slice(size, size.busy(), one % size.slices, one / size.slices + 1))
            .collect();
        // Several requests for one object at a time would only hinder each other.
        for at_once in slices.chunks(size.slices) {
            hub.replace_many(at_once)?;
            changes.fetch_add(at_once.len(), Ordering::Relaxed);
        }
        sleep((Duration::from_secs(1) / u32::try_from(BATCHES)?).saturating_sub(began.elapsed()));
    }
    Ok(())
}

/// How long changes of a slice of the second mailbox take.
fn measure(world: &World, size: Size, generations: Range<usize>) -> anyhow::Result<Vec<Duration>> {
    let second = world.second();
    let selector = "labelSelector=multicluster.kubernetes.io/source-cluster%3Dscale-1";
    let path =
        format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices?{selector}");
    let slices = second.api().get(&path)?;
    let is_first = |one: &&Value| {
        one["metadata"]["annotations"]["clusterset.mcs-agent.io/source-slice"] == name(1, 0)
    };
    let copy = slices["items"].as_array().into_iter().flatten().find(is_first);
    let copy = copy.context("no copy of the slice")?["metadata"]["name"].clone();
    let mut object = namespaced("discovery.k8s.io/v1", "EndpointSlice", NAMESPACE, "");
    object["metadata"]["name"] = copy;
    let watcher = second.server.another_client()?;
    let (sender, seen) = mpsc::channel();
    let last = generations.end - 1;
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            watcher.watch(&object, |slice| {
                let generation =
                    &slice["metadata"]["annotations"]["clusterset.mcs-agent.io/source-generation"];
                let generation = generation.as_str().and_then(|text| text.parse().ok());
                let generation: usize = generation.unwrap_or_default();
                // The receiver is gone when a change takes too long.
                let is_wanted = sender.send((generation, Instant::now())).is_ok();
                is_wanted && generation < last
            })
        });
        let mut times = Vec::new();
        for generation in generations {
            let began = Instant::now();
            world.clusters[2].api().apply(&slice(size, 1, 0, generation))?;
            loop {
                let (found, at) = seen.recv_timeout(wait::scaled(Duration::from_secs(30)))?;
                if found == generation {
                    times.push(at.saturating_duration_since(began));
                    break;
                }
            }
            sleep(Duration::from_millis(20));
        }
        watch.join().map_err(|_| anyhow::anyhow!("the watch panics"))??;
        Ok(times)
    })
}
