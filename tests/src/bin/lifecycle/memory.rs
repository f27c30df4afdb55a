//! A limit on the memory of a process, beyond which the kernel kills it.

use mcs_tests::cgroup;

use crate::prelude::*;

/// A cgroup whose processes share a limit, by whichever version of cgroups counts memory here.
/// It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct MemoryLimit {
    path: PathBuf,
    version: &'static Version,
}

/// The files of a version.
#[derive(Debug)]
struct Version {
    limit: &'static str,
    usage: &'static str,
    /// Where a line tells how many processes were killed.
    kills: &'static str,
}

const V1: Version = Version {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    kills: "memory.oom_control",
};
const V2: Version =
    Version { limit: "memory.max", usage: "memory.current", kills: "memory.events" };

impl MemoryLimit {
    /// Makes one without a limit and without a process.
    pub(crate) fn create(run: &Run, role: &str) -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let (parent, version) = if let Some(v1) = memory_mount(&mounts) {
            (v1, &V1)
        } else {
            // The run's cgroup has processes, so it cannot enable controllers for its children.
            let v2 = cgroup::mount_point()?;
            let controllers = fs::read_to_string(v2.join("cgroup.controllers"))?;
            if !controllers.split_whitespace().any(|name| name == "memory") {
                return Err(skip(format!(
                    "no cgroup controller counts memory: version 2 has `{}`",
                    controllers.trim()
                )));
            }
            fs::write(v2.join("cgroup.subtree_control"), "+memory")
                .context("cannot have memory counted below the root cgroup")?;
            (v2, &V2)
        };
        let path = parent.join(run.name(role));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self { path, version })
    }

    /// Moves a process here. Memory that it allocates from now on counts.
    pub(crate) fn hold(&self, pid: u32) -> Result {
        fs::write(self.path.join("cgroup.procs"), pid.to_string())
            .with_context(|| format!("cannot move process {pid} to {}", self.path.display()))
    }

    /// Sets the limit, in bytes.
    pub(crate) fn set(&self, bytes: u64) -> Result {
        fs::write(self.path.join(self.version.limit), bytes.to_string())
            .with_context(|| format!("cannot limit the memory of {}", self.path.display()))
    }

    /// The current usage in bytes.
    pub(crate) fn usage(&self) -> Result<u64> {
        Ok(fs::read_to_string(self.path.join(self.version.usage))?.trim().parse()?)
    }

    /// How many processes the kernel has killed here.
    pub(crate) fn kills(&self) -> Result<u64> {
        let text = fs::read_to_string(self.path.join(self.version.kills))?;
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        Ok(line.context("the kernel does not count whom it kills")?.trim().parse()?)
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let removed =
            wait::until("a memory cgroup to be empty", || Ok(fs::remove_dir(&self.path)?));
        if let Err(error) = removed {
            eprintln!("cannot remove {}: {error:#}", self.path.display());
        }
    }
}

/// Where the memory controller of version 1 is mounted.
fn memory_mount(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, path, "cgroup", options, ..] = fields[..] else { return None };
        options.split(',').any(|option| option == "memory").then(|| Path::new(path).to_owned())
    })
}
