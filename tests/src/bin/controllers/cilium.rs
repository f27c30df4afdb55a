//! Cilium's MCS-API: the operator of each cluster, which writes imports, and an etcd for each, by which the other one reads exports.
//! Cilium's agent and its other parts do not run.

use crate::{
    beside,
    changes::{self, Way, exported},
    prelude::*,
    service::{self, set_all_ready},
    stage::Neighbour,
};

/// The operator's ServiceAccount, as the chart names it.
const ACCOUNT: (&str, &str) = ("kube-system", "cilium-operator");
/// What the chart is rendered with for the operator's rights.
const VALUES: [&str; 4] = [
    "--set=clustermesh.mcsapi.enabled=true",
    "--set=clustermesh.mcsapi.installCRDs=false",
    // The same before 1.19.
    "--set=clustermesh.enableMCSAPISupport=true",
    "--set=clustermesh.enableEndpointSliceSynchronization=true",
];
/// What the admission policy says.
const REFUSED: &str = "only the multi-cluster controller writes";
const SYNC: &str = "service.cilium.io/global-sync-endpoint-slices";
const AFFINITY: &str = "service.cilium.io/affinity";

const SYNCED: Way = synced(Kind::Cilium);
const DEFAULT: &str = "Cilium 1.20 default";
const OLDER: &str = "Cilium 1.17 to 1.19 default";
const WITH_AFFINITY: &str = "Cilium, `service.cilium.io/affinity` on the import ([how](#cilium))";

/// The way whose slices of all clusters are everywhere.
const fn synced(kind: Kind) -> Way {
    Way {
        kind,
        row: "Cilium with synced slices ([how](#cilium))",
        export: |stage, namespace, clusters| {
            export(stage, namespace, clusters, &json!({ SYNC: "true" }))
        },
        serves_alone: true,
    }
}

pub(crate) fn cases(suite: &mut Suite<World>) {
    changes::cases(suite, SYNCED);
    suite.case("Cilium 1.20 default: left alone, since Cilium serves it", |world| {
        default(world, Kind::CiliumPlain, DEFAULT, "not_published")
    });
    suite.case("Cilium 1.20, the annotation alone: slices of the own cluster", annotated);
    suite.case("Cilium, affinity of exports: the own cluster serves while it can", affinity);
    suite.case("Cilium: a cluster leaves the mesh", leaves);
    beside::cases(suite, SYNCED);
    suite.case(
        "Cilium does not delete an import of mcs-controller that its mesh lacks",
        not_its_own,
    );
    suite.case("Cilium 1.18, default: left alone", |world| {
        default(world, Kind::CiliumOldest, OLDER, "slices_incomplete")
    });
    suite.case("Cilium 1.18 with synced slices: an endpoint leaves and comes back", |world| {
        changes::endpoint(world, synced(Kind::CiliumOldest))
    });
    suite.case("Cilium 1.18 with synced slices: a cluster exports no more, and again", |world| {
        changes::unexported(world, synced(Kind::CiliumOldest))
    });
}

/// An operator and an etcd for each cluster.
pub(crate) struct Cilium {
    operators: Vec<Operator>,
    _stores: Vec<Process>,
}

/// The operator of a cluster.
struct Operator {
    _process: Process,
    /// The directory with a file for each other cluster.
    mesh: PathBuf,
}

impl Cilium {
    /// Starts everything. Returns the version too.
    pub(crate) fn start(
        world: &World,
        kind: Kind,
        clusters: &[Cluster; 2],
    ) -> Result<(Self, String)> {
        let (program, version) = kind.program("operator")?;
        let rights = rights(kind)?;
        let stores = clusters.iter().map(|cluster| start_store(world, cluster));
        let stores = stores.collect::<Result<_>>()?;
        let mut operators = Vec::new();
        for (cluster, other) in clusters.iter().zip(clusters.iter().rev()) {
            cluster.api().apply_all(&rights)?;
            let mesh = cluster.file("mesh");
            fs::create_dir(&mesh)?;
            join(&mesh, other)?;
            let process = start_operator(world, kind, &program, cluster, &mesh)?;
            operators.push(Operator { _process: process, mesh });
        }
        Ok((Self { operators, _stores: stores }, version))
    }
}

/// The objects of the chart that give the operator its rights.
fn rights(kind: Kind) -> Result<Vec<Value>> {
    let mut helm = Command::new(Programs::from_env().find("helm")?);
    helm.env_clear().env("HOME", "/nonexistent").args(["template", "cilium"]);
    helm.arg(kind.source("install/kubernetes/cilium")?).args(VALUES);
    // Without a cluster it takes its own Kubernetes for one that is too old.
    helm.args(["--kube-version=1.36.0", "--namespace", ACCOUNT.0]);
    for part in ["serviceaccount", "clusterrole", "clusterrolebinding"] {
        helm.arg(format!("--show-only=templates/cilium-operator/{part}.yaml"));
    }
    documents(process::run(&mut helm, "")?.trim_start_matches("---\n"))
}

