//! Karmada: its controller-manager, scheduler and webhook beside an API server of their own, which both members have joined.
//! Its aggregated API server does not run: Cluster is a type like others.

use k8s_openapi::ByteString;

use crate::{
    beside,
    changes::{self, Way, exported},
    cluster::add_namespace,
    prelude::*,
    service,
    stage::Neighbour,
};

/// Where credentials of members lie, in the host and in members.
const CREDENTIALS: &str = "karmada-cluster";
const WEBHOOK_PORT: u16 = 8443;
/// Members become ready within this.
const PATIENCE: Duration = Duration::from_mins(2);
/// What the webhook completes: groups and resources, by their paths. Objects without ids are deleted as orphans.
const COMPLETED: [(&str, &str, &str); 4] = [
    ("policy.karmada.io", "propagationpolicies", "mutate-propagationpolicy"),
    ("networking.karmada.io", "multiclusterservices", "mutate-multiclusterservice"),
    ("work.karmada.io", "resourcebindings", "mutate-resourcebinding"),
    ("work.karmada.io", "works", "mutate-work"),
];
const MCS: &str = "multicluster.x-k8s.io/v1alpha1";

const SERVICE: Way = Way {
    kind: Kind::Karmada,
    row: "Karmada MultiClusterService",
    export: export_service,
    // Without a slice of another cluster it is a Service like others.
    serves_alone: false,
};
const IMPORT: Way = Way {
    kind: Kind::Karmada,
    row: "Karmada ServiceImport",
    export: export_import,
    serves_alone: true,
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    changes::cases(suite, SERVICE);
    changes::cases(suite, IMPORT);
    beside::cases(suite, IMPORT);
    suite.case("Karmada: the API server of a cluster goes away, and nothing is withdrawn", silent);
    suite.case("Karmada: a cluster leaves", leaves);
}

/// The host and what runs beside it.
pub(crate) struct Karmada {
    _processes: Vec<Process>,
    host: ApiServer,
}

impl Karmada {
    /// Starts everything, and waits until the members are ready. Returns the version too.
    pub(crate) fn start(
        world: &World,
        stage: &str,
        clusters: &[Cluster; 2],
    ) -> Result<(Self, String)> {
        let host = world.control.api_server(&format!("{stage}-host"), 6443, &[])?;
        let mut processes = vec![world.control.controllers(&host)?];
        let api = &host.api;
        for definitions in definitions()? {
            api.apply(&definitions)?;
        }
        for namespace in ["karmada-system", CREDENTIALS] {
            add_namespace(api, namespace)?;
        }
        api.wait_for_kind(&cluster_of(""))?;
        let kubeconfig = format!("--kubeconfig={}", host.administrator()?.display());
        let serving = world.control.serving("karmada-webhook")?;
        let name = |file: &Path| file.file_name().unwrap_or_default().display().to_string();
        let directory = serving.certificate.parent().context("a file lies in a directory")?;
        let webhook = [
            format!("--cert-dir={}", directory.display()),
            format!("--tls-cert-file-name={}", name(&serving.certificate)),
            format!("--tls-private-key-file-name={}", name(&serving.key)),
            format!("--secure-port={WEBHOOK_PORT}"),
        ];
        let manager = ["--leader-elect=false", "--feature-gates=MultiClusterService=true"];
        let scheduler = ["--leader-elect=false"];
        let mut version = String::new();
        for (program, flags) in [
            ("webhook", webhook.to_vec()),
            ("controller-manager", manager.map(str::to_owned).to_vec()),
            ("scheduler", scheduler.map(str::to_owned).to_vec()),
        ] {
            let (file, found) = Kind::Karmada.program(program)?;
            version = found;
            let common = [
                kubeconfig.clone(),
                "--metrics-bind-address=0".to_owned(),
                "--health-probe-bind-address=0".to_owned(),
            ];
            let flags: Vec<_> = common.into_iter().chain(flags).collect();
            let (netns, cgroup) = (world.control.netns(), world.run.cgroup());
            processes.push(Process::start_file(
                file,
                program,
                &flags,
                netns,
                cgroup,
                host.directory(),
            )?);
        }
        api.apply(&webhooks(&host)?)?;
        for cluster in clusters {
            join(&host, cluster)?;
        }
        let karmada = Self { _processes: processes, host };
        clusters.iter().try_for_each(|cluster| karmada.wait_for(cluster))?;
        Ok((karmada, version))
    }

