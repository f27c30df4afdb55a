//! What a peer can make of another cluster: only what the ClusterPeer there allows.

use anyhow::ensure;
use mcs_tests::{suite::Suite, wait};
use serde_json::json;

use crate::{
    cluster::conditions,
    objects::service,
    peering,
    silence::{follows_again, imported_service},
    world::{POD_RANGES, World, slice_of},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("endpoints outside the ranges of a peer", outside);
    suite.case("services outside the namespaces of a peer", other_namespaces);
    suite.case("an export for some clusters", audience);
    suite.case("a peer with addresses of this cluster's pods", overlapping);
}

fn outside(world: &mut World) -> anyhow::Result<()> {
    let (namespace, _) = imported_service(world)?;
    let mut slice = slice_of(&namespace, 0, 1);
    slice["endpoints"] = ["10.77.9.17", "10.77.9.33", "169.254.169.254", "10.96.0.1"]
        .into_iter()
        .map(|address| json!({ "addresses": [address] }))
        .collect();
    // Kubernetes itself accepts no link-local address.
    let accepted = world.first().api().apply(&slice);
    if accepted.is_err() {
        slice["endpoints"].as_array_mut().map(|endpoints| endpoints.remove(2));
        world.first().api().apply(&slice)?;
    }
    world.second().wait_for_addresses(&namespace, &["10.77.9.17"])?;
    follows_again(world, &namespace)
}

fn other_namespaces(world: &mut World) -> anyhow::Result<()> {
    let forbidden = world.fresh()?;
    let allowed = peering::peer(world.first(), POD_RANGES[0]);
    let mut peer = allowed.clone();
    peer["spec"]["namespaces"] = json!({ "allow": ["case-*"], "deny": [forbidden] });
    world.second().api().apply(&peer)?;
    world.first().export(&service(&forbidden), Some(&slice_of(&forbidden, 0, 1)))?;
    // What was exported later is there.
    let (namespace, _) = imported_service(world)?;
    ensure!(world.second().import(&forbidden)?.is_none(), "there is an import");
    ensure!(world.second().imported_slices(&forbidden)?.is_empty(), "there are slices");
    world.second().api().apply(&allowed)?;
    world.second().wait_for_addresses(&forbidden, &["10.77.9.17"])?;
    world.second().api().apply(&peer)?;
    world.second().wait_for_nothing(&forbidden)?;
    world.second().api().apply(&allowed)?;
    follows_again(world, &forbidden)?;
    follows_again(world, &namespace)
}

fn audience(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let export = |clusters: &str| {
        let mut export = crate::objects::export(&namespace);
        export["metadata"]["annotations"] = json!({ "clusterset.mcs-agent.io/audience": clusters });
        export
    };
    let first = world.first();
    first.api().apply(&export("c1"))?;
    first.api().apply(&service(&namespace))?;
    first.api().apply(&slice_of(&namespace, 0, 1))?;
    first.wait_for_addresses(&namespace, &["10.77.9.17"])?;
    let (other, _) = imported_service(world)?;
    ensure!(world.second().import(&namespace)?.is_none(), "there is an import");
    first.api().apply(&export("c1,c2"))?;
    world.second().wait_for_addresses(&namespace, &["10.77.9.17"])?;
    first.api().apply(&export("c1"))?;
    world.second().wait_for_nothing(&namespace)?;
    first.unexport(&namespace)?;
    first.wait_for_nothing(&namespace)?;
    follows_again(world, &other)
}

fn overlapping(world: &mut World) -> anyhow::Result<()> {
    let path = "/apis/clusterset.mcs-agent.io/v1alpha1/clusterpeers/c1";
    let disjoint = |world: &World, expected: &str| {
        wait::until(&format!("CIDRsDisjoint={expected}"), || {
            let found = conditions(&world.second().api().get(path)?);
            let expected = format!("CIDRsDisjoint={expected}");
            ensure!(found.contains(&expected), "{found:?}");
            Ok(())
        })
    };
    world.clusters[1].controller.restart_with(&["--pod-cidr=10.77.9.0/24"])?;
    disjoint(world, "False/OverlapsOwn")?;
    let range = format!("--pod-cidr={}", POD_RANGES[1]);
    world.clusters[1].controller.restart_with(&[&range])?;
    disjoint(world, "True/Disjoint")?;
    world.clusters[1].controller.restart_with(&[])
}
