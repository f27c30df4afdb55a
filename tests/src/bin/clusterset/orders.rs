//! Objects that come, change and go in orders that nobody plans: Services that are replaced, exports and namespaces that
//! are deleted and made again, imports that somebody edits.

use std::time::Instant;

use anyhow::ensure;
use mcs_tests::{
    suite::{Suite, tell},
    wait,
};
use serde_json::{Value, json};

use crate::{
    cluster::{ARRIVAL, Cluster},
    objects::{self, headless, service},
    silence::{follows_again, imported_service, stays},
    world::{World, slice_of},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a Service that is replaced: headless, ExternalName, and as it was", is_replaced);
    suite.case("an export that is deleted and made again at once", comes_again);
    suite.case("a namespace that is deleted and made again", namespace_comes_again);
    suite.case("an import and a slice that somebody edits", is_edited);
    suite.case("an export and an import that end late, by finalizers of others", ends_late);
}

/// The addresses of an import.
fn vips(import: &Value) -> Vec<String> {
    let ips = import["spec"]["ips"].as_array().into_iter().flatten();
    ips.filter_map(|ip| ip.as_str().map(str::to_owned)).collect()
}

/// The addresses of the import of a case, once it has any.
fn wait_for_vips(cluster: &Cluster, namespace: &str) -> anyhow::Result<Vec<String>> {
    let import = cluster.wait_for_import(namespace, |import| {
        ensure!(import["spec"]["type"] == "ClusterSetIP", "it is {}", import["spec"]["type"]);
        ensure!(!vips(import).is_empty(), "no address");
        Ok(())
    })?;
    Ok(vips(&import))
}

fn is_replaced(world: &mut World) -> anyhow::Result<()> {
    let (namespace, _) = imported_service(world)?;
    let (first, second) = (world.first(), world.second());
    let before = wait_for_vips(second, &namespace)?;
    let replace = |by: &Value| {
        first.api().delete(&service(&namespace))?;
        first.api().apply(by)
    };
    replace(&headless(&namespace))?;
    second.wait_for_import(&namespace, |import| {
        ensure!(import["spec"]["type"] == "Headless", "it is {}", import["spec"]["type"]);
        ensure!(vips(import).is_empty(), "it has {:?}", vips(import));
        Ok(())
    })?;
    let mut elsewhere = objects::namespaced("v1", "Service", &namespace, objects::NAME);
    elsewhere["spec"] = json!({ "type": "ExternalName", "externalName": "example.org" });
    replace(&elsewhere)?;
    first.wait_for_conditions(&namespace, &["Valid=False/InvalidServiceType"])?;
    second.wait_for_nothing(&namespace)?;
    replace(&service(&namespace))?;
    let after = wait_for_vips(second, &namespace)?;
    ensure!(after == before, "the address was {before:?} and is {after:?}");
    follows_again(world, &namespace)
}

/// Whatever the readers see of it, the service ends up as it was.
fn comes_again(world: &mut World) -> anyhow::Result<()> {
    let (namespace, _) = imported_service(world)?;
    let (first, second) = (world.first(), world.second());
    let before = wait_for_vips(second, &namespace)?;
    for _ in 0..5 {
        first.unexport(&namespace)?;
        first.api().apply(&objects::export(&namespace))?;
    }
    // Written after all of them.
    first.api().apply(&slice_of(&namespace, 0, 3))?;
    second.wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18", "10.77.9.19"])?;
    let after = wait_for_vips(second, &namespace)?;
    ensure!(after == before, "the address was {before:?} and is {after:?}");
    first.wait_for_conditions(&namespace, &["Ready=True/Exported"])?;
    follows_again(world, &namespace)
}

/// While a namespace ends, nothing can be created in it. Services of other namespaces do not wait.
fn namespace_comes_again(world: &mut World) -> anyhow::Result<()> {
    let (namespace, _) = imported_service(world)?;
    let second = world.second();
    let before = wait_for_vips(second, &namespace)?;
    let object =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    second.api().delete_in_foreground(&object)?;
    // The controller manager, which no case runs, would delete what is left.
    second.wait_for_nothing(&namespace)?;
    let (other, _) = imported_service(world)?;
    ensure!(second.import(&namespace)?.is_none(), "an import in a namespace that ends");

    let mut ended = second.api().read(&object)?;
    ended["metadata"]["finalizers"] = json!([]);
    second.api().replace(&ended)?;
    let mut ended = second.api().read(&object)?;
    ended["spec"]["finalizers"] = json!([]);
    let path = format!("/api/v1/namespaces/{namespace}");
    second.api().replace_below(&ended, "finalize")?;
    wait::within(ARRIVAL, "the namespace to be gone", || {
        ensure!(second.api().get(&path).is_err(), "it is there");
        Ok(())
    })?;
    second.add_namespace(&namespace)?;
    let after = wait_for_vips(second, &namespace)?;
    ensure!(after == before, "the address was {before:?} and is {after:?}");
    second.wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18"])?;
    follows_again(world, &other)?;
    follows_again(world, &namespace)
}

