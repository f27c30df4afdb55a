//! The specs of the public conformance suite (mcs-api v0.5) that take no pods and no DNS, each by its name there.

use std::{thread::sleep, time::Duration};

use anyhow::{Context as _, ensure};
use mcs_tests::suite::Suite;
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, conditions},
    objects::{self, export, headless, service},
    world::{World, slice_of},
};

/// Longer than the resolution of `creationTimestamp`.
const ANOTHER_SECOND: Duration = Duration::from_millis(1_100);
/// What the two clusters have when they agree.
const EXPORTED: [&str; 3] =
    ["Valid=True/Valid", "Ready=True/Exported", "Conflict=False/NoConflicts"];

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a ServiceImport should only exist as long as there is an exporting cluster", lives);
    suite.case("a ServiceImport should publish whether EndpointSlice objects are present", present);
    suite.case("conflicting headlessness", headlessness);
    suite.case("union of the constituent service ports", union_of_ports);
    suite.case("conflicting ports", conflicting_ports);
    suite.case("an IP should be allocated for each IP family", an_ip_for_each_family);
    suite.case("exporting a ClusterIP service, and unexporting", export_and_unexport);
    suite.case("the InternalTrafficPolicy should match", internal_traffic_policy);
    suite.case("the SessionAffinity should match", session_affinity);
    suite.case("the TrafficDistribution should match", traffic_distribution);
    suite.case("the ports should match", ports);
    suite.case("exporting an ExternalName service", external_name);
    suite.case("exporting a headless service, and unexporting", headless_service);
    suite.case("no IP for a headless ServiceImport", no_ip_for_headless);
    suite.case("an MCS EndpointSlice with the required labels", slices_have_labels);
    suite.case("conflicting annotations and labels", conflicting_labels);
    suite.case("only exported labels and annotations", exported_labels);
}

/// Exports a service in both clusters, the first one's first. `change` makes the second one different.
fn export_both(
    world: &World,
    namespace: &str,
    change: impl FnOnce(&mut Value),
) -> anyhow::Result<()> {
    world.first().export(&service(namespace), Some(&slice_of(namespace, 0, 1)))?;
    world.second().wait_for_import(namespace, |_| Ok(()))?;
    sleep(ANOTHER_SECOND);
    let mut other = service(namespace);
    change(&mut other);
    world.second().export(&other, Some(&slice_of(namespace, 1, 1)))
}

/// Waits until every cluster has an import that `check` is content with.
fn everywhere(
    world: &World,
    namespace: &str,
    check: impl Fn(&Value) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    world
        .clusters
        .iter()
        .try_for_each(|cluster| cluster.wait_for_import(namespace, &check).map(drop))
}

/// Waits until both exports have a conflict for this reason.
fn conflict(world: &World, namespace: &str, reason: &str) -> anyhow::Result<()> {
    let expected = format!("Conflict=True/{reason}");
    [world.first(), world.second()]
        .into_iter()
        .try_for_each(|cluster| cluster.wait_for_conditions(namespace, &[&expected]))
}

fn gone(world: &World, namespace: &str) -> anyhow::Result<()> {
    world.clusters.iter().try_for_each(|cluster| cluster.wait_for_nothing(namespace))
}

fn has(value: &Value, expected: &Value) -> anyhow::Result<()> {
    ensure!(value == expected, "it is {value}, not {expected}");
    Ok(())
}

fn clusters_are(import: &Value, expected: &[&str]) -> anyhow::Result<()> {
    let clusters = import["status"]["clusters"].as_array().into_iter().flatten();
    let found: Vec<_> = clusters.filter_map(|one| one["cluster"].as_str()).collect();
    ensure!(found == expected, "clusters {found:?}");
    Ok(())
}

fn lives(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    export_both(world, &namespace, |_| {})?;
    everywhere(world, &namespace, |import| clusters_are(import, &["c1", "c2"]))?;
    for cluster in &world.clusters[..2] {
        cluster.wait_for_conditions(&namespace, &EXPORTED)?;
    }
    let vips = world.first().import(&namespace)?.context("an import")?["spec"]["ips"].clone();
    world.first().unexport(&namespace)?;
    everywhere(world, &namespace, |import| {
        clusters_are(import, &["c2"])?;
        has(&import["spec"]["ips"], &vips)
    })?;
    world.second().unexport(&namespace)?;
    gone(world, &namespace)
}

fn present(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    world.first().export(&service(&namespace), Some(&slice_of(&namespace, 0, 2)))?;
    everywhere(world, &namespace, |import| {
        has(&import["status"]["endpointSliceObjects"], &json!("Present"))?;
        let found = conditions(import);
        ensure!(found.iter().any(|one| one == "Ready=True/Ready"), "{found:?}");
        Ok(())
    })?;
    let addresses = ["10.77.9.17", "10.77.9.18"];
    for cluster in &world.clusters {
        // Nothing says that slices are there before they are.
        let slices = cluster.imported_slices(&namespace)?;
        let found: Vec<_> = slices.iter().flat_map(crate::cluster::addresses).collect();
        ensure!(found == addresses, "{found:?} in {}", cluster.id);
    }
    world.first().unexport(&namespace)
}

