//! Runs programs as a person would, and shows what they print.

use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};

use super::Stage;
use crate::demo::world::Place;

impl Stage<'_> {
    /// Runs `curl` at a place. Returns what was typed and printed, and the latter alone.
    pub(super) fn curl(&self, place: Place, arguments: &[&str]) -> Result<(String, Output)> {
        let mut command = Command::new(self.world.script(place));
        let output = command.arg("curl").args(arguments).output().context("cannot run curl")?;
        let typed: Vec<_> = arguments.iter().map(|argument| quote(argument)).collect();
        let shown = format!("{place}$ curl {}\n{}", typed.join(" "), printed(&output));
        Ok((shown, output))
    }

    /// Runs and shows one of the agent's commands, which has to succeed. Returns what it printed.
    pub(super) fn agent(&self, arguments: &[&str]) -> Result<String> {
        let output = self.world.agent.command(arguments)?;
        let line = arguments.join(" ");
        let bpffs = self.world.bpffs.path().display();
        self.screen.block(&format!("$ mcs-agent {line} --bpffs {bpffs}\n{}", printed(&output)));
        ensure!(output.status.success(), "mcs-agent {line}: {}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn printed(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-./:[]=".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{word}'") }
}
