//! `mcs-agent backends`: the backends of a ServiceImport.

use std::{iter, process::ExitCode};

use clap::Args;

use super::{NamespaceArg, ReadArgs, or_none, print, view};
use crate::core::{
    feature::{Definition, TierLine, tier_lines},
    kernel::loader::Pins,
    model::{Tiers, Traffic},
    tables::FrontendView,
};

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

pub(super) fn run(args: &BackendsArgs, features: &[Definition]) -> anyhow::Result<ExitCode> {
    let import = args.namespace.import(&args.import);
    let pins = Pins::new(&args.read.bpffs.bpffs);
    let read = || {
        let mut frontends = view::frontends(view::of(&view::read_maps(&pins)?));
        view::expect_import(&import, &frontends, &pins)?;
        frontends.retain(|frontend| frontend.import == import);
        Ok(frontends)
    };
    args.read.output.print(read, |frontends, style| {
        let (report, doubt) = view::report_and_doubt(&pins);
        let mut imports = report.iter().flat_map(|report| report.imports.iter());
        let of_import = imports.find(|one| one.import == import);
        let asked = of_import.and_then(|one| one.tiers.as_ref());
        let made = of_import.map(|one| tier_lines(features, &one.sections)).unwrap_or_default();
        let tiers: Vec<_> = asked.into_iter().chain(made.iter().map(|line| &line.tiers)).collect();
        let tier = (!tiers.is_empty()).then_some("TIER");
        let header = ["FRONTEND", "BACKEND", "CLUSTER", "SHARE", "ID", "STATE"];
        let header: Vec<_> = header.into_iter().chain(tier).collect();
        style.table(&header, frontends.iter().flat_map(|frontend| rows(frontend, &tiers)))?;
        if let Some(doubt) = doubt {
            print(&format!("Tiers, passive health, and settings of source clusters: {doubt}"))?;
        }
        if let Some(tiers) = asked {
            print(&format!("Tiers: {tiers}"))?;
        }
        for TierLine { name, text, .. } in &made {
            print(&format!("{name} {text}"))?;
        }
        let ejections = report.iter().flat_map(|report| &report.ejections);
        for one in ejections.filter(|one| one.import == import) {
            print(&format!("Passive health: {one}"))?;
        }
        match report.as_ref().map(|report| &report.common.node.traffic) {
            Some(traffic) if *traffic != Traffic::default() => {
                print(&format!("Source clusters: {traffic}"))
            }
            _ => Ok(()),
        }
    })
}

/// If the import has tiers, each row ends with the first one that has the backend's cluster.
fn rows(frontend: &FrontendView, tiers: &[&Tiers]) -> Vec<Vec<String>> {
    let name = frontend.frontend.to_string();
    let row = |line: [String; 5]| {
        let number = tiers.iter().find_map(|tiers| tiers.number_of(&line[1]));
        let tier = (!tiers.is_empty()).then(|| or_none(number));
        iter::once(name.clone()).chain(line).chain(tier).collect()
    };
    frontend.backend_lines().into_iter().map(row).collect()
}
