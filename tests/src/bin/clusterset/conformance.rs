//! Imports and conditions that the types have to take as the controller writes them. The specs of the public conformance suite
//! (mcs-api v0.5) that take no pods and no DNS are stories of `tests/clustersets`.

use anyhow::ensure;
use mcs_tests::suite::Suite;
use serde_json::{Value, json};

use crate::{
    cluster::{addresses, conditions},
    objects::{export, headless, service},
    world::{World, slice_of},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case(
        "an import keeps all fields, and says that its slices are there once they are",
        whole,
    );
    suite.case("an export takes all conflicts in one condition", conflicts);
}

fn whole(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let mut service = service(&namespace);
    service["spec"]["internalTrafficPolicy"] = json!("Local");
    service["spec"]["trafficDistribution"] = json!("PreferClose");
    world.first().export(&service, Some(&slice_of(&namespace, 0, 2)))?;
    world.first().api().apply(&labelled(&namespace, "exported"))?;
    let mut all_vips = vec![];
    for cluster in &world.clusters {
        let import = cluster.wait_for_import(&namespace, |import| {
            ensure!(import["status"]["endpointSliceObjects"] == "Present", "no slices yet");
            ensure!(conditions(import).iter().any(|one| one == "Ready=True/Ready"), "not ready");
            ensure!(import["metadata"]["labels"]["exported"] == "label", "no label yet");
            Ok(())
        })?;
        // Nothing says that slices are there before they are.
        let slices = cluster.imported_slices(&namespace)?;
        let found: Vec<_> = slices.iter().flat_map(addresses).collect();
        ensure!(found == ["10.77.9.17", "10.77.9.18"], "{found:?} in {}", cluster.id);
        ensure!(slices[0]["endpoints"][0].get("targetRef").is_none(), "{}", slices[0]);
        let mut spec = import["spec"].clone();
        all_vips.push(spec["ips"].take());
        let expected = json!({
            "type": "ClusterSetIP",
            "ips": null,
            "ipFamilies": ["IPv4", "IPv6"],
            "ports": [
                { "name": "tcp", "port": 42, "protocol": "TCP" },
                { "name": "udp", "port": 42, "protocol": "UDP" },
            ],
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 10 } },
            "internalTrafficPolicy": "Local",
            "trafficDistribution": "PreferClose",
        });
        ensure!(spec == expected, "it is {spec}, not {expected}");
        ensure!(import["metadata"]["annotations"]["exported"] == "annotation", "{import}");
    }
    let has_both = all_vips[0].as_array().is_some_and(|ips| ips.len() == 2);
    ensure!(has_both && all_vips.iter().all(|vips| *vips == all_vips[0]), "{all_vips:?}");
    let expected = ["Valid=True/Valid", "Ready=True/Exported", "Conflict=False/NoConflicts"];
    world.first().wait_for_conditions(&namespace, &expected)?;
    world.first().unexport(&namespace)?;
    world.clusters.iter().try_for_each(|cluster| cluster.wait_for_nothing(&namespace))
}

/// Both clusters export a service. Of two exports of one second, that of `c1` counts as the older one.
fn conflicts(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let mut other = headless(&namespace);
    other["spec"]["ports"][0]["port"] = json!(43);
    for (cluster, (service, key)) in
        world.clusters.iter().zip([(service(&namespace), "first"), (other, "second")])
    {
        cluster.api().apply(&service)?;
        cluster.api().apply(&labelled(&namespace, key))?;
        cluster.wait_for_import(&namespace, |_| Ok(()))?;
    }
    let reasons =
        "PortConflict,TypeConflict,SessionAffinityConflict,LabelsConflict,AnnotationsConflict";
    for cluster in &world.clusters[..2] {
        cluster.wait_for_conditions(&namespace, &[&format!("Conflict=True/{reasons}")])?;
        cluster.wait_for_import(&namespace, |import| {
            ensure!(import["spec"]["type"] == "ClusterSetIP", "it is {}", import["spec"]["type"]);
            ensure!(import["metadata"]["labels"]["first"] == "label", "another one's label");
            Ok(())
        })?;
    }
    world.clusters[..2].iter().try_for_each(|cluster| cluster.unexport(&namespace))
}

fn labelled(namespace: &str, key: &str) -> Value {
    let mut export = export(namespace);
    export["spec"] = json!({
        "exportedLabels": { key: "label" }, "exportedAnnotations": { key: "annotation" },
    });
    export
}
