//! The programming latency: from a change in a cluster to the maps of this node.

use std::time::SystemTime;

use crate::prelude::*;

const COUNT: &str = "kubeproxy_network_programming_duration_seconds_count";
const SUM: &str = "kubeproxy_network_programming_duration_seconds_sum";
/// The same by source cluster.
const OF_EAST: &str = "mcs_propagation_duration_seconds_count{source_cluster=\"east\"}";
const SLICES: &str = "kubeproxy_sync_proxy_rules_endpoint_changes_total";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("latency of changed EndpointSlices, as kube-proxy tells it", latency);
}

/// The slice of `late`, with these pods.
fn slice(pods: &[u8], trigger: Option<SystemTime>) -> Result<Value> {
    let pods = pods.iter().map(|pod| pod_address(*pod));
    let service = Service::new("late", []).port(Protocol::Tcp, 80, 8080).endpoints("east", pods);
    let mut slice = service.slices().into_iter().next().context("no slice")?;
    if let Some(trigger) = trigger {
        let trigger = rfc3339(trigger)?;
        slice["metadata"]["annotations"] =
            json!({"endpoints.kubernetes.io/last-change-trigger-time": trigger});
    }
    Ok(slice)
}

/// As controllers write a time.
fn rfc3339(time: SystemTime) -> Result<String> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH)?;
    let date = format!("@{}", since.as_secs());
    let output = std::process::Command::new("date")
        .args(["--utc", "--date", &date, "+%Y-%m-%dT%H:%M:%SZ"])
        .output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn latency(world: &mut World) -> Result {
    let netns = &world.network.node.netns;
    let manifests = &world.site.manifests;
    let before = samples(netns)?;
    let came = |changes: f64| wait_for_sample(world, SLICES, before[SLICES] + changes);
    let count = || anyhow::Ok(samples(netns)?[COUNT] - before[COUNT]);
    let ago = |seconds| SystemTime::now() - Duration::from_secs(seconds);
    wait::until("an agent that is older than the first change", || {
        let started = Duration::from_secs_f64(before["process_start_time_seconds"]);
        ensure!(ago(3) > SystemTime::UNIX_EPOCH + started, "it has just started");
        Ok(())
    })?;

    manifests.put("late", &slice(&[11], None)?)?;
    came(1.0)?;
    assert_eq!(count()?, 0.0, "a slice that names no time");
    manifests.put("late", &slice(&[11, 12], Some(ago(1)))?)?;
    came(2.0)?;
    assert_eq!(count()?, 1.0, "a change");
    let after = samples(netns)?;
    let of_east = after.get(OF_EAST).copied().unwrap_or_default();
    assert_eq!(of_east, 1.0 + before.get(OF_EAST).copied().unwrap_or_default());
    let took = after[SUM] - before[SUM];
    ensure!((1.0..4.0).contains(&took), "{took} s instead of one and a little");
    manifests.put("late", &slice(&[11], Some(ago(24 * 3600)))?)?;
    came(3.0)?;
    assert_eq!(count()?, 1.0, "what happened before the agent came");
    // The annotation alone: nothing to write. The change after it shows that it was read.
    manifests.put("late", &slice(&[11], Some(ago(0)))?)?;
    manifests.put("later", &{
        let mut other = slice(&[12], None)?;
        other["metadata"]["name"] = "later".into();
        other
    })?;
    came(4.0)?;
    assert_eq!(count()?, 1.0, "nothing but an annotation");
    manifests.remove("late")?;
    manifests.remove("later")?;
    came(6.0)?;
    assert_eq!(count()?, 1.0, "deletions");
    Ok(())
}