    /// Waits until a member is ready.
    fn wait_for(&self, cluster: &Cluster) -> Result {
        wait::within(PATIENCE, &format!("member {}", cluster.id), || {
            let member = self.host.api.read(&cluster_of(cluster.id))?;
            ensure!(is_ready(&member), "it has {}", member["status"]["conditions"]);
            Ok(())
        })
    }

    /// Makes a namespace, which Karmada makes in the members.
    pub(crate) fn add_namespace(&self, clusters: &[Cluster; 2], name: &str) -> Result {
        add_namespace(&self.host.api, name)?;
        clusters.iter().try_for_each(|cluster| {
            let path = format!("/api/v1/namespaces/{name}");
            let what = format!("namespace {name} of {}", cluster.id);
            wait::within(PATIENCE, &what, || cluster.api().get(&path).map(drop))
        })
    }
}

/// The types of the host.
fn definitions() -> Result<Vec<Value>> {
    let mut definitions = Vec::new();
    for group in fs::read_dir(Kind::Karmada.source("charts/karmada/_crds/bases")?)? {
        for file in fs::read_dir(group?.path())? {
            let text = fs::read_to_string(file?.path())?;
            definitions.extend(documents(text.trim_start_matches("---\n"))?);
        }
    }
    definitions.push(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "clusters.cluster.karmada.io" },
        "spec": {
            "group": "cluster.karmada.io",
            "scope": "Cluster",
            "names": {
                "kind": "Cluster", "listKind": "ClusterList",
                "plural": "clusters", "singular": "cluster",
            },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                } },
            }],
        },
    }));
    Ok(definitions)
}

fn webhooks(host: &ApiServer) -> Result<Value> {
    let authority = ByteString(fs::read(host.authority())?);
    let webhooks = COMPLETED.map(|(group, resource, path)| {
        json!({
            "name": format!("{resource}.karmada.io"),
            "rules": [{
                "apiGroups": [group], "apiVersions": ["*"], "resources": [resource],
                "operations": ["CREATE", "UPDATE"], "scope": "*",
            }],
            "clientConfig": {
                "url": format!("https://{}:{WEBHOOK_PORT}/{path}", host.address().ip()),
                "caBundle": authority,
            },
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        })
    });
    Ok(json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": "karmada" },
        "webhooks": webhooks,
    }))
}

/// Makes a cluster a member, as `karmadactl join` does, with the rights that it gives.
fn join(host: &ApiServer, cluster: &Cluster) -> Result {
    cluster.add_namespace(CREDENTIALS)?;
    let rules = json!([
        { "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] },
        { "nonResourceURLs": ["*"], "verbs": ["get"] },
    ]);
    let token = cluster.account(CREDENTIALS, &format!("karmada-{}", cluster.id), &rules)?;
    let mut secret = namespaced("v1", "Secret", CREDENTIALS, cluster.id);
    secret["stringData"] = json!({ "token": token });
    secret["data"] = json!({ "caBundle": ByteString(fs::read(cluster.server.authority())?) });
    host.api.apply(&secret)?;
    let mut member = cluster_of(cluster.id);
    member["spec"] = json!({
        "id": cluster.id,
        "syncMode": "Push",
        "apiEndpoint": format!("https://{}", cluster.server.address()),
        "secretRef": { "namespace": CREDENTIALS, "name": cluster.id },
    });
    host.api.apply(&member)
}

/// Whether Karmada says that a member is ready.
fn is_ready(member: &Value) -> bool {
    let mut conditions = member["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
}

fn cluster_of(id: &str) -> Value {
    json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": { "name": id },
    })
}

/// The API server of the host.
fn host(stage: &Stage) -> Result<&Api> {
    match &stage.neighbour {
        Neighbour::Karmada(karmada) => Ok(&karmada.host.api),
        Neighbour::Cilium(_) => bail!("Karmada does not run"),
    }
}

