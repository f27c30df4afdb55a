//! What people with rights in one namespace can do, and what the admission policy keeps them from.

use anyhow::{Context as _, bail, ensure};
use mcs_tests::{api_server::Api, suite::Suite, wait};
use serde_json::{Value, json};

use crate::{
    controller::NAMESPACE,
    objects::{self, namespaced},
    world::{World, slice_of},
};

/// What the policy says.
const FORBIDDEN: &str = "only the multi-cluster controller writes";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a tenant exports its services", a_tenant_exports);
    suite.case("a tenant writes no imports and no slices of imported services", writes_nothing);
    suite.case("a tenant gives no Service the labels of imported ones", labels_no_service);
    suite.case("a tenant writes other slices", writes_other_slices);
    suite.case("the garbage collector ends a foreground deletion", foreground_deletion);
    suite.case("stored versions of imports are migrated", migration);
    suite.case("another controller writes its own imports and slices", another_controller);
    suite.case("the controller writes no slices but its own", only_its_own);
    suite.case("a tenant reads no peers and no mailbox", reads_no_peers);
}

fn a_tenant_exports(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let tenant = world.first().tenant(&namespace)?;
    wait::until("the rights of a developer", || tenant.would_apply(&objects::export(&namespace)))?;
    let path = format!("/apis/multicluster.x-k8s.io/v1beta1/namespaces/{namespace}/serviceimports");
    tenant.get(&path)?;
    Ok(())
}

fn writes_nothing(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let cluster = world.first();
    let tenant = cluster.tenant(&namespace)?;
    let mut import = objects::import(&namespace);
    import["metadata"]["name"] = json!("stolen");
    import["spec"] = json!({ "type": "ClusterSetIP", "ips": ["241.0.0.1"], "ports": [] });
    let mut slice = plain_slice(&namespace);
    slice["metadata"]["labels"]["multicluster.kubernetes.io/service-name"] = json!("hello");
    let mut of_source = plain_slice(&namespace);
    of_source["metadata"]["labels"]["multicluster.kubernetes.io/source-cluster"] = json!("c2");
    for object in [&import, &slice, &of_source] {
        refused(&tenant, object, Api::apply)?;
        cluster.api().apply(object)?;
        let mut changed = object.clone();
        changed["metadata"]["labels"]["changed"] = json!("yes");
        refused(&tenant, &changed, Api::apply)?;
        refused(&tenant, object, Api::delete)?;
    }
    // Neither takes a label away what it protects.
    refused(&tenant, &plain_slice(&namespace), Api::replace)?;
    let mut status = objects::import(&namespace);
    status["metadata"]["name"] = json!("stolen");
    status["status"] = json!({ "clusters": [{ "cluster": "c2" }] });
    refused(&tenant, &status, Api::apply_status)?;
    cluster.api().delete(&import)
}

/// Kubernetes copies the labels of a Service, and of Endpoints, to EndpointSlices.
fn labels_no_service(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let cluster = world.first();
    let tenant = cluster.tenant(&namespace)?;
    let other = cluster.another_controller(&namespace)?;
    let mut endpoints = namespaced("v1", "Endpoints", &namespace, "hello");
    endpoints["subsets"] = json!([]);
    for plain in [objects::service(&namespace), endpoints] {
        wait::until("the rights of the role", || tenant.apply(&plain))?;
        for label in ["service-name", "source-cluster"] {
            let mut labelled = plain.clone();
            labelled["metadata"]["labels"] =
                json!({ format!("multicluster.kubernetes.io/{label}"): "hello" });
            refused(&tenant, &labelled, Api::apply)?;
            wait::until("the rights of a controller", || other.apply(&labelled))?;
            labelled["metadata"]["annotations"] = json!({ "changed": "yes" });
            refused(&tenant, &labelled, Api::apply)?;
            // The labels can be taken away.
            tenant.apply(&plain)?;
        }
    }
    Ok(())
}

fn writes_other_slices(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let tenant = world.first().tenant(&namespace)?;
    let slice = plain_slice(&namespace);
    wait::until("the rights of the role", || tenant.apply(&slice))?;
    tenant.delete(&slice)
}

