//! A `mcs-agent cleanup` that waits for connections.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, ChildStdout, Command, Stdio},
};

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::wait;

/// A cleanup that runs. It is killed when this is dropped.
#[derive(Debug)]
pub struct Cleanup {
    child: Child,
    stdout: BufReader<ChildStdout>,
    first_line: String,
}

impl Cleanup {
    /// Starts it, and waits until it has printed a line.
    pub(super) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot clean up")?;
        let mut stdout = BufReader::new(child.stdout.take().context("no standard output")?);
        let mut first_line = String::new();
        stdout.read_line(&mut first_line)?;
        Ok(Self { child, stdout, first_line })
    }

    /// Whether it waits for connections.
    pub fn waits(&self) -> bool {
        self.first_line.starts_with("waiting for ")
    }

    /// Sends it a signal, and waits until it has ended.
    pub fn interrupt(mut self, signal: Signal) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), signal)?;
        self.child.wait()?;
        Ok(())
    }

    /// Waits until it has removed everything.
    pub fn wait(mut self) -> anyhow::Result<()> {
        wait::until("the cleanup to end", || {
            ensure!(self.child.try_wait()?.is_some(), "it runs");
            Ok(())
        })?;
        let mut said = std::mem::take(&mut self.first_line);
        self.stdout.read_to_string(&mut said)?;
        if let Some(stderr) = &mut self.child.stderr {
            stderr.read_to_string(&mut said)?;
        }
        ensure!(self.child.wait()?.success(), "cleanup: {said}");
        ensure!(said.contains("removed "), "cleanup: {said}");
        Ok(())
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