fn export_service(stage: &Stage, namespace: &str, clusters: &[usize]) -> Result {
    let name = |cluster: &Cluster| json!({ "name": cluster.id });
    let providers = clusters.iter().map(|place| name(&stage.clusters[*place]));
    let mut object =
        namespaced("networking.karmada.io/v1alpha1", "MultiClusterService", namespace, NAME);
    object["spec"] = json!({
        "types": ["CrossCluster"],
        "providerClusters": providers.collect::<Vec<_>>(),
        "consumerClusters": stage.both().map(name),
    });
    let host = host(stage)?;
    host.apply(&service::service(namespace))?;
    host.apply(&object)
}

fn export_import(stage: &Stage, namespace: &str, clusters: &[usize]) -> Result {
    let ids = |places: &[usize]| -> Vec<_> {
        places.iter().map(|place| stage.clusters[*place].id).collect()
    };
    let service = service::service(namespace);
    let export = namespaced(MCS, "ServiceExport", namespace, NAME);
    let mut import = namespaced(MCS, "ServiceImport", namespace, NAME);
    import["spec"] = json!({
        "type": "ClusterSetIP",
        "ports": [{ "name": "http", "port": service::PORT, "protocol": "TCP" }],
    });
    let host = host(stage)?;
    for (object, clusters) in
        [(service, ids(&[0, 1])), (export, ids(clusters)), (import, ids(&[0]))]
    {
        host.apply(&object)?;
        host.apply(&placed(&object, &clusters))?;
    }
    Ok(())
}

/// The policy that places an object in these clusters.
fn placed(object: &Value, clusters: &[&str]) -> Value {
    let kind = object["kind"].as_str().unwrap_or_default();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let name = format!("{NAME}-{}", kind.to_lowercase());
    let mut policy =
        namespaced("policy.karmada.io/v1alpha1", "PropagationPolicy", namespace, &name);
    policy["spec"] = json!({
        "resourceSelectors": [{
            "apiVersion": object["apiVersion"], "kind": kind,
            "namespace": namespace, "name": NAME,
        }],
        "placement": { "clusterAffinity": { "clusterNames": clusters } },
    });
    policy
}

/// Karmada says that the cluster is not ready, and keeps what it has collected there.
fn silent(world: &mut World) -> Result {
    let (service, _) = exported(world, SERVICE)?;
    let (import, _) = exported(world, IMPORT)?;
    world.stage_mut()?.clusters[1].server.kill()?;
    let begin = Instant::now();
    let stage = world.stage()?;
    let host = host(stage)?;
    let [_, second] = stage.both();
    let noticed = wait::within(PATIENCE, "a member that is not ready", || {
        ensure!(!is_ready(&host.read(&cluster_of(second.id))?), "it is ready");
        Ok(begin.elapsed())
    });
    let kept = [&service, &import].map(|namespace| {
        stage.wait_for_backends(namespace, &stage.backends_of(&[0, 1]))?;
        stage.reach(world, namespace)
    });
    world.stage_mut()?.clusters[1].server.start_again()?;
    let noticed = noticed?;
    kept.into_iter().collect::<Result>()?;
    let seen = "Cluster c2 is not ready; c1: 2 backends, c2: 2";
    world.saw(SERVICE.row, "the API server of c2 ends", seen, noticed)?;
    world.saw(IMPORT.row, "the API server of c2 ends", seen, noticed)
}

fn leaves(world: &mut World) -> Result {
    let (service, _) = exported(world, SERVICE)?;
    let (import, _) = exported(world, IMPORT)?;
    let stage = world.stage()?;
    let [_, second] = stage.both();
    // It is held until its works have gone.
    host(stage)?.delete_many(&[cluster_of(second.id)])?;
    let begin = Instant::now();
    stage.wait_for_backends(&import, &stage.backends_of(&[0]))?;
    let of_import = begin.elapsed();
    stage.wait_for_backends(&service, &BTreeSet::new())?;
    let of_service = begin.elapsed();
    stage.reach(world, &import)?;
    world.saw(IMPORT.row, "Cluster c2 is deleted", "c1: 2 backends", of_import)?;
    world.saw(SERVICE.row, "Cluster c2 is deleted", "the agent serves nothing", of_service)?;
    // The next case starts with two members.
    world.leave();
    Ok(())
}
