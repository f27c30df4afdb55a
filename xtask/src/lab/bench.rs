//! `cargo xtask bench`: mcs-agent beside kube-proxy and beside no translation at all.

use std::{
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::{Result, ensure};
use clap::builder::PossibleValuesParser;
use mcs_tests::subjects::{SUBJECTS, Subject};

use crate::{
    build::{self, OBJECT_VARIABLE, RELEASE},
    process,
    screen::say,
    setup::{self, Purpose},
    workspace::Workspace,
};

/// Measure mcs-agent beside kube-proxy and beside no translation at all (as root)
///
/// All contenders get the same objects from a real API server and have their own copy of the same namespaces,
/// which lead nowhere. Prints tables, and writes them as JSON and as plots to target/bench.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to measure; by default all
    #[arg(value_name = "CASE", value_parser = PossibleValuesParser::new(SUBJECTS.iter().map(|subject| subject.name)))]
    cases: Vec<String>,
    /// Print what can be measured, and measure nothing
    #[arg(long)]
    list: bool,
    /// Fewer services and rounds, in less than ten minutes
    #[arg(long)]
    quick: bool,
    /// Numbers of services, such as 10,1000
    #[arg(long, value_name = "N,...")]
    services: Option<String>,
    /// How often each contender has its turn
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Another mcs-agent, which takes part beside this one
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
}

/// Runs the verb.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    if args.list {
        for Subject { name, about } in SUBJECTS {
            say(format_args!("{name:<12} {about}"));
        }
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(
        rustix::process::geteuid().is_root(),
        "takes root: sudo --preserve-env env \"PATH=$PATH\" cargo xtask bench"
    );
    setup::ensure(workspace, &[Purpose::Build, Purpose::Servers, Purpose::Bench])?;
    let object = build::object(workspace)?;
    let agent = build::release(workspace, &object)?;
    build::binaries_of(workspace, &object, RELEASE, &["mcs-bench"], &["bench"])?;
    let mut bench = Command::new(build::suite(workspace, RELEASE, "bench"));
    bench.arg("--output").arg(workspace.target.join("bench"));
    bench.arg("--cache").arg(&workspace.cache);
    bench.args(&args.cases);
    bench.args(args.quick.then_some("--quick"));
    if let Some(services) = &args.services {
        bench.arg("--services").arg(services);
    }
    if let Some(rounds) = args.rounds {
        bench.arg("--rounds").arg(rounds.to_string());
    }
    if let Some(before) = &args.before {
        bench.env("MCS_AGENT_BEFORE", before);
    }
    setup::name_cluster_programs(workspace, &[Purpose::Servers], &mut bench)?;
    bench.env("MCS_NEWEST_KUBE_PROXY", setup::newest_kube_proxy(workspace)?);
    bench.env(OBJECT_VARIABLE, &object).env("MCS_AGENT", &agent);
    process::run(&mut bench)?;
    Ok(ExitCode::SUCCESS)
}
