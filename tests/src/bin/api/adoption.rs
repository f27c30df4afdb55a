//! Objects of controllers that do not follow KEP-1645: the agent adopts them with the rights of the chart.

use crate::prelude::*;

/// Who keeps slices.
const MIRRORING: &str = "endpointslicemirroring-controller.k8s.io";
const DISPATCHER: &str = "endpointslice-dispatch-controller.karmada.io";
const LOCAL: &str = "endpointslice-controller.k8s.io";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("objects of Antrea, GKE and Karmada are adopted", adopts);
}

fn adopts(world: &mut World) -> Result {
    let api = &world.east.api;
    let chart = helm(&["--set=adopt={antrea,gke,karmada}"])?;
    let flag = "--adopt=antrea,gke,karmada";
    let daemon_set = chart.get("DaemonSet mcs-agent").context("the chart has no DaemonSet")?;
    ensure!(daemon_set.to_string().contains(flag), "the chart does not set {flag}");
    api.apply(chart.get("ClusterRole mcs-agent").context("the chart has no ClusterRole")?)?;
    api.apply(&gke_definition())?;

    let of_gke = world.fresh("of-gke").with(&[11]).service;
    let web = Member::new("of-karmada", [10, 96, 40, 7]).remote(&[11]).local(&[14]);
    let late = Member::new("dispatched-later", [10, 96, 40, 8]).remote(&[13]).local(&[14]);
    let import = gke_import(&of_gke);
    api.wait_for_kind(&import)?;
    api.apply(&import)?;
    api.apply_all(&mirrored(&of_gke, &derived(&of_gke)))?;
    let of_antrea = world.fresh("of-antrea").with(&[12]).service;
    api.apply(&of_antrea.import())?;
    api.apply_all(&mirrored(&of_antrea, "antrea-mc-of-antrea"))?;
    api.apply_all(&[web.object(), late.object()])?;
    api.apply_all(&web.slices("m1"))?;
    api.apply_all(&web.slices("own"))?;
    api.apply_all(&late.slices("own"))?;

    let plain = world.start("adopts-nothing", &[])?;
    plain.wait_for_report("the group of GKE", |report| {
        report["source"]["adoptable_groups"]
            == json!([{"controller": "gke", "group": "net.gke.io"}])
    })?;
    drop(plain);
    let mut site = world.start("adopts", &[flag])?;
    site.wait_until_healthy()?;
    site.wait_for(&of_gke)?;
    site.wait_for(&of_antrea)?;
    site.wait_for(&web.service)?;
    ensure!(site.agent.frontends("dispatched-later")?.is_empty(), "an ordinary Service is served");
    site.wait_until_content()?;
    ensure!(site.report()?["source"]["adoptable_groups"] == json!([]), "it adopts GKE's already");

    let changed = of_gke.clone().endpoints("remote", [pod_address(12)]);
    api.apply_all(&mirrored(&changed, &derived(&of_gke)))?;
    site.wait_for(&changed)?;
    let web = web.remote(&[12]);
    api.apply_all(&web.slices("m1"))?;
    site.wait_for(&web.service)?;

    // The agent now reads the local slices of two Services.
    api.apply_all(&late.slices("m1"))?;
    site.wait_for(&late.service)?;
    for member in [web.local(&[13]), late.clone().local(&[12])] {
        api.apply_all(&member.slices("own"))?;
        site.wait_for(&member.service)?;
    }
    for slice in late.slices("m1") {
        api.delete(&slice)?;
    }
    site.agent.wait_until_gone("dispatched-later")?;
    site.wait_for(&changed)?;
    site.wait_until_content()?;

    api.delete(&of_antrea.import())?;
    site.agent.wait_until_gone("of-antrea")?;
    api.delete(&import)?;
    site.agent.wait_until_gone("of-gke")?;
    api.delete(&gke_definition())?;
    let [role, _] = role_and_binding()?;
    api.apply(&role)
}

/// A Service of a `MultiClusterService`, as it is in a member cluster.
#[derive(Clone)]
struct Member {
    service: Service,
    cluster_ip: IpAddr,
}

impl Member {
    fn new(name: &str, cluster_ip: [u8; 4]) -> Self {
        let cluster_ip = IpAddr::from(cluster_ip);
        let service = Service::new(name, [cluster_ip]).port(Protocol::Tcp, 80, 8080);
        Self { service, cluster_ip }
    }

    /// Karmada dispatches these pods of another cluster.
    fn remote(self, pods: &[u8]) -> Self {
        self.endpoints("m1", pods)
    }

    /// These pods are of the own cluster.
    fn local(self, pods: &[u8]) -> Self {
        self.endpoints("own", pods)
    }

    fn endpoints(self, cluster: &str, pods: &[u8]) -> Self {
        let ips = pods.iter().map(|pod| pod_address(*pod));
        Self { service: self.service.endpoints(cluster, ips), ..self }
    }

    /// The Service.
    fn object(&self) -> Value {
        let mut object = self.service.import();
        object["apiVersion"] = "v1".into();
        object["kind"] = "Service".into();
        object["metadata"]["labels"] = json!({ "karmada.io/managed": "true" });
        object["metadata"]["annotations"] =
            json!({ "work.karmada.io/namespace": "karmada-es-own" });
        let ports = object["spec"]["ports"].take();
        object["spec"] =
            json!({ "type": "ClusterIP", "clusterIP": self.cluster_ip, "ports": ports });
        object
    }

    /// The slices of one cluster.
    fn slices(&self, cluster: &str) -> Vec<Value> {
        let manager = if cluster == "own" { LOCAL } else { DISPATCHER };
        let of_cluster = |slice: &Value| {
            slice["metadata"]["labels"]["multicluster.kubernetes.io/source-cluster"] == cluster
        };
        let slices = self.service.slices().into_iter().filter(of_cluster);
        slices.map(|slice| of_service(slice, self.service.name(), manager, cluster)).collect()
    }
}

/// The definition of GKE's ServiceImports. It validates nothing.
fn gke_definition() -> Value {
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let names = json!({
        "kind": "ServiceImport", "listKind": "ServiceImportList",
        "plural": "serviceimports", "singular": "serviceimport",
    });
    let version = json!({
        "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": open },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "serviceimports.net.gke.io" },
        "spec": {
            "group": "net.gke.io", "names": names, "scope": "Namespaced", "versions": [version],
        },
    })
}

/// The import as GKE writes it. Its Service has another name.
fn gke_import(service: &Service) -> Value {
    let mut import = service.import();
    import["apiVersion"] = "net.gke.io/v1".into();
    import["metadata"]["annotations"] = json!({ "net.gke.io/derived-service": derived(service) });
    import
}

/// Slices as Kubernetes mirrors them from the Endpoints of the Service `name`.
fn mirrored(service: &Service, name: &str) -> Vec<Value> {
    let slices = service.slices().into_iter();
    slices.map(|slice| of_service(slice, name, MIRRORING, "")).collect()
}

fn derived(service: &Service) -> String {
    format!("gke-mcs-{}", service.name())
}

/// The slice as one of a Service that this manager keeps, without the labels of KEP-1645.
fn of_service(mut slice: Value, service: &str, manager: &str, cluster: &str) -> Value {
    slice["metadata"]["labels"] = json!({
        "kubernetes.io/service-name": service,
        "endpointslice.kubernetes.io/managed-by": manager,
    });
    if manager == DISPATCHER {
        slice["metadata"]["annotations"] =
            json!({ "endpointslice.karmada.io/provision-cluster": cluster });
    }
    slice
}
