//! Runs commands to their end.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};

/// Runs a command to its end, with `input` on its standard input. Returns its standard output; a
/// command that fails is an error with what it said.
pub fn run(command: &mut Command, input: &str) -> anyhow::Result<String> {
    let text = format!("{command:?}");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {text}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that ends without reading tells why by its status.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().with_context(|| format!("cannot wait for {text}"))?;
    if !output.status.success() {
        bail!("{text}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
