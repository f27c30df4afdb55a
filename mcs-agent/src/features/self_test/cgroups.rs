//! Asks the kernel which programs run in each cgroup.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::core::kernel::loader::Hook;

/// The most cgroups and programs that the result names.
const NAMED: usize = 8;

/// Which programs run for the sockets of every cgroup, according to the kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CgroupCoverage {
    /// Cgroups that were checked: the one where the programs are attached, and all below.
    pub cgroups: usize,
    /// Cgroups where at least one of the programs does not run.
    pub without: usize,
    /// Some of them, each with the program.
    pub without_named: Vec<String>,
    /// Programs of others that run before ours, each with a cgroup. They may send a connection elsewhere.
    pub before: Vec<String>,
    /// The first of them that runs everywhere before a program of ours that replaces a VIP by a backend. Ours can come before it;
    /// they come after the programs of cgroups below in any case.
    #[serde(default)]
    pub translates_first: Option<String>,
}

impl CgroupCoverage {
    /// Cgroups where all of the programs run.
    pub const fn effective(&self) -> usize {
        self.cgroups.saturating_sub(self.without)
    }
}

/// A walk through a cgroup and all cgroups below, in steps.
#[derive(Debug)]
pub struct CgroupWalk {
    /// Cgroups to check, parents before children.
    rest: Vec<PathBuf>,
    programs: Vec<(&'static Hook, u32)>,
    /// Programs of others that have a name in the result.
    known: BTreeSet<u32>,
    coverage: CgroupCoverage,
}

impl CgroupWalk {
    /// Looks for these programs at a cgroup and below.
    pub fn new(root: &Path, programs: Vec<(&'static Hook, u32)>) -> Self {
        let rest = vec![root.to_owned()];
        Self { rest, programs, known: BTreeSet::new(), coverage: CgroupCoverage::default() }
    }

    /// The result so far.
    pub const fn so_far(&self) -> &CgroupCoverage {
        &self.coverage
    }

    /// Checks `count` more cgroups. Returns the result after the last one.
    pub fn check_next(&mut self, count: usize) -> io::Result<Option<CgroupCoverage>> {
        for _ in 0..count {
            let Some(cgroup) = self.rest.pop() else { break };
            match self.check(&cgroup) {
                // The cgroup was removed meanwhile.
                Err(error) if is_gone(&error) => {}
                result => result?,
            }
        }
        Ok(self.rest.is_empty().then(|| std::mem::take(&mut self.coverage)))
    }

    fn check(&mut self, cgroup: &Path) -> io::Result<()> {
        let directory = File::open(cgroup)?;
        let is_root = self.coverage.cgroups == 0;
        let mut lacks = false;
        for (hook, program) in &self.programs {
            let running = hook.running(directory.as_fd(), Some(*program))?;
            if !running.runs {
                lacks = true;
                if self.coverage.without_named.len() < NAMED {
                    let what = format!("{} in {}", hook.name, cgroup.display());
                    self.coverage.without_named.push(what);
                }
            }
            for other in running.before {
                let what = || format!("program {other} ({}, {})", hook.name, cgroup.display());
                if is_root && hook.translates() && self.coverage.translates_first.is_none() {
                    self.coverage.translates_first = Some(what());
                }
                if self.coverage.before.len() < NAMED && self.known.insert(other) {
                    self.coverage.before.push(what());
                }
            }
        }
        self.coverage.cgroups += 1;
        self.coverage.without += usize::from(lacks);
        for entry in fs::read_dir(cgroup)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                self.rest.push(entry.path());
            }
        }
        Ok(())
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}
