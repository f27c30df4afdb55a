//! Stops a thread of another process, by ptrace(2).

use std::fs;

use anyhow::Context as _;
use nix::{
    sys::{
        ptrace,
        wait::{WaitPidFlag, waitpid},
    },
    unistd::Pid,
};

/// A thread of another process that is stopped until this is dropped.
#[derive(Debug)]
pub struct Stopped(Pid);

impl Stopped {
    /// Stops the first thread of the process.
    pub fn main_thread(pid: u32) -> anyhow::Result<Self> {
        Self::stop(Pid::from_raw(pid.try_into()?))
    }

    /// Stops the thread of the process that has this name.
    pub fn thread(pid: u32, name: &str) -> anyhow::Result<Self> {
        let is_named = |tid: &str| {
            let comm = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"));
            comm.is_ok_and(|comm| comm.trim_end() == name)
        };
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
        let mut tids = tasks.filter_map(|task| task.file_name().into_string().ok());
        let tid = tids.find(|tid| is_named(tid)).with_context(|| format!("no thread {name}"))?;
        Self::stop(Pid::from_raw(tid.parse()?))
    }

    fn stop(tid: Pid) -> anyhow::Result<Self> {
        ptrace::seize(tid, ptrace::Options::empty())?;
        let stopped = Self(tid);
        ptrace::interrupt(tid)?;
        waitpid(tid, Some(WaitPidFlag::__WALL))?;
        Ok(stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = ptrace::detach(self.0, None);
    }
}
