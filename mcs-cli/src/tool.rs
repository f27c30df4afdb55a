//! Runs kubectl and helm for the cluster of a kubeconfig.

use std::{
    env,
    process::{Output, Stdio},
};

use anyhow::{Context as _, bail};
use tokio::{io::AsyncWriteExt as _, process::Command};

use crate::kubeconfig::KubeconfigArg;

/// A tool for the cluster of a kubeconfig.
pub(crate) fn tool(
    name: &str,
    context_flag: &str,
    kubeconfig: &KubeconfigArg,
) -> anyhow::Result<Command> {
    let mut command = Command::new(name);
    command.kill_on_drop(true);
    match &*kubeconfig.files {
        [file] => command.arg("--kubeconfig").arg(file),
        // The tool merges the files itself.
        files => command.env("KUBECONFIG", env::join_paths(files)?),
    };
    command.args([context_flag, &kubeconfig.context_name()?]);
    Ok(command)
}

/// Runs a tool.
pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    output(command, &[]).await.map(drop)
}

/// Runs a tool with this input and returns its output. An error has its last lines.
pub(crate) async fn output(command: Command, input: &[u8]) -> anyhow::Result<Vec<u8>> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    let output = ended(command, input).await?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    bail!("{name}: {}", said_last(&output))
}

/// Runs a tool with this input to its end.
pub(crate) async fn ended(mut command: Command, input: &[u8]) -> anyhow::Result<Output> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {name}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A failed tool reports its own error.
        let _ = stdin.write_all(input).await;
    }
    child.wait_with_output().await.with_context(|| format!("cannot run {name}"))
}

/// The last lines of a tool's output.
pub(crate) fn said_last(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    said[said.len().saturating_sub(3)..].join(" ")
}
