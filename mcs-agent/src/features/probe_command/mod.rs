//! `mcs-agent probe`: what a client on this node reaches, by address, by name and of controllers. `mcs check` runs it on every node.

use std::process::ExitCode;

use anyhow::ensure;
use clap::{Args, Command, FromArgMatches as _};
use mcs_kube::{
    program::{self, print},
    reach::Targets,
};

use crate::core::{
    cli::{BpffsArg, view::RunFiles},
    control::SocketLb,
    feature::{Definition, Verb},
    kernel::loader::{CgroupRoot, Pins, has_this_process},
};

/// The command in the list of features.
pub const FEATURE: Definition = Definition {
    verbs: &[Verb {
        command: || {
            let about = "`mcs check` runs it on every node";
            NodeProbeArgs::augment_args(Command::new("probe")).about(about).hide(true)
        },
        run: |_, matches| run(&NodeProbeArgs::from_arg_matches(matches)?),
    }],
    ..Definition::named("probe_command")
};

#[derive(Debug, Args)]
struct NodeProbeArgs {
    #[command(flatten)]
    targets: Targets,
    #[command(flatten)]
    bpffs: BpffsArg,
}

/// Prints what was found, as JSON. An error says why this process is no such client.
fn run(args: &NodeProbeArgs) -> anyhow::Result<ExitCode> {
    if let Ok(report) = RunFiles::read(&Pins::new(&args.bpffs.bpffs)).report {
        let is_off = report.socket_lb == SocketLb::Off;
        ensure!(
            !is_off,
            "no socket of this node is translated (--socket-lb=off), so that none was tried"
        );
        let named = Some(report.cgroup_path.as_path()).filter(|path| path.is_dir());
        let cgroup = CgroupRoot::find(named)?.path;
        let is_client = has_this_process(&cgroup);
        ensure!(is_client, "the agent is outside of {}, so that none was tried", cgroup.display());
    }
    let found = program::block_on(async { Ok(args.targets.probe().await) })?;
    print(&serde_json::to_string(&found)?)?;
    Ok(ExitCode::SUCCESS)
}