/// The etcd of a cluster, which its operator and those of the others use.
fn start_store(world: &World, cluster: &Cluster) -> Result<Process> {
    let (url, peers) = (store(cluster, 0), store(cluster, 1));
    let flags = [
        format!("--data-dir={}", cluster.file("mesh-etcd").display()),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=default={peers}"),
        "--log-level=error".to_owned(),
        "--unsafe-no-fsync".to_owned(),
    ];
    let (netns, programs) = (world.control.netns(), Programs::from_env());
    Process::start(&programs, "etcd", &flags, netns, world.run.cgroup(), cluster.server.directory())
}

/// The address of the etcd of a cluster, for clients (0) and for peers (1).
fn store(cluster: &Cluster, number: u16) -> String {
    format!("http://127.0.0.1:{}", 2400 + 10 * u16::from(cluster.number) + number)
}

/// Tells an operator where the etcd of another cluster is.
fn join(mesh: &Path, other: &Cluster) -> Result {
    let file = format!("endpoints:\n- {}\n", store(other, 0));
    Ok(fs::write(mesh.join(other.id), file)?)
}

fn start_operator(
    world: &World,
    kind: Kind,
    program: &Path,
    cluster: &Cluster,
    mesh: &Path,
) -> Result<Process> {
    let token = cluster.file("operator.token");
    let account = namespaced("v1", "ServiceAccount", ACCOUNT.0, ACCOUNT.1);
    cluster.server.write_token(&account, &token)?;
    let kubeconfig = cluster.file("operator.kubeconfig");
    cluster.server.write_kubeconfig(&kubeconfig, &token)?;
    // It writes sockets below /var/run.
    let wrapped = "mount -t tmpfs none /var/run && exec \"$@\"";
    let flags = ["--mount", "--", "/bin/sh", "-c", wrapped, "sh"].map(str::to_owned);
    let own = [
        program.display().to_string(),
        format!("--k8s-kubeconfig-path={}", kubeconfig.display()),
        format!("--k8s-namespace={}", ACCOUNT.0),
        format!("--cluster-name={}", cluster.id),
        format!("--cluster-id={}", cluster.number),
        "--kvstore=etcd".to_owned(),
        format!("--kvstore-opt=etcd.address={}", store(cluster, 0)),
        format!("--clustermesh-config={}", mesh.display()),
        "--clustermesh-enable-mcs-api".to_owned(),
        format!("--clustermesh-enable-endpoint-sync={}", kind != Kind::CiliumPlain),
        "--identity-allocation-mode=crd".to_owned(),
        "--ipam=kubernetes".to_owned(),
        "--enable-ipv6=false".to_owned(),
        // Both operators run in one namespace.
        "--operator-api-serve-addr=127.0.0.1:0".to_owned(),
        "--enable-metrics=false".to_owned(),
        "--enable-gops=false".to_owned(),
    ];
    // The types are there. The oldest version expects that.
    let types =
        (kind != Kind::CiliumOldest).then(|| "--clustermesh-mcs-api-install-crds=false".to_owned());
    let flags: Vec<_> = flags.into_iter().chain(own).chain(types).collect();
    let unshare = Programs::from_env().find("unshare")?;
    let (netns, cgroup) = (world.control.netns(), world.run.cgroup());
    let directory = cluster.server.directory();
    Process::start_file(unshare, "operator", &flags, netns, cgroup, directory)
}

/// Lets exactly these clusters export a service, with these annotations of its import.
fn export(stage: &Stage, namespace: &str, clusters: &[usize], annotations: &Value) -> Result {
    for (place, cluster) in stage.clusters.iter().enumerate() {
        let mut export = service_export(namespace);
        if clusters.contains(&place) {
            cluster.api().apply(&service::service(namespace))?;
            export["spec"] = json!({ "exportedAnnotations": annotations });
            cluster.api().apply(&export)?;
        } else if cluster.api().read(&export).is_ok() {
            cluster.api().delete(&export)?;
        }
    }
    Ok(())
}

fn service_export(namespace: &str) -> Value {
    namespaced("multicluster.x-k8s.io/v1beta1", "ServiceExport", namespace, NAME)
}

fn default(world: &mut World, kind: Kind, row: &'static str, reason: &str) -> Result {
    world.enter(kind)?;
    let namespace = world.fresh()?;
    let stage = world.stage()?;
    export(stage, &namespace, &[0, 1], &json!({}))?;
    let time = stage.wait_until_left_alone(&namespace, reason)?;
    world.saw(row, "two clusters export", format!("left alone: {reason}"), time)
}

/// The status says `Present`, although nobody writes slices of other clusters.
fn annotated(world: &mut World) -> Result {
    world.enter(Kind::CiliumPlain)?;
    let namespace = world.fresh()?;
    let stage = world.stage()?;
    export(stage, &namespace, &[0, 1], &json!({ SYNC: "true" }))?;
    let time = stage.wait_for_backends(&namespace, &stage.backends_of(&[0]))?;
    let [first, second] = stage.both();
    let import = service_import(&namespace);
    wait_for_clusters(first, &import, &[first, second])?;
    let said = first.api().read(&import)?["status"]["endpointSliceObjects"].take();
    ensure!(said == "Present", "endpointSliceObjects is {said}");
    let seen = "status: Present, clusters c1 and c2; slices and backends of c1 alone";
    world.saw(SYNCED.row, "the operators sync no slices", seen, time)
}

