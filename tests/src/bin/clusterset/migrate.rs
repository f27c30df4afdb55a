//! Clusters that come from another multi-cluster controller: the steps of deploy/migrate.md, and its commands, with the objects of
//! that controller.

mod former;

use anyhow::{Context as _, ensure};
use mcs_tests::{
    cluster::Programs,
    suite::{Suite, is_full},
    wait,
};
use serde_json::{Value, json};

use self::former::{Former, Source};
use crate::{
    cluster::{Cluster, addresses, conditions, wait_for_event},
    connectivity::vip,
    objects::{self, service},
    silence::{follows_again, imported, imported_service},
    world::{World, slice_of},
};

const PAGE: &str = include_str!("../../../../deploy/migrate.md");
const SERVICE_NAME: &str = "multicluster.kubernetes.io/service-name";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// What the admission policy says to the former controller.
const REFUSED: &str = "only the multi-cluster controller writes";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("from the reference controller, back, and here again", from_reference);
    suite.case("from Cilium's MCS-API", from_cilium);
    suite.case("from Submariner's Lighthouse", from_lighthouse);
}

/// The richer variant of what a former controller writes, and with `--full` the plain one too.
fn variants() -> impl Iterator<Item = bool> {
    is_full().then_some(false).into_iter().chain([true])
}

fn from_reference(world: &mut World) -> anyhow::Result<()> {
    let former = begin(world, Source::Reference)?;
    let namespace = &former.namespace;
    // The agents serve its slices, from all clusters.
    reach(world, namespace)?;
    adopt(world, &former)?;
    go_back(world, &former)?;
    adopt(world, &former)?;
    let [old, new] = leave_derived(world, &former)?;
    ensure!(old != new, "it has the address {old} of the former Service");
    end(world, &former, " derived-")
}

fn from_cilium(world: &mut World) -> anyhow::Result<()> {
    for synced in variants() {
        let former = begin(world, Source::Cilium { synced })?;
        adopt(world, &former)?;
        let [old, new] = leave_derived(world, &former)?;
        ensure!(old != new, "it has the address {old} of the former Service");
        end(world, &former, " derived-")?;
    }
    Ok(())
}

fn from_lighthouse(world: &mut World) -> anyhow::Result<()> {
    for vip in variants() {
        let former = begin(world, Source::Lighthouse { vip })?;
        let namespace = &former.namespace;
        adopt(world, &former)?;
        // When Lighthouse is uninstalled it deletes every ServiceImport of its cluster.
        refused(|| former.controller.delete(&objects::import(namespace)))?;
        end(world, &former, "managed-by=lighthouse-agent.submariner.io")?;
    }
    Ok(())
}

/// The second cluster has what the former controller wrote. The first one exports the service by this one.
fn begin(world: &World, source: Source) -> anyhow::Result<Former> {
    let namespace = world.fresh()?;
    world.dataplane()?;
    let (first, second) = (world.first(), world.second());
    first.api().apply(&service(&namespace))?;
    let exported = first.api().read(&service(&namespace))?;
    let former = Former::write(second, source, &namespace, &exported)?;
    first.export(&service(&namespace), Some(&slice_of(&namespace, 0, 1)))?;
    wait_for_event(second, &namespace, "ServiceImport", "LeftAlone")?;
    let ips = import(second, &namespace)?["spec"]["ips"].clone();
    ensure!(ips == former.ips, "it has the addresses {ips}, and had {}", former.ips);
    ensure!(own_slices(second, &namespace)?.is_empty(), "it has slices of this controller");
    Ok(former)
}

/// With `--adopt` the import keeps its address, and has the endpoints of all clusters. The former controller may not change
/// it any more.
fn adopt(world: &mut World, former: &Former) -> anyhow::Result<()> {
    let namespace = &former.namespace;
    world.clusters[1].controller.restart_with(&["--adopt"])?;
    let second = world.second();
    let adopted = second.wait_for_import(namespace, |import| {
        ensure!(import["metadata"]["labels"][MANAGED_BY] == "mcs-controller", "not adopted");
        ensure!(import["status"]["endpointSliceObjects"] == "Present", "it has not all slices");
        ensure!(import["spec"]["ips"][0].is_string(), "no address");
        let found = conditions(import);
        ensure!(found.iter().any(|one| one == "Ready=True/Ready"), "{found:?}");
        Ok(())
    })?;
    if let Some(address) = former.ips.get(0) {
        ensure!(adopted["spec"]["ips"][0] == *address, "it had {address}: {adopted}");
    }
    wait::until("the slices of this controller", || {
        let slices = own_slices(second, namespace)?;
        let found: Vec<_> = slices.iter().flat_map(addresses).collect();
        ensure!(found == ["10.77.9.17"], "{found:?}");
        Ok(())
    })?;
    if former.leads_to_pods() {
        reach(world, namespace)?;
    }
    former.is_whole(world.second().api())?;
    former.has_its_records(world.second().api())?;
    refused(|| {
        let mut changed = import(world.second(), namespace)?;
        changed["spec"]["ips"] = json!(["10.96.99.99"]);
        former.controller.replace(&changed)
    })
}

