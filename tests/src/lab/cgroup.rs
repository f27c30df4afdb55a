//! Cgroups of version 2.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use parking_lot::{ReentrantMutex, ReentrantMutexGuard};
use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::{run::Run, wait};

/// How long killed processes may take to end.
const REMOVAL: Duration = Duration::from_secs(30);

/// A cgroup of the run: socket programs attached to it see the sockets that are made by a process
/// while it is in there. It is removed when this is dropped.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Creates one without processes.
    pub fn create(run: &Run, role: &str) -> anyhow::Result<Self> {
        let path = run.cgroup().join(role);
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self { path })
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves this process, with all its threads, into the cgroup until the [`Visit`] is dropped.
    /// The sockets it makes and the processes it starts meanwhile belong there for good. Visits that
    /// other threads want to make wait until then; this one may make another in between.
    pub fn visit(&self) -> anyhow::Result<Visit> {
        let alone = VISITS.lock();
        let visit = Visit { home: own()?, _alone: alone };
        join(&self.path)?;
        Ok(visit)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            eprintln!("cannot remove the cgroup {}: {error:#}", self.path.display());
        }
    }
}

/// A visit: this process is in another cgroup until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Visit {
    home: PathBuf,
    _alone: ReentrantMutexGuard<'static, ()>,
}

/// A process is in one cgroup at a time. Overlapping visits would create sockets in the wrong cgroup, and return to
/// the wrong one.
static VISITS: ReentrantMutex<()> = ReentrantMutex::new(());

impl Drop for Visit {
    fn drop(&mut self) {
        if let Err(error) = join(&self.home) {
            eprintln!("cannot move back to {}: {error:#}", self.home.display());
        }
    }
}

/// Where cgroup v2 is mounted: `/sys/fs/cgroup`, or a directory in it where version 1 is in use too.
pub fn mount_point() -> anyhow::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    mount_point_in(&mounts).context("no cgroup v2 file system is mounted")
}

fn mount_point_in(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let path = fields.next()?;
        (fields.next()? == "cgroup2").then(|| path.into())
    })
}

/// The cgroup that this process is in.
pub(crate) fn own() -> anyhow::Result<PathBuf> {
    let cgroups = fs::read_to_string("/proc/self/cgroup")?;
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::/"));
    Ok(mount_point()?.join(path.context("this process is in no cgroup of version 2")?))
}

/// Moves this process, with all its threads.
pub(crate) fn join(cgroup: &Path) -> anyhow::Result<()> {
    fs::write(cgroup.join("cgroup.procs"), "0")
        .with_context(|| format!("cannot move this process to {}", cgroup.display()))
}

/// Kills what is in a cgroup and below it, and removes it.
pub(crate) fn remove(cgroup: &Path) -> anyhow::Result<()> {
    // A process leaves its cgroup some time after it was killed, and may start another one or make
    // a cgroup before.
    wait::within(REMOVAL, "the processes of a cgroup to end", || {
        kill_below(cgroup)?;
        Ok(remove_empty(cgroup)?)
    })
}

fn kill_below(cgroup: &Path) -> io::Result<()> {
    kill_all(cgroup)?;
    children(cgroup)?.iter().try_for_each(|child| kill_below(child))
}

fn remove_empty(cgroup: &Path) -> io::Result<()> {
    children(cgroup)?.iter().try_for_each(|child| remove_empty(child))?;
    fs::remove_dir(cgroup)
}

fn children(cgroup: &Path) -> io::Result<Vec<PathBuf>> {
    let mut children = Vec::new();
    for entry in fs::read_dir(cgroup)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            children.push(entry.path());
        }
    }
    Ok(children)
}

fn kill_all(cgroup: &Path) -> io::Result<()> {
    for line in fs::read_to_string(cgroup.join("cgroup.procs"))?.lines() {
        let pid = line.parse().ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|pid| *pid != getpid()) {
            // It may already have ended.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    Ok(())
}

pub(crate) fn remove_leftovers(is_leftover: &dyn Fn(&str) -> bool) -> anyhow::Result<()> {
    for entry in fs::read_dir(mount_point()?)? {
        let entry = entry?;
        if is_leftover(&entry.file_name().to_string_lossy()) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_v2_mount() {
        let hybrid = "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(mount_point_in(hybrid), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(
            mount_point_in("none /sys/fs/cgroup cgroup2 rw 0 0"),
            Some("/sys/fs/cgroup".into())
        );
        assert_eq!(mount_point_in("cgroup /sys/fs/cgroup/cpu cgroup rw 0 0"), None);
    }
}
