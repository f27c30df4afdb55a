//! The run of a suite or of the demo: its names, files and cgroup, and the removal of what it leaves.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
};

use anyhow::Context as _;
use tempfile::TempDir;

use crate::{bpffs, cgroup, netns};

/// Owns what a run needs from its start to its end. Whatever the run puts into the kernel bears its
/// name, `<prefix>-<process id>`, so that the next run of that prefix finds what a killed one left.
#[derive(Debug)]
pub struct Run {
    name: String,
    directory: TempDir,
    cgroup_before: PathBuf,
    cgroup: PathBuf,
}

impl Run {
    /// Removes what killed runs of this prefix left, and moves this process, and with it all that
    /// it will start, to a cgroup of the run. Needs root.
    pub fn begin(prefix: &str) -> anyhow::Result<Self> {
        remove_leftovers(prefix)?;
        let name = format!("{prefix}-{}", process::id());
        let directory = tempfile::Builder::new().prefix(&format!("{name}-")).tempdir()?;
        let cgroup_before = cgroup::own()?;
        let cgroup = cgroup::mount_point()?.join(&name);
        fs::create_dir(&cgroup).with_context(|| {
            format!("cannot make {} to run in (it takes root)", cgroup.display())
        })?;
        cgroup::join(&cgroup)?;
        Ok(Self { name, directory, cgroup_before, cgroup })
    }

    /// The name for something of this run that plays `role`.
    pub fn name(&self, role: &str) -> String {
        format!("{}-{role}", self.name)
    }

    /// A directory on disk that goes with the run. Logs lie here, as `*.log`.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Keeps that directory when the run ends.
    pub fn keep_directory(&mut self) {
        self.directory.disable_cleanup(true);
    }

    /// The cgroup in which the run's processes start.
    pub fn cgroup(&self) -> &Path {
        &self.cgroup
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let left = cgroup::join(&self.cgroup_before).and_then(|()| cgroup::remove(&self.cgroup));
        if let Err(error) = left {
            eprintln!("cannot remove the run's cgroup: {error:#}");
        }
    }
}

/// Removes what runs of this prefix left whose process is gone, and ends the processes they started.
pub fn remove_leftovers(prefix: &str) -> anyhow::Result<()> {
    remove(&|name: &str| owner(prefix, name).is_some_and(|pid| !is_alive(pid)))
}

/// Removes all of this process's run while its threads are still at it, and ends the processes it has
/// started: for when a signal ends this one.
pub fn abandon(prefix: &str) -> anyhow::Result<()> {
    cgroup::join(&cgroup::mount_point()?)?;
    remove(&|name: &str| owner(prefix, name) == Some(process::id()))
}

fn remove(of_run: &dyn Fn(&str) -> bool) -> anyhow::Result<()> {
    cgroup::remove_leftovers(of_run).context("cannot remove cgroups of a run")?;
    bpffs::remove_leftovers(of_run).context("cannot remove pins of a run")?;
    netns::remove_leftovers(of_run).context("cannot remove namespaces of a run")?;
    remove_directories(of_run).context("cannot remove directories of a run")
}

fn remove_directories(is_leftover: &dyn Fn(&str) -> bool) -> anyhow::Result<()> {
    for entry in fs::read_dir(env::temp_dir())? {
        let entry = entry?;
        if is_leftover(&entry.file_name().to_string_lossy()) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// The process whose run made something of this name.
fn owner(prefix: &str, name: &str) -> Option<u32> {
    let rest = name.strip_prefix(prefix)?.strip_prefix('-')?;
    rest.split('-').next()?.parse().ok()
}

/// A process that has ended but was not waited for has no program any more.
fn is_alive(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_process_that_made_them() {
        let cases = [
            ("mcs-test-17", Some(17)),
            ("mcs-test-17-node", Some(17)),
            ("mcs-test-17-pod-2", Some(17)),
            ("mcs-test", None),
            ("mcs-test-", None),
            ("mcs-test-node", None),
            ("mcs-tests-17", None),
            ("cni-17", None),
        ];
        for (name, pid) in cases {
            assert_eq!(owner("mcs-test", name), pid, "{name}");
        }
    }
}
