//! What one publisher says of a mailbox: a service that is refused, a copy of the cluster, a mailbox from a backup.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, sleep},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use mcs_tests::{
    suite::{Suite, is_full, tell},
    wait,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    clients::meanwhile,
    cluster::{Cluster, addresses},
    controller::MAILBOX,
    objects::{NAME, namespaced, service},
    peering,
    silence::{follows_again, imported_service, stays},
    world::{POD_RANGES, World, slice_of},
};

/// The mailbox of the first cluster on the hub.
const HUB_MAILBOX: &str = "mcs-c1";
/// Longer than a publisher waits for a silent one.
const TAKE_OVER: Duration = Duration::from_secs(25);
const QUOTA: &str = "count/exportedservices.clusterset.mcs-agent.io";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a full quota in a mailbox freezes nobody", meanwhile(full_quota));
    suite.case("services that change all the time freeze nobody", meanwhile(churn));
    suite.case("a mailbox from a backup moves nothing", meanwhile(restored));
    suite.case("a copy of a cluster publishes nothing", meanwhile(copied));
}

fn lease(cluster: &Cluster, mailbox: &str) -> anyhow::Result<Value> {
    cluster.api().read(&namespaced("coordination.k8s.io/v1", "Lease", mailbox, "publisher"))
}

fn said(lease: &Value, name: &str) -> String {
    let value = &lease["metadata"]["annotations"][format!("clusterset.mcs-agent.io/{name}")];
    value.as_str().unwrap_or_default().to_owned()
}

/// Waits until a publisher that was started again says that everything is published.
fn wait_until_complete(cluster: &Cluster, former_run: &str) -> anyhow::Result<Value> {
    wait::until("a complete mailbox of another run", || {
        let lease = lease(cluster, MAILBOX)?;
        ensure!(said(&lease, "run") != former_run, "nobody has followed");
        ensure!(said(&lease, "complete") == "true", "{lease}");
        Ok(lease)
    })
}

/// A quota that is full. Nobody counts here but the API server, so the case says what is used.
fn quota(room: usize, used: usize) -> Value {
    let mut quota = namespaced("v1", "ResourceQuota", MAILBOX, "mailbox");
    quota["spec"] = json!({"hard": {QUOTA: room.to_string()}});
    quota["status"] = json!({"hard": {QUOTA: room.to_string()}, "used": {QUOTA: used.to_string()}});
    quota
}

fn exported(cluster: &Cluster) -> anyhow::Result<Vec<Value>> {
    let path =
        format!("/apis/clusterset.mcs-agent.io/v1alpha1/namespaces/{MAILBOX}/exportedservices");
    Ok(cluster.api().get(&path)?["items"].as_array().cloned().unwrap_or_default())
}

fn full_quota(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    let (leaving, _) = imported_service(world)?;
    let first = world.first();
    let there = exported(first)?.len();
    first.api().apply(&quota(there, there))?;
    first.api().apply_status(&quota(there, there))?;
    // A tenant exports one more service than there is room for.
    let refused = world.fresh()?;
    first.export(&service(&refused), None)?;
    first.wait_for_conditions(&refused, &["Ready=False/Failed"])?;
    let run = said(&lease(first, MAILBOX)?, "run");
    for cluster in &mut world.clusters {
        cluster.controller.restart_with(&[])?;
    }
    let lease = wait_until_complete(world.first(), &run)?;
    ensure!(said(&lease, "failed") == "1", "{lease}");
    ensure!(said(&lease, "refused") == format!("{refused}/{NAME}"), "{lease}");
    stays(world, &namespace, &before)?;
    // Endpoints, deletions and new readers go on.
    world.first().api().apply(&slice_of(&namespace, 0, 1))?;
    world.second().wait_for_addresses(&namespace, &["10.77.9.17"])?;
    world.first().unexport(&leaving)?;
    world.second().wait_for_nothing(&leaving)?;
    world.first().api().delete(&quota(0, 0))?;
    world.second().wait_for_import(&refused, |_| Ok(()))?;
    world.first().unexport(&refused)?;
    follows_again(world, &namespace)
}

/// How many services change, and for how long.
fn busy() -> (usize, Duration) {
    if is_full() { (1000, Duration::from_mins(1)) } else { (60, Duration::from_secs(6)) }
}