/// A migration of stored versions writes each object as it is.
fn migration(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let cluster = world.first();
    let tenant = cluster.tenant(&namespace)?;
    cluster.export(&objects::service(&namespace), Some(&slice_of(&namespace, 0, 1)))?;
    let slices = cluster.wait_for_addresses(&namespace, &["10.77.9.17"])?;
    cluster.wait_for_import(&namespace, |_| Ok(()))?;
    let name = slices[0]["metadata"]["name"].as_str().context("a name")?;
    let ours = namespaced("discovery.k8s.io/v1", "EndpointSlice", &namespace, name);
    for object in [&objects::import(&namespace), &ours] {
        let as_it_is = |tenant: &Api| tenant.replace(&cluster.api().read(object)?);
        wait::until("an update that changes nothing", || as_it_is(&tenant))?;
        for (field, value) in [("labels", json!({})), ("annotations", json!({ "a": "b" }))] {
            refused(&tenant, object, |tenant, object| {
                let mut changed = cluster.api().read(object)?;
                changed["metadata"][field] = value.clone();
                tenant.replace(&changed)
            })?;
        }
        let part = if object["kind"] == "EndpointSlice" { "endpoints" } else { "spec" };
        refused(&tenant, object, |tenant, object| {
            let mut changed = cluster.api().read(object)?;
            match changed[part].as_array_mut() {
                Some(endpoints) => endpoints.clear(),
                None => changed["spec"]["ips"] = json!([]),
            }
            tenant.replace(&changed)
        })?;
    }
    cluster.unexport(&namespace)
}

/// The user of the controller manager's garbage collector, which no case runs.
const GARBAGE_COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

fn foreground_deletion(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let cluster = world.first();
    let collector = cluster.server.as_user(GARBAGE_COLLECTOR)?;
    for object in [foreign_import(&namespace), foreign_slice(&namespace)] {
        cluster.api().apply(&object)?;
        cluster.api().delete_in_foreground(&object)?;
        // The controller writes a condition on the import meanwhile.
        wait::until("the collector's rights", || {
            let mut waiting = cluster.api().read(&object)?;
            ensure!(waiting["metadata"]["finalizers"][0] == "foregroundDeletion", "{waiting}");
            waiting["metadata"]["finalizers"] = json!([]);
            collector.replace(&waiting)
        })?;
        wait::until("an end of the deletion", || match cluster.api().read(&object) {
            Ok(there) => bail!("it is there: {there}"),
            Err(_) => Ok(()),
        })?;
    }
    Ok(())
}

/// A ServiceImport that does not name its controller, as some controllers write it.
fn foreign_import(namespace: &str) -> Value {
    let mut import = objects::import(namespace);
    import["metadata"]["name"] = json!("foreign");
    import["spec"] = json!({ "type": "ClusterSetIP", "ips": ["241.0.0.2"], "ports": [] });
    import
}

/// An imported slice of another controller.
fn foreign_slice(namespace: &str) -> Value {
    let mut slice = plain_slice(namespace);
    slice["metadata"]["name"] = json!("foreign");
    slice["metadata"]["labels"] = json!({
        "multicluster.kubernetes.io/service-name": "foreign",
        "multicluster.kubernetes.io/source-cluster": "c9",
        "endpointslice.kubernetes.io/managed-by": "another-controller",
    });
    slice
}

