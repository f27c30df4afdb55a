//! Weights and drains of source clusters: what operators write in one cluster, agents are told in others.

use anyhow::{Context as _, ensure};
use mcs_tests::{cluster::cluster_property, suite::Suite, wait};
use serde_json::{Value, from_str, json};

use crate::{
    check,
    cluster::{Cluster, wait_for_event},
    controller, objects, peering,
    silence::imported_service,
    world::{POD_RANGES, World, slice_of},
};

const PROPERTIES: &str = "/apis/about.k8s.io/v1beta1/clusterproperties";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("values that cannot be used are said on the objects that have them", unusable);
    suite.case("mcs drain and undrain, for all clusters and for one", by_command);
}

fn unusable(world: &mut World) -> anyhow::Result<()> {
    let second = world.second();
    let values = [("weight", "1.5"), ("drain", "True"), ("preference", "nearest")];
    for (kind, value) in values {
        let name = format!("{kind}.clusterset.mcs-agent.io");
        second.api().apply(&cluster_property(&name, value))?;
        wait::until("an event about it", || {
            let events = second.api().get("/apis/events.k8s.io/v1/namespaces/default/events")?;
            let mut events = events["items"].as_array().context("a list")?.iter();
            let is_meant = |event: &Value| {
                event["regarding"]["kind"] == "ClusterProperty"
                    && event["regarding"]["name"] == name
                    && event["regarding"]["uid"].as_str().is_some_and(|uid| !uid.is_empty())
                    && event["reason"] == "InvalidValue"
                    && event["note"].to_string().contains(value)
            };
            ensure!(events.any(is_meant), "there is none");
            Ok(())
        })?;
    }
    let settings = |world: &World| {
        let found = check::of(world, world.second())?;
        found.into_iter().find(|one| one["check"] == "settings").context("no row")
    };
    let found = settings(world)?;
    ensure!(found["ok"] == false, "{found}");
    for (_, value) in values {
        ensure!(found["message"].to_string().contains(value), "{found}");
    }
    let mut services = controller::command_line(world.control.netns())?;
    services.args(["services", "--no-nodes", "-o", "json"]).arg(second.administrator()?);
    let listed: Value = serde_json::from_slice(&services.output()?.stdout)?;
    let not_used = listed["settings"].as_array().context("no settings")?;
    ensure!(not_used.len() == 3, "{not_used:?}");
    for (kind, value) in values {
        second
            .api()
            .delete(&cluster_property(&format!("{kind}.clusterset.mcs-agent.io"), value))?;
    }
    let found = wait::until("no word of them", || {
        let found = settings(world)?;
        ensure!(found["ok"] == true, "{found}");
        Ok(found)
    })?;
    ensure!(found["message"].to_string().contains("weight, drain, preference"), "{found}");

    // Of an export.
    let namespace = world.fresh()?;
    let mut wrong = objects::export(&namespace);
    let annotation = "traffic.clusterset.mcs-agent.io/spill";
    wrong["spec"] = json!({ "exportedAnnotations": { annotation: "much" } });
    world.first().export(&objects::service(&namespace), None)?;
    world.first().api().apply(&wrong)?;
    let invalid = ["Valid=False/InvalidAnnotation", "Ready=True/Exported"];
    world.first().wait_for_conditions(&namespace, &invalid)?;
    wait_for_event(world.first(), &namespace, "ServiceExport", "InvalidAnnotation")?;
    wrong["spec"]["exportedAnnotations"][annotation] = json!("70%");
    world.first().api().apply(&wrong)?;
    world.first().wait_for_conditions(&namespace, &["Valid=True/Valid"])?;
    world.first().unexport(&namespace)?;
    world.second().wait_for_nothing(&namespace)
}

fn by_command(world: &mut World) -> anyhow::Result<()> {
    let [first, second] = [world.first(), world.second()];
    second.api().apply(&peering::peer(first, POD_RANGES[0]))?;
    let run = |verb: &str, clusters: &[&Cluster], flags: &[&str]| {
        let mut mcs = controller::command_line(world.control.netns())?;
        mcs.args([verb, "c1", "-o", "json"]).args(flags);
        for cluster in clusters {
            mcs.arg(cluster.administrator()?);
        }
        anyhow::Ok(mcs.output()?)
    };
    // Only c1 exports some of the services of other cases.
    let drain = |clusters: &[&Cluster]| {
        let output = run("drain", clusters, &["--force"])?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{text}");
        let obeyed: Value = serde_json::from_slice(&output.stdout)?;
        let all = obeyed.as_array().context("no list")?;
        ensure!(
            all.len() == clusters.len() && all.iter().all(|one| one["obeys"] == true),
            "{obeyed}"
        );
        anyhow::Ok(obeyed)
    };
    drain(&[first, second])?;
    told(first, &json!({"c1": {"drain": true}}))?;
    told(second, &json!({"c1": {"drain": true}}))?;
    let time = "2030-01-01T00:00:00Z";
    first.api().apply(&cluster_property("drain.clusterset.mcs-agent.io", time))?;
    told(second, &json!({"c1": {"drain": true, "deadline": time}}))?;
    let output = run("drain", &[first, second], &["--force", "--deadline", "1h"])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    ensure!(run("undrain", &[first, second], &[])?.status.success());
    told(first, &json!({}))?;
    told(second, &json!({}))?;

    let output = run("drain", &[second], &["--force", "--until-idle", "--timeout", "1s"])?;
    let text = String::from_utf8_lossy(&output.stdout);
    let is_unknown = output.status.code() == Some(1) && text.contains("no pod of the agent");
    ensure!(is_unknown, "no agent was asked: {text}");
    told(first, &json!({}))?;
    told(second, &json!({"c1": {"drain": true}}))?;
    ensure!(run("undrain", &[second], &[])?.status.success());
    told(second, &json!({}))?;

    // Nobody but c1 exports it.
    let (namespace, _) = imported_service(world)?;
    let refused = run("drain", &[second], &[])?;
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.status.code() == Some(1) && text.contains("nothing was changed"), "{text}");
    told(second, &json!({}))?;

    // Both export it. An export without a ready pod serves nobody.
    let is_alone = || {
        let alone = drain(&[second])?[0]["only_there"].take();
        let alone = alone.as_array().context("no list")?;
        anyhow::Ok(alone.contains(&json!(format!("{namespace}/{}", objects::NAME))))
    };
    let of_first = ["10.77.9.17", "10.77.9.18"];
    second.export(&objects::service(&namespace), Some(&slice_of(&namespace, 1, 1)))?;
    second.wait_for_addresses(&namespace, &[of_first[0], of_first[1], "10.77.9.33"])?;
    ensure!(!is_alone()?, "c2 serves it too");
    second.api().apply(&slice_of(&namespace, 1, 0))?;
    second.wait_for_addresses(&namespace, &of_first)?;
    ensure!(is_alone()?, "c2 exports it, and has no pod");
    ensure!(run("undrain", &[second], &[])?.status.success());
    told(second, &json!({}))?;
    second.unexport(&namespace)?;
    first.unexport(&namespace)
}

/// Waits until the agents of a cluster are told this.
pub(crate) fn told(cluster: &Cluster, expected: &Value) -> anyhow::Result<()> {
    wait::until(&format!("{expected} in {}", cluster.id), || {
        let property =
            cluster.api().get(&format!("{PROPERTIES}/traffic.clusterset.mcs-agent.io"))?;
        let value = property["spec"]["value"].as_str().context("no value")?;
        ensure!(from_str::<Value>(value)? == *expected, "it is {value}");
        Ok(())
    })
}
