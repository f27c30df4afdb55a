//! `mcs-agent backends`: the backends of a ServiceImport.

use std::{iter, process::ExitCode};

use clap::Args;

use super::{NamespaceArg, ReadArgs, print, view};
use crate::{loader::Pins, model::Traffic, reconcile::FrontendView};

/// List the backends that clients of a ServiceImport are sent to, and those that UDP clients stay with (`kept`).
#[derive(Debug, Args)]
pub(super) struct BackendsArgs {
    /// The ServiceImport; with --namespace its NAME is enough
    #[arg(value_name = "NAMESPACE/NAME")]
    import: String,
    #[command(flatten)]
    namespace: NamespaceArg,
    #[command(flatten)]
    read: ReadArgs,
}

pub(super) fn run(args: &BackendsArgs) -> anyhow::Result<ExitCode> {
    let import = args.namespace.import(&args.import);
    let pins = Pins::new(&args.read.bpffs.bpffs);
    let read = || {
        let mut frontends = view::frontends(view::of(&view::read_maps(&pins)?));
        view::expect_import(&import, &frontends, &pins)?;
        frontends.retain(|frontend| frontend.import == import);
        Ok(frontends)
    };
    args.read.output.print(read, |frontends, style| {
        let header = ["FRONTEND", "BACKEND", "CLUSTER", "SHARE", "ID", "STATE"];
        style.table(&header, frontends.iter().flat_map(rows))?;
        let traffic = view::read_report(&pins).map(|report| report.node.traffic);
        match traffic.unwrap_or_default() {
            traffic if traffic == Traffic::default() => Ok(()),
            traffic => print(&format!("Source clusters: {traffic}")),
        }
    })
}

fn rows(frontend: &FrontendView) -> Vec<Vec<String>> {
    let name = frontend.frontend.to_string();
    let row = |line: [String; 5]| iter::once(name.clone()).chain(line).collect();
    frontend.backend_lines().into_iter().map(row).collect()
}
