//! The agent needs each capability that the chart gives.

use mcs_tests::agent::CAPABILITY_FOR_STALE_UDP;

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case(
        "without any one of its capabilities the agent says which, and is not ready if it needs it",
        each,
    );
}

fn each(world: &mut World) -> Result {
    let member = &world.members[0];
    world.release.install(member, &["staleUdp.enabled=true"])?;
    let daemon_set = agents::daemon_set(member)?;
    let container = &daemon_set["spec"]["template"]["spec"]["containers"][0];
    let given = container["securityContext"]["capabilities"]["add"].clone();
    let names: Vec<String> = serde_json::from_value(given).context("no capabilities")?;
    let more = CAPABILITY_FOR_STALE_UDP.to_uppercase();
    let (more, needed): (Vec<_>, Vec<_>) = names.iter().partition(|name| **name == more);
    ensure!(!needed.is_empty() && !more.is_empty(), "the chart gives {names:?} alone");
    // SYS_ADMIN, which only stale UDP needs, includes some of the others and would hide that they are needed.
    let missed = needed.iter().try_for_each(|name| {
        let others: Vec<_> = needed.iter().filter(|other| *other != name).collect();
        give(member, &json!(others))?;
        wait::within(PATIENCE, &format!("an agent without {name} to say so"), || {
            is_missed(member, name, others.len())
        })
    });
    let missed = missed.and_then(|()| {
        give(member, &json!(needed))?;
        agents::wait(member)?;
        agents::pods(member)?.iter().try_for_each(|pod| {
            let log = agents::log(member, pod)?;
            ensure!(log.contains("it takes CAP_SYS_ADMIN"), "it says {log:?}");
            Ok(())
        })
    });
    give(member, &json!(names))?;
    agents::wait(member)?;
    tell(names.join(", "));
    world.release.install(member, &[])?;
    missed
}

fn give(member: &Member, capabilities: &Value) -> Result {
    let place = "/spec/template/spec/containers/0/securityContext/capabilities/add";
    agents::patch(member, &json!([{ "op": "replace", "path": place, "value": capabilities }]))
}

/// An error unless there are pods with that many capabilities, none of them is ready, and each says
/// what it lacks. On other nodes there may be older ones: the update stops.
fn is_missed(member: &Member, name: &str, others: usize) -> Result {
    let is_new = |pod: &Value| {
        let given = &pod["spec"]["containers"][0]["securityContext"]["capabilities"]["add"];
        given.as_array().is_some_and(|given| given.len() == others)
            && !given.to_string().contains(name)
    };
    let pods: Vec<_> = agents::pods(member)?.into_iter().filter(is_new).collect();
    ensure!(!pods.is_empty(), "every pod is an old one");
    for pod in pods {
        let status = &pod["status"]["containerStatuses"][0];
        ensure!(status["ready"] == false, "a pod is ready");
        let log = agents::log(member, &pod)?;
        ensure!(log.contains(&format!("CAP_{name}")), "it says {log:?}");
    }
    Ok(())
}
