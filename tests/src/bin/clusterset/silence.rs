//! Silence is not emptiness: what a cluster keeps while another one cannot be read.

use std::{collections::BTreeMap, thread::sleep, time::Duration};

use anyhow::ensure;
use mcs_tests::{suite::Suite, wait};
use serde_json::Value;

use crate::{
    clients::meanwhile,
    objects::{NAME, service},
    world::{World, slice_of},
};

/// How long a disturbance lasts. Whatever is deleted later is found too: [`follows_again`] compares the uids once more, and the
/// stories of `tests/clustersets` let hours pass.
const A_WHILE: Duration = Duration::from_millis(700);

pub(crate) fn cases(suite: &mut Suite<World>) {
    let name = "an API server that is gone, and knows no old versions when it is back (410)";
    suite.case(name, meanwhile(api_server_gone));
    suite.case("an API server that hangs", meanwhile(api_server_hangs));
    suite.case("the importer's own API server is gone", meanwhile(own_api_server_gone));
}

/// The uids of what the second cluster has imported.
pub(crate) type Imported = BTreeMap<String, String>;

pub(crate) fn imported(world: &World, namespace: &str) -> anyhow::Result<Imported> {
    let import = world.second().import(namespace)?;
    let slices = world.second().imported_slices(namespace)?;
    let is_of_import = |slice: &&Value| {
        slice["metadata"]["labels"]["multicluster.kubernetes.io/service-name"] == NAME
    };
    let slices = slices.iter().filter(is_of_import);
    let uid = |object: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
        (name, text(&object["metadata"]["uid"]))
    };
    Ok(import.iter().chain(slices).map(uid).collect())
}

/// A service of the first cluster that the second one has imported.
pub(crate) fn imported_service(world: &World) -> anyhow::Result<(String, Imported)> {
    let namespace = world.fresh()?;
    world.first().export(&service(&namespace), Some(&slice_of(&namespace, 0, 2)))?;
    let second = world.second();
    second.wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18"])?;
    second.wait_for_import(&namespace, |import| {
        ensure!(import["status"]["endpointSliceObjects"] == "Present", "no slices yet");
        Ok(())
    })?;
    let before = imported(world, &namespace)?;
    ensure!(before.len() == 2, "{before:?}");
    Ok((namespace, before))
}

/// Nothing that was there is deleted, or made anew, for a while.
pub(crate) fn stays(world: &World, namespace: &str, before: &Imported) -> anyhow::Result<()> {
    sleep(A_WHILE);
    is_unchanged(world, namespace, before)
}

fn is_unchanged(world: &World, namespace: &str, before: &Imported) -> anyhow::Result<()> {
    let after = imported(world, namespace)?;
    ensure!(after == *before, "there was {before:?}, now {after:?}");
    Ok(())
}

/// The second cluster follows the first one again, and has deleted nothing meanwhile.
pub(crate) fn follows_again(
    world: &World,
    namespace: &str,
    before: &Imported,
) -> anyhow::Result<()> {
    let (first, second) = (world.first(), world.second());
    first.renew_lease()?;
    first.api().apply(&slice_of(namespace, 0, 1))?;
    second.wait_for_addresses(namespace, &["10.77.9.17"])?;
    is_unchanged(world, namespace, before)?;
    first.unexport(namespace)?;
    second.wait_for_nothing(namespace)
}

/// An API server that starts knows no versions from before. Those of all clusters are numbers of one etcd, so changes in
/// the second cluster make the watches of the first one too old.
fn api_server_gone(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    let lists_again = |world: &World| -> anyhow::Result<usize> {
        let log = world.second().controller.logged()?;
        Ok(log.matches("the resource version is not available: listing again").count())
    };
    let lists = lists_again(world)?;
    world.clusters[0].server.kill()?;
    for number in 0..3 {
        world.second().add_namespace(&format!("{namespace}-{number}"))?;
    }
    stays(world, &namespace, &before)?;
    world.clusters[0].server.start_again()?;
    wait::until("an answer that a version is too old", || {
        ensure!(lists_again(world)? > lists, "there is none");
        Ok(())
    })?;
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace, &before)
}

fn api_server_hangs(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    world.clusters[0].server.freeze()?;
    stays(world, &namespace, &before)?;
    world.clusters[0].server.thaw()?;
    follows_again(world, &namespace, &before)
}

fn own_api_server_gone(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    world.clusters[1].server.kill()?;
    sleep(A_WHILE);
    world.clusters[1].server.start_again()?;
    follows_again(world, &namespace, &before)
}