fn churn(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    let (services, time) = busy();
    let busy = world.fresh()?;
    let named = |number: usize, mut object: Value| {
        let name = format!("{NAME}-{number}");
        object["metadata"]["name"] = json!(name);
        if object["kind"] == "EndpointSlice" {
            object["metadata"]["labels"]["kubernetes.io/service-name"] = json!(name);
        }
        object
    };
    let all =
        |object: Value| (0..services).map(|one| named(one, object.clone())).collect::<Vec<_>>();
    let first = world.first();
    first.api().create_many(&all(service(&busy)))?;
    first.api().create_many(&all(slice_of(&busy, 0, 1)))?;
    first.api().create_many(&all(crate::objects::export(&busy)))?;
    wait::within(crate::cluster::ARRIVAL, "all services in the mailbox", || {
        let count = exported(first)?.iter().filter(|one| one["spec"]["namespace"] == *busy).count();
        ensure!(count == services, "there are {count}");
        Ok(())
    })?;
    let run = said(&lease(first, MAILBOX)?, "run");
    let api = first.server.another_client()?;
    let is_complete = AtomicBool::new(false);
    let (took, rate) = thread::scope(|scope| {
        let changing = scope.spawn(|| -> anyhow::Result<u128> {
            let start = Instant::now();
            let mut changes = 0;
            while start.elapsed() < time || !is_complete.load(Ordering::Relaxed) {
                api.replace_many(&all(slice_of(
                    &busy,
                    0,
                    1 + u8::try_from(changes / services % 2)?,
                )))?;
                changes += services;
            }
            Ok(changes as u128 * 1000 / start.elapsed().as_millis())
        });
        sleep(time / 6);
        let start = Instant::now();
        let restart = |cluster: &mut Cluster| {
            cluster.controller.kill()?;
            cluster.controller.start_again()
        };
        let restarted = world.clusters.iter_mut().try_for_each(restart);
        let complete = restarted.and_then(|()| wait_until_complete(world.first(), &run));
        let took = start.elapsed();
        // The changes end with this, whatever has failed.
        is_complete.store(true, Ordering::Relaxed);
        let rate = changing.join().ok().context("a panic")??;
        complete.map(|_| (took, rate))
    })?;
    tell(format!("{rate} changes/s; complete {:.1} s after a restart", took.as_secs_f64()));
    stays(world, &namespace, &before)?;
    for object in all(crate::objects::export(&busy)) {
        world.first().api().delete(&object)?;
    }
    follows_again(world, &namespace)
}

/// Everything in a mailbox, as it can be written back.
fn contents(cluster: &Cluster) -> anyhow::Result<Vec<Value>> {
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{MAILBOX}/endpointslices");
    let slices = cluster.api().get(&path)?["items"].as_array().cloned().unwrap_or_default();
    let all = slices.into_iter().map(|slice| ("discovery.k8s.io/v1", "EndpointSlice", slice));
    let services = exported(cluster)?.into_iter();
    let services = services.map(|one| ("clusterset.mcs-agent.io/v1alpha1", "ExportedService", one));
    let lease = lease(cluster, MAILBOX)?;
    let all = all.chain(services).chain([("coordination.k8s.io/v1", "Lease", lease)]);
    Ok(all
        .map(|(version, kind, mut object)| {
            object["apiVersion"] = json!(version);
            object["kind"] = json!(kind);
            let fields = object["metadata"].as_object_mut();
            if let Some(fields) = fields {
                fields.retain(|name, _| {
                    ["name", "namespace", "labels", "annotations"].contains(&name.as_str())
                });
            }
            object
        })
        .collect())
}

/// Brings back what was there before, and nothing else.
fn restore(cluster: &Cluster, before: &[Value]) -> anyhow::Result<()> {
    for object in contents(cluster)? {
        cluster.api().delete(&object)?;
    }
    cluster.api().create_many(before)
}

fn signal(cluster: &Cluster, signal: Signal) -> anyhow::Result<()> {
    let pid = i32::try_from(cluster.controller.pid()?)?;
    Ok(kill_process(Pid::from_raw(pid).context("a process")?, signal)?)
}

