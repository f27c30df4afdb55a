//! `mcs-agent cleanup`: removes the agent's programs and maps from the kernel.

mod drain;

use std::{path::Path, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use clap::{Args, builder::BoolishValueParser};
use mcs_kube::program::{self, Signals};

use super::{BpffsArg, print};
use crate::core::{
    control::{self, Report},
    feature::Definition,
    kernel::{
        dataplane::{Run, read_run_record},
        loader::{DirectoryLock, Pins, detach_all},
    },
};

/// Detach every program and remove every map of the agent, and nothing else.
///
/// ClusterSetIPs lead where they lead without the agent. Connections of the socket path continue. Those of the packet
/// path get --drain to end. Filters (--tc-attach=clsact) are removed only in the network namespace of this command.
#[derive(Debug, Args)]
pub(super) struct CleanupArgs {
    #[command(flatten)]
    bpffs: BpffsArg,

    /// Wait this long for TCP connections of the packet path, which end with the programs; new ones already go where
    /// they go without the agent. 0: do not wait. After SIGTERM or SIGINT in this time nothing is removed, and an agent
    /// can take over
    #[arg(long, env = "MCS_DRAIN", value_name = "SECONDS", default_value_t = 180,
        value_parser = clap::value_parser!(u64).range(..=86_400))]
    drain: u64,

    /// Keep running until SIGTERM or SIGINT: a `DaemonSet` restarts a container that exits
    #[arg(long, env = "MCS_WAIT", value_parser = BoolishValueParser::new())]
    wait: bool,
}

pub(super) fn run(args: &CleanupArgs, features: &[Definition]) -> anyhow::Result<ExitCode> {
    program::block_on(async {
        let mut signals = Signals::listen()?;
        clean(&args.bpffs.bpffs, features, Duration::from_secs(args.drain), &mut signals).await?;
        if args.wait {
            signals.next().await;
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn clean(
    bpffs: &Path,
    features: &[Definition],
    drain: Duration,
    signals: &mut Signals,
) -> anyhow::Result<()> {
    let pins = Pins::new(bpffs);
    let root = pins.root().display();
    if !pins.root().exists() {
        return print(&format!("nothing to clean up: {root} does not exist"));
    }
    let run = read_run_record(&pins.run()).ok();
    let lock =
        DirectoryLock::try_take(pins.root()).with_context(|| format!("cannot lock {root}"))?;
    if lock.is_none() {
        let holder = run.map_or_else(|| "an mcs-agent".to_owned(), |run| run.to_string());
        bail!("{root} belongs to {holder}: stop it first");
    }
    drain::drain(&pins, drain, signals).await?;
    if let Some(run) = run {
        remove_report(&run, &pins, features);
    }
    let detached = detach_all(&pins).await.context("cannot detach programs from devices")?;
    let cleaned = pins.clean().with_context(|| format!("cannot remove {root}"))?;
    print(&format!(
        "removed {root}: {} programs detached, {} maps unpinned",
        cleaned.links + detached.programs,
        cleaned.maps
    ))?;
    if detached.elsewhere {
        print(
            "left: filters on devices of another network namespace, where the agent ran: remove \
             them there with `tc qdisc del dev DEVICE clsact`",
        )?;
    }
    if cleaned.foreign {
        print(&format!("left {root}: it contains files of others"))?;
    }
    Ok(())
}

/// Removes the status file. In another mount namespace it may not exist, or belong to another agent. An agent that
/// was killed before it wrote one leaves its predecessor's, in a directory whose name ends with the mark of these
/// pins.
fn remove_report(run: &Run, pins: &Pins, features: &[Definition]) {
    let is_marked = control::run_directory_mark(pins).is_ok_and(|mark| {
        run.directory.file_name().is_some_and(|name| name.to_string_lossy().ends_with(&mark))
    });
    let report = Report::read(&run.directory).ok().filter(|report| is_marked || report.is_of(run));
    if let Some(report) = &report {
        for feature in features {
            (feature.clean)(report);
        }
    }
    if is_marked || report.is_some() {
        control::remove_files(&run.directory);
    }
}