/// An administrator may write them. What the controller does not write stays, such as a label of somebody's own.
fn is_edited(world: &mut World) -> anyhow::Result<()> {
    let (namespace, _) = imported_service(world)?;
    let (first, second) = (world.first(), world.second());
    let mut export = objects::export(&namespace);
    export["spec"] = json!({
        "exportedLabels": { "team": "shop" }, "exportedAnnotations": { "call": "shop" },
    });
    first.api().apply(&export)?;
    let before = second.wait_for_import(&namespace, |import| {
        ensure!(!vips(import).is_empty(), "no address");
        ensure!(import["metadata"]["labels"]["team"] == "shop", "no label");
        Ok(())
    })?;
    let mut edited = second.api().read(&objects::import(&namespace))?;
    edited["metadata"]["labels"]["team"] = json!("other");
    edited["metadata"]["labels"]["own"] = json!("label");
    edited["metadata"]["annotations"] = json!({});
    edited["spec"]["ports"] = json!([{ "name": "other", "port": 43, "protocol": "TCP" }]);
    edited["spec"]["sessionAffinity"] = json!("None");
    edited["spec"]["sessionAffinityConfig"] = json!(null);
    edited["spec"]["ips"] = json!(null);
    let begin = Instant::now();
    second.api().replace(&edited)?;
    second.wait_for_import(&namespace, |import| {
        let (now, then) = (&import["metadata"], &before["metadata"]);
        ensure!(now["uid"] == then["uid"], "it was made again");
        ensure!(now["labels"]["team"] == "shop", "it has another label");
        ensure!(now["labels"]["own"] == "label", "it has lost a label of somebody's own");
        ensure!(now["annotations"] == then["annotations"], "it has other annotations");
        ensure!(import["spec"] == before["spec"], "it was {}", before["spec"]);
        Ok(())
    })?;
    tell(format!("{} ms from the edit to the import as it was", begin.elapsed().as_millis()));
    let mut slice = second.wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18"])?.remove(0);
    slice["endpoints"] = json!([{ "addresses": ["10.77.9.99"] }]);
    slice["ports"] = json!([{ "name": "tcp", "port": 1, "protocol": "TCP" }]);
    // A list leaves them out.
    slice["apiVersion"] = json!("discovery.k8s.io/v1");
    slice["kind"] = json!("EndpointSlice");
    second.api().replace(&slice)?;
    let slices = second.wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18"])?;
    ensure!(slices[0]["ports"][0]["port"] == 4242, "{}", slices[0]);
    follows_again(world, &namespace)
}

/// Nobody takes it away but the case.
const FINALIZER: &str = "example.com/audit";

fn ends_late(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    let (first, second) = (world.first(), world.second());
    let set = |cluster: &Cluster, object: &Value, finalizers: Value| {
        wait::until("an object that nobody else writes", || {
            let mut there = cluster.api().read(object)?;
            there["metadata"]["finalizers"] = finalizers.clone();
            cluster.api().replace(&there)
        })
    };
    let (export, import) = (objects::export(&namespace), objects::import(&namespace));
    set(first, &export, json!([FINALIZER]))?;
    first.api().delete_in_foreground(&export)?;
    // It is there, so it counts.
    stays(world, &namespace, &before)?;
    first.api().apply(&slice_of(&namespace, 0, 3))?;
    second.wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18", "10.77.9.19"])?;
    set(second, &import, json!([FINALIZER]))?;
    set(first, &export, json!([]))?;
    // Of the import nothing is left but its name.
    wait::within(ARRIVAL, "an import that ends", || {
        ensure!(second.imported_slices(&namespace)?.is_empty(), "there are slices");
        let ending = second.api().read(&import)?;
        ensure!(!ending["metadata"]["deletionTimestamp"].is_null(), "{ending}");
        Ok(())
    })?;
    // Others do not wait for it.
    let (other, _) = imported_service(world)?;
    follows_again(world, &other)?;
    first.api().apply(&export)?;
    second.wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18", "10.77.9.19"])?;
    set(second, &import, json!([]))?;
    second.wait_for_import(&namespace, |import| {
        ensure!(import["metadata"]["deletionTimestamp"].is_null(), "it ends");
        ensure!(!vips(import).is_empty(), "no address");
        Ok(())
    })?;
    follows_again(world, &namespace)
}