fn another_controller(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let cluster = world.first();
    let tenant = cluster.tenant(&namespace)?;
    let other = cluster.another_controller(&namespace)?;
    for object in [foreign_import(&namespace), foreign_slice(&namespace)] {
        refused(&tenant, &object, Api::apply)?;
        wait::until("the rights of a controller", || other.apply(&object))?;
        let mut changed = object.clone();
        changed["metadata"]["labels"]["changed"] = json!("yes");
        other.apply(&changed)?;
        refused(&tenant, &object, Api::apply)?;
        refused(&tenant, &object, Api::delete)?;
        let mut stolen = object.clone();
        for label in ["endpointslice.kubernetes.io/managed-by", "app.kubernetes.io/managed-by"] {
            stolen["metadata"]["labels"][label] = json!("mcs-controller");
        }
        refused(&other, &stolen, Api::apply)?;
        other.delete(&object)?;
    }
    cluster.export(&objects::service(&namespace), Some(&slice_of(&namespace, 0, 1)))?;
    let slices = cluster.wait_for_addresses(&namespace, &["10.77.9.17"])?;
    cluster.wait_for_import(&namespace, |_| Ok(()))?;
    let slice = slices.first().context("a slice")?;
    let name = slice["metadata"]["name"].as_str().context("a name")?;
    let ours = namespaced("discovery.k8s.io/v1", "EndpointSlice", &namespace, name);
    for object in [&objects::import(&namespace), &ours] {
        // The controller may write it between two requests.
        refused(&other, object, |other, object| {
            let mut changed = cluster.api().read(object)?;
            changed["metadata"]["labels"] = foreign_slice(&namespace)["metadata"]["labels"].clone();
            other.replace(&changed)
        })?;
        refused(&other, object, Api::delete)?;
    }
    cluster.unexport(&namespace)
}

/// Whoever has the controller's token.
fn only_its_own(world: &mut World) -> anyhow::Result<()> {
    const LABEL: &str = "endpointslice.kubernetes.io/managed-by";
    let namespace = world.fresh()?;
    let cluster = world.first();
    let controller = cluster.account(NAMESPACE, "mcs-controller")?;
    let refused = |object: &Value, request: fn(&Api, &Value) -> anyhow::Result<()>| {
        wait::until("a refusal by the policy", || match request(&controller, object) {
            Err(error) if format!("{error:#}").contains("the multi-cluster controller") => Ok(()),
            Err(error) => Err(error),
            Ok(()) => bail!("the controller may: {object}"),
        })
    };
    let plain = plain_slice(&namespace);
    refused(&plain, Api::apply)?;
    cluster.api().apply(&plain)?;
    let mut taken = plain.clone();
    taken["metadata"]["labels"] = json!({ LABEL: "mcs-controller" });
    refused(&taken, Api::replace)?;
    refused(&plain, Api::delete)?;
    cluster.api().delete(&plain)?;
    // An endpoint of cluster DNS would be one.
    let mut joined = plain.clone();
    joined["metadata"]["labels"][LABEL] = json!("mcs-controller");
    refused(&joined, Api::apply)?;
    controller.apply(&taken)?;
    let mut left = taken.clone();
    left["metadata"]["labels"] = json!({});
    refused(&left, Api::replace)?;
    controller.delete(&taken)
}

fn reads_no_peers(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let tenant = world.first().tenant(&namespace)?;
    for path in [
        "/apis/clusterset.mcs-agent.io/v1alpha1/clusterpeers",
        "/apis/clusterset.mcs-agent.io/v1alpha1/namespaces/mcs-mailbox/exportedservices",
        "/api/v1/namespaces/mcs-controller/secrets",
    ] {
        let answer = tenant.get(path).err().with_context(|| format!("a tenant reads {path}"))?;
        ensure!(format!("{answer:#}").contains("forbidden"), "{answer:#}");
    }
    Ok(())
}

fn plain_slice(namespace: &str) -> Value {
    let mut slice = namespaced("discovery.k8s.io/v1", "EndpointSlice", namespace, "stolen");
    slice["metadata"]["labels"] = json!({ "kubernetes.io/service-name": "own" });
    slice["addressType"] = json!("IPv4");
    slice["endpoints"] = json!([{ "addresses": ["10.1.2.3"] }]);
    slice["ports"] = json!([]);
    slice
}

/// Waits until the policy refuses a request: the rights of a new role come first, and the policy is
/// in force a moment after it was made.
fn refused(
    tenant: &Api,
    object: &Value,
    request: impl Fn(&Api, &Value) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    wait::until("a refusal by the policy", || match request(tenant, object) {
        Err(error) if format!("{error:#}").contains(FORBIDDEN) => Ok(()),
        Err(error) => Err(error),
        Ok(()) => bail!("the tenant may: {object}"),
    })
}
