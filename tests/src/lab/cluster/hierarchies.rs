//! The cgroup hierarchies of this machine, of both versions, as a node has them to itself.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::layout::ClusterSet;
use crate::cgroup;

/// What mount(8) shows for every file system, or for cgroups of every version 1 hierarchy, and what
/// therefore does not tell one hierarchy from the other.
const COMMON: [&str; 9] =
    ["rw", "ro", "nosuid", "nodev", "noexec", "relatime", "xattr", "clone_children", "noprefix"];

/// Every mounted hierarchy.
#[derive(Debug)]
pub(super) struct Hierarchies {
    /// Where that of version 2 is mounted.
    pub(super) unified: PathBuf,
    /// Those of version 1: none, but on hybrid hosts.
    v1: Vec<V1>,
}

/// A hierarchy of version 1.
#[derive(Debug, PartialEq, Eq)]
struct V1 {
    mount: PathBuf,
    /// The mount options that name it.
    controllers: String,
}

impl Hierarchies {
    /// Finds them.
    pub(super) fn find() -> anyhow::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        Ok(Self { unified: cgroup::mount_point()?, v1: v1_in(&mounts) })
    }

    /// Makes a cgroup for a node in each of them, and returns the files by which a process joins
    /// those of version 1.
    pub(super) fn create(&self, path: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let set = path.parent().context("a node's cgroup is inside that of its set")?;
        let unified = self.unified.join(path);
        fs::create_dir_all(&unified)
            .with_context(|| format!("cannot make {}", unified.display()))?;
        for parent in [self.unified.clone(), self.unified.join(set)] {
            delegate(&parent)
                .with_context(|| format!("cannot hand on controllers in {}", parent.display()))?;
        }
        let join = |hierarchy: &V1| {
            let cgroup = hierarchy.mount.join(path);
            for cgroup in [hierarchy.mount.join(set), cgroup.clone()] {
                fs::create_dir_all(&cgroup)
                    .with_context(|| format!("cannot make {}", cgroup.display()))?;
                take_over(&cgroup)?;
            }
            Ok(cgroup.join("cgroup.procs"))
        };
        self.v1.iter().map(join).collect()
    }

    /// The cgroups of a set that are of version 1.
    pub(super) fn v1_cgroups(&self, set: ClusterSet) -> impl Iterator<Item = PathBuf> {
        self.v1.iter().map(move |hierarchy| hierarchy.mount.join(set.name()))
    }

    /// Shell commands that mount the hierarchies again in their places, as a new cgroup namespace
    /// shows them.
    pub(super) fn mount_commands(&self) -> String {
        let mount = |kind: &str, options: &str, path: &Path| {
            let path = path.display();
            format!("mkdir -p {path}\nmount -t {kind} -o {options} cgroup {path}\n")
        };
        if self.v1.is_empty() {
            return mount("cgroup2", "rw", &self.unified);
        }
        let directory = mount("tmpfs", "mode=755", Path::new("/sys/fs/cgroup"));
        let v1 = self.v1.iter().map(|v1| mount("cgroup", &v1.controllers, &v1.mount));
        [directory].into_iter().chain(v1).chain([mount("cgroup2", "rw", &self.unified)]).collect()
    }
}

fn v1_in(mounts: &str) -> Vec<V1> {
    let hierarchy = |line: &str| {
        let fields: Vec<_> = line.split(' ').collect();
        let [_, mount, "cgroup", options, ..] = fields.as_slice() else { return None };
        let naming = |option: &&str| !COMMON.contains(option) && !option.starts_with("release_");
        let controllers: Vec<_> = options.split(',').filter(naming).collect();
        Some(V1 { mount: mount.into(), controllers: controllers.join(",") })
    };
    mounts.lines().filter_map(hierarchy).collect()
}

/// Lets the children of a cgroup of version 2 use all of its controllers.
fn delegate(cgroup: &Path) -> io::Result<()> {
    let controllers = fs::read_to_string(cgroup.join("cgroup.controllers"))?;
    controllers.split_whitespace().try_for_each(|controller| {
        fs::write(cgroup.join("cgroup.subtree_control"), format!("+{controller}"))
    })
}

/// Gives a cgroup of version 1 what its parent has, where it starts without.
fn take_over(cgroup: &Path) -> anyhow::Result<()> {
    for name in ["cpuset.cpus", "cpuset.mems"] {
        let Ok(own) = fs::read_to_string(cgroup.join(name)) else { continue };
        if own.trim().is_empty() {
            let parent = cgroup.parent().context("a cgroup without a parent")?;
            fs::write(cgroup.join(name), fs::read_to_string(parent.join(name))?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_version_1_are_told_apart_by_their_options() {
        let mounts = "\
tmpfs /sys/fs/cgroup tmpfs rw,relatime,mode=755 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,nodev,noexec,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,xattr,release_agent=/lib/agent,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
";
        let hierarchy = |mount: &str, controllers: &str| V1 {
            mount: mount.into(),
            controllers: controllers.to_owned(),
        };
        let expected = [
            hierarchy("/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct"),
            hierarchy("/sys/fs/cgroup/systemd", "name=systemd"),
        ];
        assert_eq!(v1_in(mounts), expected);
        assert_eq!(v1_in("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"), []);
    }

    #[test]
    fn a_node_mounts_what_the_machine_has() {
        let unified = |path: &str, v1| Hierarchies { unified: path.into(), v1 };
        let pure = unified("/sys/fs/cgroup", Vec::new()).mount_commands();
        assert_eq!(pure, "mkdir -p /sys/fs/cgroup\nmount -t cgroup2 -o rw cgroup /sys/fs/cgroup\n");
        let pids = V1 { mount: "/sys/fs/cgroup/pids".into(), controllers: "pids".to_owned() };
        let hybrid = unified("/sys/fs/cgroup/unified", vec![pids]).mount_commands();
        let mounts: Vec<_> = hybrid.lines().filter(|line| line.starts_with("mount")).collect();
        let expected = [
            "mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup",
            "mount -t cgroup -o pids cgroup /sys/fs/cgroup/pids",
            "mount -t cgroup2 -o rw cgroup /sys/fs/cgroup/unified",
        ];
        assert_eq!(mounts, expected);
    }
}
