//! What a publisher says of its mailbox while its services change all the time.

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
use serde_json::{Value, json};

use crate::{
    clients::meanwhile,
    cluster::Cluster,
    controller::MAILBOX,
    objects::{NAME, namespaced, service},
    silence::{follows_again, imported_service, stays},
    world::{World, slice_of},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("services that change all the time freeze nobody", meanwhile(churn));
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

fn exported(cluster: &Cluster) -> anyhow::Result<Vec<Value>> {
    let path =
        format!("/apis/clusterset.mcs-agent.io/v1alpha1/namespaces/{MAILBOX}/exportedservices");
    Ok(cluster.api().get(&path)?["items"].as_array().cloned().unwrap_or_default())
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
    world.first().api().delete_many(&all(crate::objects::export(&busy)))?;
    follows_again(world, &namespace, &before)
}
