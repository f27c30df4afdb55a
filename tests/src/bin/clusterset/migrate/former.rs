//! What other multi-cluster controllers write in a cluster, and who they are there.

use anyhow::{Context as _, ensure};
use mcs_tests::{api_server::Api, wait};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::SERVICE_NAME;
use crate::{
    cluster::{Cluster, addresses},
    connectivity::TARGET,
    objects::{self, NAME, namespaced},
    world::pod,
};

const SOURCE_CLUSTER: &str = "multicluster.kubernetes.io/source-cluster";
const DERIVED: &str = "multicluster.kubernetes.io/derived-service";
const SLICE_SERVICE: &str = "kubernetes.io/service-name";
const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const SLICES: &str = "discovery.k8s.io/v1";
/// Where a Submariner broker keeps what all clusters share.
const BROKER: &str = "submariner-k8s-broker";
/// The VIP that Lighthouse gives.
const VIP: &str = "243.0.0.1";
const BASE32_HEX: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// Another multi-cluster controller.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// That of sigs.k8s.io/mcs-api: a derived Service, and slices that somebody else brings.
    Reference,
    /// A derived Service, which Cilium serves itself. With `synced` there are slices of other clusters too.
    Cilium { synced: bool },
    /// No derived Service: its DNS answers with ClusterIPs of other clusters, or with a VIP that has no dataplane.
    Lighthouse { vip: bool },
}

/// A service that the first cluster exports, as another controller has imported it to the second one.
pub(super) struct Former {
    pub(super) source: Source,
    pub(super) namespace: String,
    /// `spec.ips` of the import, or null.
    pub(super) ips: Value,
    /// The other controller, with its rights.
    pub(super) controller: Api,
    pub(super) slices: Vec<Value>,
    derived: Option<Value>,
    records: Vec<Value>,
}

impl Former {
    /// Writes it. `exported` is the Service of the first cluster.
    pub(super) fn write(
        cluster: &Cluster,
        source: Source,
        namespace: &str,
        exported: &Value,
    ) -> anyhow::Result<Self> {
        let controller = cluster.another_controller(namespace)?;
        let derived_name = derived_name(namespace);
        let mut import = import(source, namespace, &derived_name);
        wait::until("the rights of a controller", || controller.apply(&import))?;
        let mut derived = None;
        if source.derives() {
            let uid = controller.read(&import)?["metadata"]["uid"].clone();
            let service = derived_service(source, namespace, &derived_name, &uid);
            controller.apply(&service)?;
            let service = controller.read(&service)?;
            import["spec"]["ips"] = json!([service["spec"]["clusterIP"]]);
            controller.apply(&import)?;
            derived = Some(service);
        }
        let ips = import["spec"]["ips"].clone();
        import["status"] = status(source);
        cluster.api().apply_status(&import)?;
        let slices: Vec<_> =
            slice(source, namespace, &derived_name, exported)?.into_iter().collect();
        controller.apply_all(&slices)?;
        let records = records(source, namespace);
        if !records.is_empty() {
            cluster.add_namespace(BROKER)?;
            controller.apply_all(&records)?;
        }
        let namespace = namespace.to_owned();
        Ok(Self { source, namespace, ips, controller, slices, derived, records })
    }

    /// Whether its slices have the addresses of pods.
    pub(super) fn leads_to_pods(&self) -> bool {
        !matches!(self.source, Source::Lighthouse { .. })
    }

    /// Its derived Service has its address, and all slices, for whoever serves it.
    pub(super) fn is_whole(&self, api: &Api) -> anyhow::Result<()> {
        let Some(derived) = &self.derived else { return Ok(()) };
        let found = api.read(derived)?;
        ensure!(found["spec"]["clusterIP"] == self.ips[0], "it had {}: {found}", self.ips);
        for slice in &self.slices {
            let found = api.read(slice)?;
            let labels = &found["metadata"]["labels"];
            ensure!(labels[SLICE_SERVICE] == derived["metadata"]["name"], "{found}");
            ensure!(addresses(&found) == addresses(slice), "it was {slice}: {found}");
        }
        Ok(())
    }

    /// ServiceImports that stand for no export are its own.
    pub(super) fn has_its_records(&self, api: &Api) -> anyhow::Result<()> {
        self.records.iter().try_for_each(|record| {
            let found = api.read(record)?;
            ensure!(found["metadata"]["labels"].is_null(), "it was adopted: {found}");
            Ok(())
        })
    }

    /// Nothing of it is left but the import.
    pub(super) fn is_gone(&self, api: &Api) -> anyhow::Result<()> {
        for object in self.derived.iter().chain(&self.slices) {
            ensure!(api.read(object).is_err(), "it is there: {object}");
        }
        self.records.iter().try_for_each(|record| api.delete(record))
    }
}

impl Source {
    const fn derives(self) -> bool {
        matches!(self, Self::Reference | Self::Cilium { .. })
    }
}