/// The former controller has the import again, and its own slices.
fn go_back(world: &mut World, former: &Former) -> anyhow::Result<()> {
    let namespace = &former.namespace;
    world.clusters[1].controller.kill()?;
    follow(world, "app.kubernetes.io/managed-by-\n")?;
    ensure!(own_slices(world.second(), namespace)?.is_empty(), "it has slices of this controller");
    reach(world, namespace)?;
    world.clusters[1].controller.restart_with(&[])?;
    // The controller that starts writes a condition on the import meanwhile.
    let import = wait::until("the former controller's import", || {
        let mut import = import(world.second(), namespace)?;
        import["spec"]["sessionAffinity"] = json!("None");
        import["spec"].as_object_mut().map(|spec| spec.remove("sessionAffinityConfig"));
        former.controller.replace(&import)?;
        Ok(import)
    })?;
    // The controller has looked at the import when it follows other exports.
    let (other, before) = imported_service(world)?;
    follows_again(world, &other, &before)?;
    let found = self::import(world.second(), namespace)?;
    ensure!(found["spec"] == import["spec"], "it was changed: {found}");
    ensure!(own_slices(world.second(), namespace)?.is_empty(), "it has slices again");
    reach(world, namespace)
}

/// The former controller ends. Its slices serve its derived Service alone, the import gets an address of its own, and then the
/// derived Service goes. Returns both addresses.
fn leave_derived(world: &World, former: &Former) -> anyhow::Result<[String; 2]> {
    let (second, namespace) = (world.second(), &former.namespace);
    follow(world, "multicluster.kubernetes.io/service-name- ")?;
    let slices = second.imported_slices(namespace)?;
    ensure!(slices.len() == 1, "others have the label: {slices:?}");
    reach(world, namespace)?;
    former.is_whole(second.api())?;
    let address = || vip(second, namespace).map(|ip| ip.to_string());
    let old = address()?;
    follow(world, r#"'{"spec":{"ips":null}}'"#)?;
    second.wait_for_import(namespace, |import| {
        let ip = import["spec"]["ips"][0].as_str().unwrap_or_default();
        ensure!(ip.starts_with("241."), "it has the address {ip:?}");
        Ok(())
    })?;
    reach(world, namespace)?;
    former.is_whole(second.api())?;
    Ok([old, address()?])
}

/// What the former controller left goes, by the commands of the page, and nobody misses it.
fn end(world: &mut World, former: &Former, commands: &str) -> anyhow::Result<()> {
    let namespace = &former.namespace;
    let before = vip(world.second(), namespace)?;
    follow(world, commands)?;
    former.is_gone(world.second().api())?;
    reach(world, namespace)?;
    world.clusters[1].controller.restart_with(&[])?;
    reach(world, namespace)?;
    ensure!(vip(world.second(), namespace)? == before, "it has another address");
    follows_again(world, namespace, &imported(world, namespace)?)
}

/// Does to the second cluster what a block of commands of the page says.
fn follow(world: &World, words: &str) -> anyhow::Result<()> {
    let mut blocks = PAGE.split("```").skip(1).step_by(2);
    let block =
        blocks.find(|block| block.contains(words)).with_context(|| format!("no {words}"))?;
    let kubectl = Programs::from_env().find("kubectl")?;
    let directory = kubectl.parent().context("a directory")?.display();
    let cluster = world.second();
    let mut shell = world.control.netns().command("sh");
    shell
        .args(["-eu", "-c", block])
        .env("PATH", format!("{directory}:/usr/sbin:/usr/bin:/sbin:/bin"))
        .env("HOME", cluster.directory())
        .env("KUBECONFIG", cluster.administrator()?);
    let output = shell.output()?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    ensure!(output.status.success(), "{block}: {said}");
    Ok(())
}

fn reach(world: &World, namespace: &str) -> anyhow::Result<()> {
    world.dataplane()?.reach(world, namespace, 42, &[0])
}

fn import(cluster: &Cluster, namespace: &str) -> anyhow::Result<Value> {
    cluster.import(namespace)?.context("there is no import")
}

/// The slices of the import that this controller has written.
fn own_slices(cluster: &Cluster, namespace: &str) -> anyhow::Result<Vec<Value>> {
    let mut slices = cluster.imported_slices(namespace)?;
    let manager = "endpointslice.kubernetes.io/managed-by";
    slices.retain(|slice| slice["metadata"]["labels"][manager] == "mcs-controller");
    for slice in &mut slices {
        // Objects of a list do not say what they are.
        slice["apiVersion"] = json!("discovery.k8s.io/v1");
        slice["kind"] = json!("EndpointSlice");
    }
    Ok(slices)
}

/// The admission policy refuses the request.
fn refused(request: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<()> {
    wait::until("a refusal by the policy", || match request() {
        Err(error) if format!("{error:#}").contains(REFUSED) => Ok(()),
        Err(error) => Err(error),
        Ok(()) => anyhow::bail!("the former controller may"),
    })
}