/// The publisher cannot mend the mailbox for a while. A reader that runs, and one that starts, do not go back.
fn restored(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    let (gone, _) = imported_service(world)?;
    let yesterday = contents(world.first())?;
    world.first().api().apply(&slice_of(&namespace, 0, 3))?;
    let today = ["10.77.9.17", "10.77.9.18", "10.77.9.19"];
    world.second().wait_for_addresses(&namespace, &today)?;
    let (new, of_new) = imported_service(world)?;
    world.first().unexport(&gone)?;
    world.second().wait_for_nothing(&gone)?;
    let is_of_today = |world: &World| -> anyhow::Result<()> {
        stays(world, &namespace, &before)?;
        let slices = world.second().imported_slices(&namespace)?;
        let mut found: Vec<_> = slices.iter().flat_map(addresses).collect();
        found.sort();
        ensure!(found == today, "the second cluster went back to {found:?}");
        stays(world, &new, &of_new)
    };
    // Slices of a mailbox go after the ExportedService: no request may be under way when the publisher stops.
    wait::until("a mailbox without what was withdrawn", || {
        let is_of_gone = |object: &Value| {
            object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(&*gone))
        };
        ensure!(!contents(world.first())?.iter().any(is_of_gone), "it has some of {gone}");
        Ok(())
    })?;
    signal(world.first(), Signal::STOP)?;
    restore(world.first(), &yesterday)?;
    is_of_today(world).context("a reader that runs")?;
    world.clusters[1].controller.restart()?;
    is_of_today(world).context("a reader that starts")?;
    signal(world.first(), Signal::CONT)?;
    wait::until("an end of what was withdrawn", || {
        let name = format!("{gone}.{NAME}");
        let is_there = exported(world.first())?.iter().any(|one| one["metadata"]["name"] == name);
        ensure!(!is_there, "{name} is in the mailbox");
        Ok(())
    })?;
    is_of_today(world)?;
    world.second().wait_for_nothing(&gone)?;
    follows_again(world, &new)?;
    follows_again(world, &namespace)
}

/// A copy of the first cluster finds the mailbox on the hub, and a token that is still good.
fn copied(world: &mut World) -> anyhow::Result<()> {
    world.add_third()?;
    let (namespace, before) = imported_service(world)?;
    let hub = &world.clusters[2];
    hub.add_namespace(HUB_MAILBOX)?;
    let kubeconfig = format!("--mailbox-kubeconfig={}", hub.administrator()?.display());
    let mailbox = format!("--mailbox={HUB_MAILBOX}");
    let flags = [&*kubeconfig, &*mailbox, "--replica=a"];
    peering::store_credentials(
        world.second(),
        "hub",
        &hub.kubeconfig(mcs_tests::api_server::TOKEN)?,
    )?;
    world.clusters[0].controller.restart_with(&flags)?;
    let at_home = peering::peer(world.first(), POD_RANGES[0]);
    let mut on_hub = at_home.clone();
    on_hub["spec"]["kubeconfigSecretRef"]["name"] = json!("hub");
    on_hub["spec"]["mailbox"] = json!(HUB_MAILBOX);
    world.second().api().apply(&on_hub)?;
    stays(world, &namespace, &before)?;

    let mut copy = Cluster::start_copy(&world.control, "c1", "copy", 4)?;
    copy.add_namespace(&namespace)?;
    copy.export(&service(&namespace), Some(&slice_of(&namespace, 2, 3)))?;
    copy.controller.restart_with(&flags)?;
    let start = Instant::now();
    while start.elapsed() < TAKE_OVER {
        stays(world, &namespace, &before)?;
        let slices = world.second().imported_slices(&namespace)?;
        let mut found: Vec<_> = slices.iter().flat_map(addresses).collect();
        found.sort();
        ensure!(found == ["10.77.9.17", "10.77.9.18"], "the copy serves {found:?}");
    }
    copy.wait_for_conditions(&namespace, &["Ready=False/Failed"])?;
    let said = copy.controller.logged()?;
    ensure!(said.contains("another publisher of cluster c1 renews"), "it says nothing of it");
    drop(copy);
    world.first().api().apply(&slice_of(&namespace, 0, 1))?;
    world.second().wait_for_addresses(&namespace, &["10.77.9.17"])?;
    world.clusters[0].controller.restart_with(&[])?;
    world.second().api().apply(&at_home)?;
    follows_again(world, &namespace)
}
