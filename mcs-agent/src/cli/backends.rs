use std::process::ExitCode;

use anyhow::bail;
use clap::Args;

use super::{
    Format, ReadArgs,
    output::{self, table},
    view::{self, FrontendView, parse_key},
};
use crate::{loader::Pins, model::ObjectKey};

/// List where the clients of a ServiceImport go.
#[derive(Debug, Args)]
pub(super) struct BackendsArgs {
    /// The ServiceImport
    #[arg(value_name = "NAMESPACE/NAME", value_parser = parse_key)]
    import: ObjectKey,
    #[command(flatten)]
    read: ReadArgs,
}

pub(super) fn run(args: &BackendsArgs) -> anyhow::Result<ExitCode> {
    let mut frontends = view::frontends(&view::dump(&Pins::new(&args.read.bpffs.bpffs))?);
    frontends.retain(|frontend| frontend.import == args.import);
    if frontends.is_empty() {
        bail!("{} has no frontend in the maps; `mcs-agent services` lists all", args.import);
    }
    match args.read.output {
        Format::Json => output::json(&frontends)?,
        Format::Table => {
            table(&["FRONTEND", "BACKEND", "CLUSTER", "ID"], frontends.iter().flat_map(rows))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn rows(frontend: &FrontendView) -> Vec<Vec<String>> {
    let name = frontend.frontend.to_string();
    if frontend.backends.is_empty() {
        return vec![vec![name, "none: refused".to_owned(), "-".to_owned(), "-".to_owned()]];
    }
    let row = |backend: &view::BackendView| {
        vec![
            name.clone(),
            backend.address.to_string(),
            backend.cluster.clone(),
            backend.id.to_string(),
        ]
    };
    frontend.backends.iter().map(row).collect()
}
