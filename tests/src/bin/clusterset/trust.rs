//! What a peer can make of another cluster: only what the ClusterPeer there allows.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mcs_tests::{
    suite::{Suite, tell},
    wait,
};
use serde_json::{Value, json};

use crate::{
    cluster::conditions,
    controller::NAMESPACE,
    objects::{namespaced, service},
    peering,
    silence::{TOO_LONG, follows_again, imported_service, stays},
    world::{POD_RANGES, World, slice_of},
};

/// How soon both are gone that an operator forbids one after the other.
const AT_ONCE: Duration = Duration::from_secs(3);

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("endpoints outside the ranges of a peer", outside);
    suite.case("services outside the namespaces of a peer", other_namespaces);
    suite.case("an export for some clusters", audience);
    suite.case("a peer with addresses of this cluster's pods", overlapping);
    suite.case("what is forbidden goes while the peer is silent", silent);
    suite.case("a ClusterPeer that no controller can use is refused", refused);
    suite.case("a wrong edit counts for nothing, and says so", wrong_edits);
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
    let (namespace, _) = imported_service(world)?;
    world.clusters[1].controller.restart_with(&["--pod-cidr=10.77.9.0/24"])?;
    wait_for_conditions(world, &["CIDRsDisjoint=False/OverlapsOwn"])?;
    world.second().wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18"])?;
    world.clusters[1].controller.restart_with(&["--pod-cidr=10.77.9.18/32"])?;
    world.second().wait_for_addresses(&namespace, &["10.77.9.17"])?;
    let range = format!("--pod-cidr={}", POD_RANGES[1]);
    world.clusters[1].controller.restart_with(&[&range])?;
    wait_for_conditions(world, &["CIDRsDisjoint=True/Disjoint"])?;
    world.second().wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18"])?;
    world.clusters[1].controller.restart_with(&[])?;
    follows_again(world, &namespace)
}

/// Waits until the ClusterPeer of the first cluster has these conditions.
fn wait_for_conditions(world: &World, expected: &[&str]) -> anyhow::Result<()> {
    let path = "/apis/clusterset.mcs-agent.io/v1alpha1/clusterpeers/c1";
    wait::until(&expected.join(", "), || {
        let found = conditions(&world.second().api().get(path)?);
        ensure!(expected.iter().all(|one| found.iter().any(|two| one == two)), "{found:?}");
        Ok(())
    })
}

fn silent(world: &mut World) -> anyhow::Result<()> {
    let (narrowed, _) = imported_service(world)?;
    let (forbidden, before) = imported_service(world)?;
    let allowed = peering::peer(world.first(), POD_RANGES[0]);
    // The importer has never read what it has imported.
    world.clusters[1].controller.kill()?;
    world.clusters[0].server.kill()?;
    world.clusters[1].controller.start_again()?;
    stays(world, &forbidden, &before)?;
    let mut peer = peering::peer(world.first(), "10.77.9.18/32");
    let begin = Instant::now();
    world.second().api().apply(&peer)?;
    world.second().wait_for_addresses(&narrowed, &["10.77.9.18"])?;
    peer["spec"]["namespaces"] = json!({ "allow": [narrowed] });
    world.second().api().apply(&peer)?;
    world.second().wait_for_nothing(&forbidden)?;
    let took = begin.elapsed();
    tell(format!("{} ms until both were gone", took.as_millis()));
    ensure!(took <= wait::scaled(AT_ONCE), "it took {took:?}");
    world.second().wait_for_addresses(&narrowed, &["10.77.9.18"])?;
    world.second().api().apply(&allowed)?;
    world.clusters[0].server.start_again()?;
    world.second().wait_for_addresses(&forbidden, &["10.77.9.17", "10.77.9.18"])?;
    follows_again(world, &forbidden)?;
    follows_again(world, &narrowed)
}

fn refused(world: &mut World) -> anyhow::Result<()> {
    let (api, good) = (world.second().api(), peering::peer(world.first(), POD_RANGES[0]));
    let with = |field: &str, value: &Value| {
        let mut peer = good.clone();
        peer["spec"][field] = value.clone();
        api.would_apply(&peer)
    };
    for range in [
        "10.2.0.0/33",
        "10.2.0/16",
        "10.2.0.256/16",
        "010.2.0.0/16",
        "10.2.0.0",
        "0.0.0.0/0",
        "fd00::/129",
        "fd00:::/8",
        "fd00::1::/64",
        "::/0",
        "1:2:3:4:5:6:7:8:9/64",
        "east",
    ] {
        ensure!(with("podCIDRs", &json!([POD_RANGES[0], range])).is_err(), "{range} is taken");
    }
    for range in ["10.2.0.0/16", "0.0.0.0/1", "fd02::/48", "::/1", "1:2:3:4:5:6:7:8/128"] {
        with("podCIDRs", &json!([range])).with_context(|| range.to_owned())?;
    }
    for pattern in ["Shop", "*-shop", "sh*p", "shop/web", ""] {
        for field in ["allow", "deny"] {
            let rules = json!({ field: [pattern] });
            ensure!(with("namespaces", &rules).is_err(), "{rules} is taken");
        }
    }
    for pattern in ["shop", "shop-*", "*"] {
        with("namespaces", &json!({ "allow": [pattern] })).with_context(|| pattern.to_owned())?;
    }
    let error = with("podCIDRs", &json!(["10.2.0.0/33"])).err().context("it is taken")?;
    ensure!(format!("{error:#}").contains("spec.podCIDRs[0]"), "{error:#}");
    Ok(())
}

fn wrong_edits(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    let good = peering::peer(world.first(), POD_RANGES[0]);
    let credentials = world.first().credentials_for(world.second().id)?;
    let pods = |world: &World, count: u8| {
        let addresses = ["10.77.9.17", "10.77.9.18", "10.77.9.19"];
        world.first().api().apply(&slice_of(&namespace, 0, count))?;
        world.second().wait_for_addresses(&namespace, &addresses[..usize::from(count)])
    };
    let mut wrong = peering::peer(world.first(), "10.77.9.17/32");
    wrong["spec"]["staleAfter"] = json!(TOO_LONG);
    world.second().api().apply(&wrong)?;
    wait_for_conditions(world, &["Accepted=False/InvalidSpec", "Connected=True/Connected"])?;
    pods(world, 3)?;
    world.second().api().apply(&good)?;
    wait_for_conditions(world, &["Accepted=True/Accepted"])?;
    let mut config: Value = serde_json::from_str(&credentials)?;
    config["users"][0]["user"] = json!({ "exec": { "command": "aws" } });
    peering::store_credentials(world.second(), "peer-c1", &config.to_string())?;
    let expected = ["Accepted=False/InvalidKubeconfig", "Connected=True/Connected"];
    wait_for_conditions(world, &expected)?;
    pods(world, 2)?;
    world.second().api().delete(&namespaced("v1", "Secret", NAMESPACE, "peer-c1"))?;
    let expected = ["Accepted=False/NoSecret", "Connected=False/NoCredentials"];
    wait_for_conditions(world, &expected)?;
    world.first().api().apply(&slice_of(&namespace, 0, 1))?;
    stays(world, &namespace, &before)?;
    world.second().wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18"])?;
    peering::store_credentials(world.second(), "peer-c1", &credentials)?;
    wait_for_conditions(world, &["Accepted=True/Accepted", "Connected=True/Connected"])?;
    follows_again(world, &namespace)
}
