//! The controllers of this project beside those of others, with the rights and the admission policy that are shipped.

use std::sync::Arc;

use mcs_tests::controller::{self, Controller};

use crate::{
    changes::{Claim, Way, exported},
    prelude::*,
    service,
};

/// So long nobody writes once all has settled.
const STILL: Duration = Duration::from_secs(10);
/// Whoever contests an object writes it less and less often: after 16 s the fifth time.
const SETTLES_WITHIN: Duration = Duration::from_mins(2);
const IMPORTS: &str = "multicluster.x-k8s.io/v1beta1";
const PEERS: &str = "clusterset.mcs-agent.io/v1alpha1";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const OURS: &str = "mcs-controller";

/// The cases of a way whose import another controller writes in the member cluster.
pub(crate) fn cases(suite: &mut Suite<World>, way: Way) {
    let claims: [(&str, Claim); 3] = [
        ("mcs-controller leaves the import alone", left_alone),
        ("mcs-controller adopts the import", adopted),
        ("a service is exported while mcs-controller runs", exported_meanwhile),
    ];
    for (claim, body) in claims {
        let name = format!("{}: {claim}, and nobody goes on writing", way.title());
        suite.case(name, move |world| body(world, way));
    }
}

/// A controller for each cluster. They are peers.
pub(crate) struct Ours(Vec<Controller>);

impl Ours {
    fn start(world: &World, stage: &Stage) -> Result<Self> {
        let netns = world.control.netns();
        let start = |cluster: &Cluster| {
            let kubeconfig = controller::install(&cluster.server, cluster.id)?;
            Controller::start(Arc::clone(netns), cluster.server.directory(), kubeconfig, &[])
        };
        let controllers = stage.clusters.iter().map(start).collect::<Result<_>>()?;
        let peers = json!({ "apiVersion": PEERS, "kind": "ClusterPeer" });
        stage.clusters.iter().try_for_each(|cluster| cluster.api().wait_for_kind(&peers))?;
        let mut link = controller::command_line(netns)?;
        link.arg("link");
        for cluster in &stage.clusters {
            link.arg(cluster.server.administrator()?);
        }
        for cluster in &stage.clusters {
            link.arg(format!("--pod-cidr={}={}", cluster.id, service::range(cluster)));
        }
        process::run(&mut link, "")?;
        let [first, second] = stage.both();
        wait_for_peer(first, second)?;
        wait_for_peer(second, first)?;
        Ok(Self(controllers))
    }

    /// Starts them again with these flags.
    fn restart_with(&mut self, flags: &[&str]) -> Result {
        self.0.iter_mut().try_for_each(|one| one.restart_with(flags))
    }
}

/// Waits until a cluster reads the other one.
fn wait_for_peer(cluster: &Cluster, other: &Cluster) -> Result {
    let path = format!("/apis/{PEERS}/clusterpeers/{}", other.id);
    wait::within(Duration::from_secs(40), &format!("peer {} of {}", other.id, cluster.id), || {
        let peer = cluster.api().get(&path)?;
        let mut conditions = peer["status"]["conditions"].as_array().into_iter().flatten();
        let is_connected = |one: &Value| one["type"] == "Connected" && one["status"] == "True";
        ensure!(conditions.any(is_connected), "{}", peer["status"]);
        Ok(())
    })
}

/// Both clusters export a service before they run. Returns the namespace.
fn exported_before(world: &mut World, way: Way) -> Result<String> {
    world.enter(way.kind)?;
    if let Some(ours) = &mut world.stage_mut()?.ours {
        ours.0.iter_mut().try_for_each(Controller::kill)?;
    }
    exported(world, way).map(|(namespace, _)| namespace)
}

/// Starts them with these flags.
pub(crate) fn start(world: &mut World, flags: &[&str]) -> Result {
    if world.stage()?.ours.is_none() {
        let ours = Ours::start(world, world.stage()?)?;
        world.stage_mut()?.ours = Some(ours);
    }
    let ours = world.stage_mut()?.ours.as_mut().context("the controllers have started")?;
    ours.restart_with(flags)
}

fn left_alone(world: &mut World, way: Way) -> Result {
    let namespace = exported_before(world, way)?;
    start(world, &[])?;
    let stage = world.stage()?;
    let [first, _] = stage.both();
    let events = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    wait::within(Duration::from_mins(1), "an event LeftAlone", || {
        let events = first.api().get(&events)?;
        let mut events = events["items"].as_array().into_iter().flatten();
        ensure!(events.any(|event| event["reason"] == "LeftAlone"), "there is none");
        Ok(())
    })?;
    let settled = settle(stage, &namespace)?;
    ensure!(import(first, &namespace)?["metadata"]["labels"][MANAGED_BY] != OURS, "it is ours");
    stage.wait_for_backends(&namespace, &stage.backends_of(&[0, 1]))?;
    stage.reach(world, &namespace)?;
    let seen = format!("left alone; {settled}");
    world.saw(way.row, "mcs-controller starts in both clusters", seen, settled.time)
}

