//! Namespaces, exports and imports that end late, as API servers and controllers of others let them.

use anyhow::ensure;
use mcs_tests::{suite::Suite, wait};
use serde_json::{Value, json};

use crate::{
    cluster::{ARRIVAL, Cluster},
    objects,
    silence::{follows_again, imported, imported_service, stays},
    world::{World, slice_of},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a namespace that is deleted and made again", namespace_comes_again);
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
    let (other, of_other) = imported_service(world)?;
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
    follows_again(world, &other, &of_other)?;
    follows_again(world, &namespace, &imported(world, &namespace)?)
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
    let (other, of_other) = imported_service(world)?;
    follows_again(world, &other, &of_other)?;
    first.api().apply(&export)?;
    second.wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18", "10.77.9.19"])?;
    set(second, &import, json!([]))?;
    second.wait_for_import(&namespace, |import| {
        ensure!(import["metadata"]["deletionTimestamp"].is_null(), "it ends");
        ensure!(!vips(import).is_empty(), "no address");
        Ok(())
    })?;
    follows_again(world, &namespace, &imported(world, &namespace)?)
}
