//! What the agent's pod may write of its node.

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("the agent's pod can write to no cgroup of its node", cgroups);
}

fn cgroups(world: &mut World) -> Result {
    let member = &world.members[0];
    world.release.ensure(member)?;
    let mut uids = Vec::new();
    for pod in agents::pods(member)? {
        let mounts = pod["status"]["containerStatuses"][0]["volumeMounts"].as_array();
        let mut mounts = mounts.into_iter().flatten();
        let cgroup = mounts.find(|mount| mount["mountPath"] == "/host/cgroup");
        let cgroup = cgroup.ok_or_else(|| skip("Kubernetes 1.31 tells what a runtime mounts"))?;
        ensure!(cgroup["readOnly"] == true, "{cgroup}");
        ensure!(cgroup["recursiveReadOnly"] == "Enabled", "the runtime could not: {cgroup}");
        uids.push(pod["metadata"]["uid"].as_str().context("a pod without uid")?.to_owned());
    }
    let found = mounts_here(&uids)?;
    let writable: Vec<_> = found.iter().filter(|(_, options)| !is_read_only(options)).collect();
    ensure!(writable.is_empty(), "writable: {writable:?}");
    tell(format!("{} mounts of cgroups, all read-only", found.len()));
    Ok(())
}

fn is_read_only(options: &str) -> bool {
    options.split(',').any(|option| option == "ro")
}

/// The mounts of cgroups in the containers of these pods, with their options; none where nodes are elsewhere. The other
/// cluster is older: its kubelets know no such mounts.
fn mounts_here(uids: &[String]) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let is_agent = fs::read_to_string(entry.path().join("comm"));
        if !is_agent.is_ok_and(|name| name.trim_end() == agents::NAME) {
            continue;
        }
        // It may have ended.
        let cgroup = fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
        if !uids.iter().any(|uid| cgroup.contains(uid)) {
            continue;
        }
        let text = fs::read_to_string(entry.path().join("mountinfo")).unwrap_or_default();
        for line in text.lines() {
            let mut fields = line.split(' ').skip(4);
            let point = fields.next().context("a mount without a place")?;
            let options = fields.next().context("a mount without options")?;
            if point.starts_with("/host/cgroup") {
                found.push((point.to_owned(), options.to_owned()));
            }
        }
    }
    Ok(found)
}
