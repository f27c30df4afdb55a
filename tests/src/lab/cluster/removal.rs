//! Removing a set of clusters, whatever state it is in.

use std::{fs, io, iter, path::Path, process::Command};

use anyhow::Context as _;

use super::{claim::Claim, hierarchies::Hierarchies};
use crate::{cgroup, netns, process};

/// Removes every process, cgroup, mount, namespace and file of a set. A missing one is no
/// error: the set may have been interrupted at any point, or may never have existed.
pub fn remove(claim: &Claim) -> anyhow::Result<()> {
    let set = claim.set();
    // Killing comes first. The mounts of a node, and what it has pinned, go with its last process.
    let hierarchies = Hierarchies::find()?;
    let cgroups = iter::once(hierarchies.unified.join(set.name()));
    for cgroup in cgroups.chain(hierarchies.v1_cgroups(set)).filter(|cgroup| cgroup.exists()) {
        cgroup::remove(&cgroup).with_context(|| format!("cannot remove {}", cgroup.display()))?;
    }
    // A namespace goes some time after its name; this link is to be gone at once.
    let link = set.name();
    if Path::new("/sys/class/net").join(link).exists() {
        process::run(Command::new("ip").args(["link", "delete", link]), "")?;
    }
    let prefix = format!("{}-", set.name());
    netns::remove_leftovers(&|name| name.starts_with(&prefix))
        .context("cannot remove network namespaces")?;
    let directory = set.directory();
    match fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}