fn service_import(namespace: &str) -> Value {
    namespaced("multicluster.x-k8s.io/v1beta1", "ServiceImport", namespace, NAME)
}

/// Waits until an import names these clusters.
fn wait_for_clusters(cluster: &Cluster, import: &Value, expected: &[&Cluster]) -> Result {
    let expected: Vec<_> = expected.iter().map(|one| json!({ "cluster": one.id })).collect();
    wait::within(Duration::from_mins(1), "status.clusters", || {
        let found = cluster.api().read(import)?["status"]["clusters"].take();
        ensure!(found == json!(expected), "it has {found}");
        Ok(())
    })
}

fn affinity(world: &mut World) -> Result {
    world.enter(Kind::Cilium)?;
    let namespace = world.fresh()?;
    let stage = world.stage()?;
    export(stage, &namespace, &[0, 1], &json!({ SYNC: "true", AFFINITY: "local" }))?;
    let time = stage.wait_for_backends(&namespace, &stage.backends_of(&[0]))?;
    stage.reach(world, &namespace)?;
    let [first, _] = stage.both();
    set_all_ready(first, &namespace, false)?;
    let away = stage.wait_for_backends(&namespace, &stage.backends_of(&[1]))?;
    stage.reach(world, &namespace)?;
    set_all_ready(first, &namespace, true)?;
    let back = stage.wait_for_backends(&namespace, &stage.backends_of(&[0]))?;
    world.saw(WITH_AFFINITY, "two clusters export with `local`", "c1: 2 backends", time)?;
    world.saw(WITH_AFFINITY, "no pod of c1 is ready", "c2: 2 backends", away)?;
    world.saw(WITH_AFFINITY, "they are ready again", "c1: 2 backends", back)
}

/// Cilium takes it off the status at once, and leaves its slice for a while. The agent serves what the slices have.
fn leaves(world: &mut World) -> Result {
    let (namespace, _) = exported(world, SYNCED)?;
    let stage = world.stage()?;
    let Neighbour::Cilium(cilium) = &stage.neighbour else { bail!("Cilium does not run") };
    let ([first, second], mesh) = (stage.both(), &cilium.operators[0].mesh);
    fs::remove_file(mesh.join(second.id))?;
    let begin = Instant::now();
    let import = service_import(&namespace);
    wait_for_clusters(first, &import, &[first])?;
    let left = begin.elapsed();
    let served = stage.backends(&namespace)?;
    let kept = served == stage.backends_of(&[0, 1]);
    ensure!(kept || served == stage.backends_of(&[0]), "the agent serves {served:?}");
    stage.reach(world, &namespace)?;
    join(mesh, second)?;
    let begin = Instant::now();
    wait_for_clusters(first, &import, &[first, second])?;
    stage.wait_for_backends(&namespace, &stage.backends_of(&[0, 1]))?;
    let back = begin.elapsed();
    let seen =
        if kept { "off the status; its slice stays, and is served" } else { "c1: 2 backends" };
    world.saw(SYNCED.row, "c1's mesh has c2 no more", seen, left)?;
    world.saw(SYNCED.row, "c1's mesh has c2 again", "c1: 2 backends, c2: 2", back)
}

/// The operator deletes every ServiceImport that no cluster of its mesh exports. The admission policy refuses it.
fn not_its_own(world: &mut World) -> Result {
    world.enter(Kind::Cilium)?;
    beside::start(world, &[])?;
    let namespace = world.fresh()?;
    let stage = world.stage()?;
    let Neighbour::Cilium(cilium) = &stage.neighbour else { bail!("Cilium does not run") };
    let ([first, second], mesh) = (stage.both(), &cilium.operators[0].mesh);
    fs::remove_file(mesh.join(second.id))?;
    export(stage, &namespace, &[1], &json!({ SYNC: "true" }))?;
    stage.wait_for_backends(&namespace, &stage.backends_of(&[1]))?;
    let import = service_import(&namespace);
    let uid = || anyhow::Ok(first.api().read(&import)?["metadata"]["uid"].take());
    let before = uid()?;
    wait::within(Duration::from_mins(1), "the operator to be refused", || {
        let log = fs::read_to_string(first.file("operator.log"))?;
        let mut lines = log.lines().filter(|line| line.contains(&namespace));
        ensure!(lines.any(|line| line.contains(REFUSED)), "it has not tried to delete the import");
        Ok(())
    })?;
    let settled = beside::settle(stage, &namespace)?;
    ensure!(uid()? == before, "the import was deleted, and made again");
    stage.reach(world, &namespace)?;
    join(mesh, second)?;
    let seen = format!("the policy refuses to delete its import in c1; {settled}");
    world.saw(SYNCED.row, "c2 alone exports to mcs-controller", seen, settled.time)
}
