//! `mcs-agent cleanup-nodes`: cleans all nodes of a DaemonSet before it is deleted.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use mcs_kube::program::{self, print};
use serde_json::Value;

use crate::core::{cli::view::parse_key, model::ObjectKey};

/// Make a DaemonSet of the agent clean its nodes, and wait until every node is clean
///
/// The chart's pre-delete hook runs this. It asks the API server of `$KUBECONFIG` or of the pod's service account.
/// Exits with 1 and names the nodes that are not clean in time.
#[derive(Debug, Args)]
pub(crate) struct CleanupNodesArgs {
    /// The DaemonSet
    #[arg(long, env = "MCS_DAEMON_SET", value_name = "NAMESPACE/NAME", value_parser = parse_key)]
    daemon_set: ObjectKey,

    /// The JSON merge patch that makes its pods run `mcs-agent cleanup`
    #[arg(long, env = "MCS_PATCH", value_name = "JSON", value_parser = |text: &str| text.parse::<Value>())]
    patch: Value,

    /// How long to wait
    #[arg(long, env = "MCS_TIMEOUT", value_name = "SECONDS", default_value_t = 240)]
    timeout: u64,
}

pub(crate) fn run(args: &CleanupNodesArgs) -> anyhow::Result<ExitCode> {
    // Whoever reads the output does not matter to the nodes.
    let tell = |text: &str| drop(print(text));
    let timeout = Duration::from_secs(args.timeout);
    program::block_on(super::clean_nodes(&args.daemon_set, &args.patch, timeout, tell))?;
    Ok(ExitCode::SUCCESS)
}