/// The name that the reference controller and Cilium give the derived Service.
pub(crate) fn derived_name(namespace: &str) -> String {
    let hash = Sha256::digest(format!("{namespace}/{NAME}").as_bytes());
    let number = hash.iter().take(7).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let digit = |place: u32| {
        let [last, ..] = (number >> (51 - 5 * place)).to_le_bytes();
        char::from(BASE32_HEX[usize::from(last & 31)])
    };
    format!("derived-{}", (0..10).map(digit).collect::<String>())
}

fn ports() -> Value {
    json!([
        { "name": "tcp", "protocol": "TCP", "port": 42 },
        { "name": "udp", "protocol": "UDP", "port": 42 },
    ])
}

fn import(source: Source, namespace: &str, derived: &str) -> Value {
    let mut import = objects::import(namespace);
    import["spec"] = json!({ "type": "ClusterSetIP", "ports": ports() });
    let annotations = match source {
        Source::Reference => json!({ DERIVED: derived }),
        Source::Cilium { synced } => {
            let mut annotations =
                json!({ DERIVED: derived, "clustermesh.cilium.io/supported-ip-families": "IPv4" });
            if synced {
                annotations["service.cilium.io/global-sync-endpoint-slices"] = json!("true");
            }
            annotations
        }
        Source::Lighthouse { vip: false } => json!({}),
        Source::Lighthouse { vip: true } => json!({
            "lighthouse.submariner.io/use-clusterset-ip": "true",
            "lighthouse.submariner.io/clusterset-ip-allocated-by": "c1",
        }),
    };
    import["metadata"]["annotations"] = annotations;
    if source == (Source::Lighthouse { vip: true }) {
        import["spec"]["ips"] = json!([VIP]);
    }
    import
}

fn status(source: Source) -> Value {
    let clusters = json!([{ "cluster": "c1" }]);
    match source {
        Source::Reference => json!({}),
        Source::Lighthouse { .. } => json!({ "clusters": clusters }),
        Source::Cilium { synced } => {
            let objects = if synced { "Present" } else { "Absent" };
            json!({ "clusters": clusters, "endpointSliceObjects": objects })
        }
    }
}

fn derived_service(source: Source, namespace: &str, name: &str, import: &Value) -> Value {
    let mut service = namespaced("v1", "Service", namespace, name);
    service["spec"] = json!({ "type": "ClusterIP", "ports": ports() });
    let is_cilium = source != Source::Reference;
    service["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceImport", "name": NAME,
        "uid": import, "controller": is_cilium, "blockOwnerDeletion": is_cilium,
    }]);
    if is_cilium {
        service["metadata"]["labels"] = json!({ SERVICE_NAME: NAME });
        service["metadata"]["annotations"] =
            json!({ "service.cilium.io/global": "true", DERIVED: name });
    }
    service
}

/// The slice of the first cluster's endpoints.
fn slice(
    source: Source,
    namespace: &str,
    derived: &str,
    exported: &Value,
) -> anyhow::Result<Option<Value>> {
    let (name, labels, address, port) = match source {
        Source::Cilium { synced: false } => return Ok(None),
        Source::Reference => (
            format!("imported-{NAME}-74ccv"),
            json!({ SLICE_SERVICE: derived }),
            pod(0, 0).to_string(),
            TARGET,
        ),
        Source::Cilium { synced: true } => (
            format!("{derived}-c1-r2m4d"),
            json!({
                SLICE_SERVICE: derived, SOURCE_CLUSTER: "c1",
                SLICE_MANAGED_BY: "endpointslice-mesh-controller.cilium.io",
            }),
            pod(0, 0).to_string(),
            TARGET,
        ),
        Source::Lighthouse { .. } => (
            format!("{NAME}-p9f8h"),
            json!({
                SOURCE_CLUSTER: "c1",
                SLICE_MANAGED_BY: "lighthouse-agent.submariner.io",
                "lighthouse.submariner.io/is-headless": "false",
                "lighthouse.submariner.io/sourceNamespace": namespace,
            }),
            exported["spec"]["clusterIP"].as_str().context("a ClusterIP")?.to_owned(),
            42,
        ),
    };
    let mut slice = namespaced(SLICES, "EndpointSlice", namespace, &name);
    slice["metadata"]["labels"] = labels;
    slice["metadata"]["labels"][SERVICE_NAME] = json!(NAME);
    slice["addressType"] = json!("IPv4");
    slice["endpoints"] = json!([{ "addresses": [address], "conditions": { "ready": true } }]);
    slice["ports"] = json!([
        { "name": "tcp", "protocol": "TCP", "port": port },
        { "name": "udp", "protocol": "UDP", "port": port },
    ]);
    Ok(Some(slice))
}

/// What the broker has, where the second cluster is that too.
fn records(source: Source, namespace: &str) -> Vec<Value> {
    let Source::Lighthouse { vip } = source else { return vec![] };
    let mut aggregate = objects::import(BROKER);
    aggregate["metadata"]["name"] = json!(format!("{NAME}-{namespace}"));
    aggregate["metadata"]["annotations"] =
        json!({ SERVICE_NAME: NAME, "lighthouse.submariner.io/sourceNamespace": namespace });
    aggregate["spec"] = json!({ "type": "ClusterSetIP", "ports": ports() });
    if vip {
        aggregate["spec"]["ips"] = json!([VIP]);
    }
    vec![aggregate]
}