fn adopted(world: &mut World, way: Way) -> Result {
    let namespace = exported_before(world, way)?;
    let before = world.stage()?.vip(&namespace)?;
    start(world, &["--adopt"])?;
    let stage = world.stage()?;
    for cluster in stage.both() {
        wait::within(Duration::from_mins(1), "an import of mcs-controller", || {
            let import = import(cluster, &namespace)?;
            ensure!(import["metadata"]["labels"][MANAGED_BY] == OURS, "{import}");
            Ok(())
        })?;
    }
    let settled = settle(stage, &namespace)?;
    stage.wait_for_backends(&namespace, &stage.backends_of(&[0, 1]))?;
    let after = stage.vip(&namespace)?;
    ensure!(before == after, "clients had {before}, and now {after}");
    stage.reach(world, &namespace)?;
    (way.export)(stage, &namespace, &[0])?;
    let left = stage.wait_for_backends(&namespace, &stage.backends_of(&[0]))?;
    (way.export)(stage, &namespace, &[0, 1])?;
    stage.wait_for_backends(&namespace, &stage.backends_of(&[0, 1]))?;
    settle(stage, &namespace)?;
    let seen = format!("adopted with its address; {settled}");
    world.saw(way.row, "mcs-controller --adopt", seen, settled.time)?;
    world.saw(way.row, "c2 exports no more, after that", "c1: 2 backends", left)
}

/// Either of the two writes the import.
fn exported_meanwhile(world: &mut World, way: Way) -> Result {
    world.enter(way.kind)?;
    start(world, &[])?;
    let (namespace, _) = exported(world, way)?;
    let stage = world.stage()?;
    let settled = settle(stage, &namespace)?;
    stage.wait_for_backends(&namespace, &stage.backends_of(&[0, 1]))?;
    stage.reach(world, &namespace)?;
    let writers = stage.both().map(|cluster| {
        let is_ours = import(cluster, &namespace)
            .is_ok_and(|import| import["metadata"]["labels"][MANAGED_BY] == OURS);
        let writer = if is_ours { "mcs-controller" } else { "the other one" };
        format!("{} has the import of {writer}", cluster.id)
    });
    let seen = format!("{}; {settled}", writers.join(", "));
    world.saw(way.row, "two clusters export while both run", seen, settled.time)
}

fn import(cluster: &Cluster, namespace: &str) -> Result<Value> {
    cluster.api().read(&namespaced(IMPORTS, "ServiceImport", namespace, NAME))
}

/// What was written until nobody wrote any more.
pub(crate) struct Settled {
    /// How often objects of each kind were written and by whom, as far as that was seen.
    writes: BTreeMap<(&'static str, String), usize>,
    /// When the last write was.
    pub(crate) time: Duration,
}

impl fmt::Display for Settled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.writes.is_empty() {
            return write!(f, "nothing is written for 10 s");
        }
        let count =
            |((kind, writer), count): (&(_, String), _)| format!("{count} of {kind} by {writer}");
        let counts: Vec<_> = self.writes.iter().map(count).collect();
        write!(f, "writes: {}; then none for 10 s", counts.join(", "))
    }
}

/// Waits until nobody writes imports, exports and slices of a namespace for [`STILL`].
pub(crate) fn settle(stage: &Stage, namespace: &str) -> Result<Settled> {
    let begin = Instant::now();
    let (mut last, mut since) = (versions(stage, namespace)?, begin);
    let mut writes = BTreeMap::new();
    let mut latest = Vec::new();
    let gone = (Value::Null, "whoever deletes".to_owned());
    while since.elapsed() < STILL {
        if begin.elapsed() > wait::scaled(SETTLES_WITHIN) {
            bail!("somebody goes on writing: {writes:?} objects by kind, the last {latest:?}");
        }
        thread::sleep(Duration::from_millis(100));
        let now = versions(stage, namespace)?;
        let objects: BTreeSet<_> = last.keys().chain(now.keys()).collect();
        let changed = objects.into_iter().filter(|&object| last.get(object) != now.get(object));
        let changed: Vec<_> = changed.cloned().collect();
        for object in &changed {
            let (_, by) = now.get(object).cloned().unwrap_or_else(|| gone.clone());
            *writes.entry((object.1, by)).or_default() += 1;
        }
        if !changed.is_empty() {
            (since, latest) = (Instant::now(), changed);
        }
        last = now;
    }
    Ok(Settled { writes, time: since - begin })
}

/// The cluster, kind and name of an object.
type Object = (&'static str, &'static str, String);

/// The resource versions of imports, exports and slices of both clusters, each with who wrote it last.
fn versions(stage: &Stage, namespace: &str) -> Result<BTreeMap<Object, (Value, String)>> {
    let mut versions = BTreeMap::new();
    for cluster in stage.both() {
        for (group, kind, kinds) in [
            (IMPORTS, "imports", "serviceimports"),
            (IMPORTS, "exports", "serviceexports"),
            ("discovery.k8s.io/v1", "slices", "endpointslices"),
        ] {
            let path = format!("/apis/{group}/namespaces/{namespace}/{kinds}");
            let found = cluster.api().get(&path)?;
            for object in found["items"].as_array().into_iter().flatten() {
                let metadata = &object["metadata"];
                let name = metadata["name"].as_str().unwrap_or_default().to_owned();
                let version = (metadata["resourceVersion"].clone(), writer(metadata));
                versions.insert((cluster.id, kind, name), version);
            }
        }
    }
    Ok(versions)
}

/// Who wrote an object last, as it names itself to the API server.
fn writer(metadata: &Value) -> String {
    let fields = metadata["managedFields"].as_array().into_iter().flatten();
    let last = fields.max_by_key(|one| one["time"].as_str().unwrap_or_default());
    let name = last.and_then(|one| one["manager"].as_str()).unwrap_or("somebody");
    // Cilium's is that of its program.
    let name = if name == "operator" { "cilium-operator" } else { name };
    name.to_owned()
}
