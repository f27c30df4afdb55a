//! What people with rights in one namespace can do, and what the admission policy keeps them from.

use anyhow::{Context as _, bail, ensure};
use mcs_tests::{api_server::Api, suite::Suite, wait};
use serde_json::{Value, json};

use crate::{
    objects::{self, namespaced},
    world::World,
};

/// What the policy says.
const FORBIDDEN: &str = "only the multi-cluster controller writes";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a tenant exports its services", a_tenant_exports);
    suite.case("a tenant writes no imports and no slices of imported services", writes_nothing);
    suite.case("a tenant writes other slices", writes_other_slices);
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

fn writes_other_slices(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let tenant = world.first().tenant(&namespace)?;
    let slice = plain_slice(&namespace);
    wait::until("the rights of the role", || tenant.apply(&slice))?;
    tenant.delete(&slice)
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
