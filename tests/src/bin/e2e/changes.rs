//! The agent is restarted and replaced under load.

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("the agent's pods are deleted under load", deleted);
    suite.case("a rolling update under load: another annotation", annotated);
    suite.case("a rolling update under load: another image and smaller maps", other_image);
}

/// Does `work` in both clusters while every client uses the other one's servers. Nothing may fail.
fn under_load(world: &World, name: &str, work: impl Fn(&Member) -> Result) -> Result {
    let mut loads = Vec::new();
    let mut targets = Vec::new();
    for (importer, exporter) in world.directions() {
        let target = imported(world, name, importer, exporter)?;
        for client in Client::all(importer) {
            client.reach(&target, exporter)?;
            loads.push(client.load(&target, &[exporter])?);
        }
        targets.push((target, importer));
    }
    for member in &world.members {
        let before = uids(member)?;
        work(member)?;
        let after = uids(member)?;
        ensure!(before.iter().all(|uid| !after.contains(uid)), "an agent is still the same");
    }
    let answers = loads.into_iter().map(Load::end).sum::<Result<u64>>()?;
    tell(format!("{answers} answers"));
    for (target, importer) in targets {
        target.withdraw(importer)?;
    }
    Ok(())
}

/// Which pods there are.
fn uids(member: &Member) -> Result<Vec<Value>> {
    let pods = agents::pods(member)?;
    Ok(pods.into_iter().map(|mut pod| pod["metadata"]["uid"].take()).collect())
}

fn deleted(world: &mut World) -> Result {
    under_load(world, "deleted", agents::delete_pods)
}

fn annotated(world: &mut World) -> Result {
    under_load(world, "annotated", |member| {
        world.release.install(member, &["podAnnotations.example\\.com/changed=yes"])
    })
}

fn other_image(world: &mut World) -> Result {
    const TAG: &str = "next";

    for member in &world.members {
        world.release.ensure(member)?;
        let nodes = member.nodes();
        if nodes.is_empty() {
            return Err(skip(format!("the nodes of {} have one image", member.name)));
        }
        let daemon_set = agents::daemon_set(member)?;
        let image = &daemon_set["spec"]["template"]["spec"]["containers"][0]["image"];
        let image = image.as_str().unwrap_or_default();
        let (repository, _) = image.rsplit_once(':').unwrap_or((image, ""));
        let next = format!("{repository}:{TAG}");
        for node in nodes {
            cluster::tag(&world.clusters.programs, node, image, &next)?;
        }
    }
    under_load(world, "updated", |member| {
        let values = [format!("image.tag={TAG}"), "capacity.memory=512Ki".to_owned()];
        world.release.install(member, &values.each_ref().map(String::as_str))
    })
}