fn headlessness(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    export_both(world, &namespace, |other| *other = headless(&namespace))?;
    conflict(world, &namespace, "TypeConflict,SessionAffinityConflict")?;
    everywhere(world, &namespace, |import| has(&import["spec"]["type"], &json!("ClusterSetIP")))
}

fn union_of_ports(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    export_both(world, &namespace, |other| {
        other["spec"]["ports"] = json!([
            { "name": "tcp", "port": 42, "protocol": "TCP" },
            { "name": "stcp", "port": 142, "protocol": "SCTP" },
        ]);
    })?;
    everywhere(world, &namespace, |import| {
        has(
            &import["spec"]["ports"],
            &json!([
                { "name": "tcp", "port": 42, "protocol": "TCP" },
                { "name": "udp", "port": 42, "protocol": "UDP" },
                { "name": "stcp", "port": 142, "protocol": "SCTP" },
            ]),
        )
    })?;
    conflict(world, &namespace, "PortConflict")
}

fn conflicting_ports(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    export_both(world, &namespace, |other| other["spec"]["ports"][0]["port"] = json!(43))?;
    conflict(world, &namespace, "PortConflict")?;
    everywhere(world, &namespace, |import| {
        has(
            &import["spec"]["ports"],
            &json!([
                { "name": "tcp", "port": 42, "protocol": "TCP" },
                { "name": "udp", "port": 42, "protocol": "UDP" },
            ]),
        )
    })?;
    // Clients of port 42 must not reach what the second cluster has at 43.
    for cluster in &world.clusters {
        let slices = cluster.imported_slices(&namespace)?;
        let of_second = slices.iter().find(|slice| source(slice) == "c2").context("a slice")?;
        let ports = of_second["ports"].as_array().into_iter().flatten();
        let names: Vec<_> = ports.map(|port| port["name"].clone()).collect();
        ensure!(names == ["udp"], "ports {names:?}");
    }
    Ok(())
}

fn source(slice: &Value) -> &str {
    slice["metadata"]["labels"]["multicluster.kubernetes.io/source-cluster"].as_str().unwrap_or("")
}

fn an_ip_for_each_family(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    world.first().export(&service(&namespace), None)?;
    let vips = |cluster: &Cluster| {
        cluster.wait_for_import(&namespace, |import| {
            has(&import["spec"]["ipFamilies"], &json!(["IPv4", "IPv6"]))?;
            let ips = import["spec"]["ips"].as_array().context("no ips")?;
            let is_v6: Vec<_> =
                ips.iter().map(|ip| ip.as_str().is_some_and(|ip| ip.contains(':'))).collect();
            ensure!(is_v6 == [false, true], "{ips:?}");
            Ok(())
        })
    };
    let (first, second) = (vips(world.first())?, vips(world.second())?);
    ensure!(first["spec"]["ips"] == second["spec"]["ips"], "the clusters have other addresses");
    Ok(())
}

fn export_and_unexport(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    world.first().export(&service(&namespace), Some(&slice_of(&namespace, 0, 1)))?;
    everywhere(world, &namespace, |import| has(&import["spec"]["type"], &json!("ClusterSetIP")))?;
    world.first().wait_for_conditions(&namespace, &EXPORTED)?;
    world.first().unexport(&namespace)?;
    gone(world, &namespace)
}

/// Exports a service in one cluster and waits for a field of its imports.
fn matches(
    world: &World,
    change: impl FnOnce(&mut Value),
    check: impl Fn(&Value) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let mut service = service(&namespace);
    change(&mut service);
    world.first().export(&service, None)?;
    everywhere(world, &namespace, |import| check(&import["spec"]))
}

fn internal_traffic_policy(world: &mut World) -> anyhow::Result<()> {
    for policy in ["Local", "Cluster"] {
        matches(
            world,
            |service| service["spec"]["internalTrafficPolicy"] = json!(policy),
            |spec| has(&spec["internalTrafficPolicy"], &json!(policy)),
        )?;
    }
    Ok(())
}

fn session_affinity(world: &mut World) -> anyhow::Result<()> {
    matches(
        world,
        |_| {},
        |spec| {
            has(&spec["sessionAffinity"], &json!("ClientIP"))?;
            has(&spec["sessionAffinityConfig"], &json!({ "clientIP": { "timeoutSeconds": 10 } }))
        },
    )
}

fn traffic_distribution(world: &mut World) -> anyhow::Result<()> {
    matches(
        world,
        |service| service["spec"]["trafficDistribution"] = json!("PreferClose"),
        |spec| has(&spec["trafficDistribution"], &json!("PreferClose")),
    )
}

