use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use aya_obj::generated::bpf_attach_type;
use serde::{Deserialize, Serialize};

use super::Hook;
use crate::bpf::effective_programs;

/// How many cgroups, or programs, are named.
const NAMED: usize = 8;

/// Which programs run for the sockets of every cgroup, as the kernel tells it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Effect {
    /// Cgroups that were looked at: where ours are attached, and all below.
    pub cgroups: usize,
    /// Those of them where one of ours does not run.
    pub without: usize,
    /// Some of these, each with the program.
    pub without_named: Vec<String>,
    /// Programs of others that run before ours, and where the first was found: they may send a
    /// connection elsewhere.
    pub before: Vec<String>,
}

impl Effect {
    /// How many cgroups have all of ours.
    pub const fn effective(&self) -> usize {
        self.cgroups.saturating_sub(self.without)
    }
}

/// Goes through the cgroups below one, some at a time.
#[derive(Debug)]
pub struct EffectSurvey {
    /// Still to be looked at, parents before children.
    rest: Vec<PathBuf>,
    programs: Vec<(&'static Hook, u32)>,
    /// Programs of others that have been named.
    known: BTreeSet<u32>,
    effect: Effect,
}

impl EffectSurvey {
    /// Looks for these programs at a cgroup and below.
    pub fn begin(root: &Path, programs: Vec<(&'static Hook, u32)>) -> Self {
        let rest = vec![root.to_owned()];
        Self { rest, programs, known: BTreeSet::new(), effect: Effect::default() }
    }

    /// Looks at so many cgroups more. What was found once all have been looked at.
    pub fn go_on(&mut self, count: usize) -> io::Result<Option<Effect>> {
        for _ in 0..count {
            let Some(cgroup) = self.rest.pop() else { break };
            match self.look_at(&cgroup) {
                // One that has just gone.
                Err(error) if is_gone(&error) => {}
                result => result?,
            }
        }
        Ok(self.rest.is_empty().then(|| std::mem::take(&mut self.effect)))
    }

    fn look_at(&mut self, cgroup: &Path) -> io::Result<()> {
        let directory = File::open(cgroup)?;
        let mut lacks = false;
        for (hook, program) in &self.programs {
            let attach_type = bpf_attach_type::from(hook.attach_type);
            let running = effective_programs(directory.as_fd(), attach_type)?;
            let place = running.iter().position(|id| id == program);
            if place.is_none() {
                lacks = true;
                if self.effect.without_named.len() < NAMED {
                    let what = format!("{} in {}", hook.name, cgroup.display());
                    self.effect.without_named.push(what);
                }
            }
            for other in &running[..place.unwrap_or(0)] {
                if self.effect.before.len() < NAMED && self.known.insert(*other) {
                    let what = format!("program {other} ({}, {})", hook.name, cgroup.display());
                    self.effect.before.push(what);
                }
            }
        }
        self.effect.cgroups += 1;
        self.effect.without += usize::from(lacks);
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
