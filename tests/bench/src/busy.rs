//! A node whose CPUs others use up, with the weights that kubelet gives.

use std::process;

use crate::prelude::*;

/// `cpu.shares` of a pod that requests a whole CPU.
const SHARES: u64 = 1024;
/// What the chart requests for an agent, in thousandths of a CPU.
const REQUEST: u64 = 50;

/// A cgroup with a daemon, and one with a process for each CPU that never rests. It ends when this is dropped.
pub(crate) struct Busy {
    pods: PathBuf,
    others: Vec<Child>,
}

impl Busy {
    /// Begins beside a daemon. All others together request what is left of the node.
    pub(crate) fn begin(daemon: u32) -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let root = controller(&mounts).context("no cgroup v1 has the controller cpu")?;
        let cpus = u64::try_from(thread::available_parallelism()?.get())?;
        let pods = root.join(format!("mcs-bench-{}", process::id()));
        let mut busy = Self { pods: pods.clone(), others: Vec::new() };
        make(&pods, cpus * SHARES)?;
        make(&pods.join("daemon"), REQUEST * SHARES / 1000)?;
        make(&pods.join("others"), cpus * SHARES - REQUEST * SHARES / 1000)?;
        join(&pods.join("daemon"), daemon)?;
        for _ in 0..cpus {
            let other = Command::new("sh").args(["-c", "while :; do :; done"]).spawn()?;
            let pid = other.id();
            busy.others.push(other);
            join(&pods.join("others"), pid)?;
        }
        Ok(busy)
    }

    fn end(&mut self) -> Result {
        for other in &mut self.others {
            other.kill()?;
            other.wait()?;
        }
        let root = self.pods.parent().context("a cgroup has a parent")?;
        for pid in fs::read_to_string(self.pods.join("daemon/cgroup.procs"))?.lines() {
            join(root, pid.parse()?)?;
        }
        for path in [self.pods.join("daemon"), self.pods.join("others"), self.pods.clone()] {
            wait::until("a cgroup to be empty", || Ok(fs::remove_dir(&path)?))?;
        }
        Ok(())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("cannot remove {}: {error:#}", self.pods.display());
        }
    }
}

fn controller(mounts: &str) -> Option<&Path> {
    mounts.lines().find_map(|line| {
        let [_, path, "cgroup", options, ..] = line.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        options.split(',').any(|option| option == "cpu").then_some(Path::new(path))
    })
}

fn make(cgroup: &Path, shares: u64) -> Result {
    fs::create_dir(cgroup).with_context(|| format!("cannot make {}", cgroup.display()))?;
    Ok(fs::write(cgroup.join("cpu.shares"), shares.to_string())?)
}

fn join(cgroup: &Path, pid: u32) -> Result {
    fs::write(cgroup.join("cgroup.procs"), pid.to_string())
        .with_context(|| format!("cannot move process {pid} to {}", cgroup.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_is_found_among_others() {
        let mounts = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
                      cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n";
        assert_eq!(controller(mounts), Some(Path::new("/sys/fs/cgroup/cpu,cpuacct")));
        assert_eq!(controller("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"), None);
    }
}