fn ports(world: &mut World) -> anyhow::Result<()> {
    matches(
        world,
        |_| {},
        |spec| {
            has(
                &spec["ports"],
                &json!([
                    { "name": "tcp", "port": 42, "protocol": "TCP" },
                    { "name": "udp", "port": 42, "protocol": "UDP" },
                ]),
            )
        },
    )
}

fn external_name(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let mut service = objects::namespaced("v1", "Service", &namespace, objects::NAME);
    service["spec"] = json!({ "type": "ExternalName", "externalName": "example.com" });
    world.first().export(&service, None)?;
    let expected = ["Valid=False/InvalidServiceType", "Ready=False/Pending"];
    world.first().wait_for_conditions(&namespace, &expected)?;
    world.first().api().delete(&service)?;
    world.first().wait_for_conditions(&namespace, &["Valid=False/NoService"])?;
    for cluster in &world.clusters {
        ensure!(cluster.import(&namespace)?.is_none(), "an import in {}", cluster.id);
    }
    Ok(())
}

fn headless_service(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    world.first().export(&headless(&namespace), Some(&slice_of(&namespace, 0, 2)))?;
    everywhere(world, &namespace, |import| has(&import["spec"]["type"], &json!("Headless")))?;
    let slices = world.second().wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18"])?;
    has(&slices[0]["endpoints"][1]["hostname"], &json!("hello-1"))?;
    world.first().unexport(&namespace)?;
    gone(world, &namespace)
}

fn no_ip_for_headless(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    world.first().export(&headless(&namespace), None)?;
    everywhere(world, &namespace, |import| {
        has(&import["status"]["endpointSliceObjects"], &json!("Present"))?;
        ensure!(import["spec"]["ips"].as_array().is_none_or(Vec::is_empty), "it has addresses");
        Ok(())
    })
}

fn slices_have_labels(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    world.first().export(&service(&namespace), Some(&slice_of(&namespace, 0, 1)))?;
    for cluster in &world.clusters {
        let slices = cluster.wait_for_addresses(&namespace, &["10.77.9.17"])?;
        let labels = &slices[0]["metadata"]["labels"];
        has(&labels["multicluster.kubernetes.io/service-name"], &json!(objects::NAME))?;
        has(&labels["multicluster.kubernetes.io/source-cluster"], &json!("c1"))?;
        has(&labels["endpointslice.kubernetes.io/managed-by"], &json!("mcs-controller"))?;
        // kube-proxy of every node keeps slices without it in memory.
        ensure!(labels.get("service.kubernetes.io/headless").is_some(), "{labels}");
        ensure!(labels.get("kubernetes.io/service-name").is_none(), "{labels}");
        let endpoint = &slices[0]["endpoints"][0];
        has(&endpoint["zone"], &json!("zone-1"))?;
        ensure!(endpoint.get("targetRef").is_none(), "{endpoint}");
        let is_own = cluster.id == "c1";
        ensure!(endpoint.get("nodeName").is_some() == is_own, "{endpoint} in {}", cluster.id);
    }
    world.first().unexport(&namespace)?;
    gone(world, &namespace)
}

fn labelled(namespace: &str, key: &str) -> Value {
    let mut export = export(namespace);
    export["spec"] = json!({
        "exportedLabels": { key: "label" }, "exportedAnnotations": { key: "annotation" },
    });
    export
}

fn conflicting_labels(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    world.first().api().apply(&service(&namespace))?;
    world.first().api().apply(&labelled(&namespace, "first"))?;
    world.second().wait_for_import(&namespace, |_| Ok(()))?;
    sleep(ANOTHER_SECOND);
    world.second().api().apply(&service(&namespace))?;
    world.second().api().apply(&labelled(&namespace, "second"))?;
    conflict(world, &namespace, "LabelsConflict,AnnotationsConflict")?;
    everywhere(world, &namespace, |import| {
        let metadata = &import["metadata"];
        has(&metadata["labels"]["first"], &json!("label"))?;
        has(&metadata["annotations"]["first"], &json!("annotation"))?;
        has(&metadata["labels"]["second"], &Value::Null)
    })
}

fn exported_labels(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let mut service = service(&namespace);
    service["metadata"]["labels"] = json!({ "of-service": "x" });
    service["metadata"]["annotations"] = json!({ "of-service": "x" });
    let mut export = labelled(&namespace, "exported");
    export["metadata"]["labels"] = json!({ "of-export": "x" });
    world.first().api().apply(&service)?;
    world.first().api().apply(&export)?;
    everywhere(world, &namespace, |import| {
        let metadata = &import["metadata"];
        has(&metadata["labels"]["exported"], &json!("label"))?;
        has(&metadata["annotations"]["exported"], &json!("annotation"))?;
        for other in ["of-service", "of-export"] {
            has(&metadata["labels"][other], &Value::Null)?;
            has(&metadata["annotations"][other], &Value::Null)?;
        }
        Ok(())
    })
}
