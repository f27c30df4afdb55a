//! `mcs-agent explain`, as cases ask it.

use std::{
    collections::BTreeSet,
    process::{Command, Output},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::Agent;
use crate::{netns::Namespace, process, wait};

/// How long an explanation takes at most.
const LIMIT: Duration = Duration::from_secs(10);

impl Agent {
    /// Runs `explain` in a network namespace.
    pub fn run_explain(&self, netns: &Namespace, words: &[&str]) -> anyhow::Result<Output> {
        let mut command: Command = netns.command("timeout");
        command.arg("20").arg(self.binary()).arg("explain").args(words);
        let began = Instant::now();
        let output = command.arg("--bpffs").arg(self.bpffs()).env_clear().output()?;
        let took = began.elapsed();
        ensure!(took < wait::scaled(LIMIT), "{words:?} took {took:?}");
        Ok(output)
    }

    /// The same. Fails unless it ends with this status, and finds exactly these codes. Returns all that it says.
    pub fn explain(
        &self,
        netns: &Namespace,
        words: &[&str],
        status: i32,
        codes: &[&str],
    ) -> anyhow::Result<Value> {
        let output = self.run_explain(netns, &[words, &["--output", "json"]].concat())?;
        let said = process::json(&output)?;
        let findings = said["findings"].as_array().context("no findings")?;
        let found: BTreeSet<_> = findings.iter().filter_map(|one| one["code"].as_str()).collect();
        ensure!(found == codes.iter().copied().collect(), "{words:?}: {findings:#?}");
        ensure!(output.status.code() == Some(status), "{words:?}: {}", output.status);
        Ok(said)
    }
}

/// `address fate` of each endpoint of the first import.
pub fn fates(said: &Value) -> BTreeSet<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let slices = list(&said["imports"][0]["slices"]);
    let endpoints = slices.iter().flat_map(|slice| list(&slice["endpoints"]));
    let fate =
        |one: Value| format!("{} {}", one["address"], one["fates"][0]["fate"]).replace('"', "");
    endpoints.map(fate).collect()
}
