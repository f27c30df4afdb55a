//! `mcs-agent backends`: the backends of a ServiceImport.

use std::{iter, process::ExitCode};

use anyhow::bail;
use clap::Args;

use super::{
    Format, ReadArgs,
    output::{self, table},
    view::{self, parse_key},
};
use crate::{loader::Pins, model::ObjectKey, reconcile::FrontendView};

/// List the backends that clients of a ServiceImport are sent to, and those that UDP clients stay with (`kept`).
#[derive(Debug, Args)]
pub(super) struct BackendsArgs {
    /// The ServiceImport
    #[arg(value_name = "NAMESPACE/NAME", value_parser = parse_key)]
    import: ObjectKey,
    #[command(flatten)]
    read: ReadArgs,
}

pub(super) fn run(args: &BackendsArgs) -> anyhow::Result<ExitCode> {
    let mut frontends = view::frontends(&view::read_maps(&Pins::new(&args.read.bpffs.bpffs))?);
    frontends.retain(|frontend| frontend.import == args.import);
    if frontends.is_empty() {
        bail!("{} has no frontend in the maps; `mcs-agent services` lists all", args.import);
    }
    match args.read.output {
        Format::Json => output::json(&frontends)?,
        Format::Table => {
            table(
                &["FRONTEND", "BACKEND", "CLUSTER", "ID", "STATE"],
                frontends.iter().flat_map(rows),
            )?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn rows(frontend: &FrontendView) -> Vec<Vec<String>> {
    let name = frontend.frontend.to_string();
    let row = |line: [String; 4]| iter::once(name.clone()).chain(line).collect();
    frontend.backend_lines().into_iter().map(row).collect()
}
