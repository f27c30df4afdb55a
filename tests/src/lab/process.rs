//! Runs commands to their end.

use std::{
    io::Write as _,
    process::{Command, Output, Stdio},
};

use anyhow::{Context as _, bail};
use serde_json::Value;

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

/// The JSON that a command has printed. Without any it is an error with what it said.
pub fn json(output: &Output) -> anyhow::Result<Value> {
    serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// The list that a command has printed in JSON.
pub fn json_list(output: &Output) -> anyhow::Result<Vec<Value>> {
    match json(output)? {
        Value::Array(list) => Ok(list),
        other => bail!("no list: {other}"),
    }
}
