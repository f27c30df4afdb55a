use std::{collections::BTreeSet, process::ExitCode};

use serde::Serialize;

use super::{
    Format, ReadArgs,
    output::{self, table},
    view::{self, FrontendView},
};
use crate::model::{ImportReport, ObjectKey};

/// `services -o json`: fields are added, never renamed.
#[derive(Debug, Serialize)]
struct Services {
    /// Every frontend in the maps.
    frontends: Vec<FrontendView>,
    /// Every ServiceImport and what became of it, as the agent wrote it last.
    imports: Vec<ImportReport>,
}

pub(super) fn run(args: &ReadArgs) -> anyhow::Result<ExitCode> {
    let frontends = view::read(&args.bpffs.bpffs)?;
    let imports =
        view::read_report(&args.bpffs.bpffs).map_or_else(Vec::new, |report| report.imports);
    let services = Services { frontends, imports };
    match args.output {
        Format::Json => output::json(&services)?,
        Format::Table => services.print()?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Services {
    fn print(&self) -> anyhow::Result<()> {
        let served: BTreeSet<&ObjectKey> = self.frontends.iter().map(|one| &one.import).collect();
        let frontends = self.frontends.iter().map(|one| {
            vec![
                one.import.to_string(),
                one.frontend.ip.to_string(),
                one.frontend.port.to_string(),
                one.frontend.protocol.to_string(),
                one.affinity(),
                one.clusters(),
                one.state.to_owned(),
            ]
        });
        let others =
            self.imports.iter().filter(|import| !served.contains(&import.import)).map(|import| {
                let mut row = vec!["-".to_owned(); 7];
                row[0] = import.import.to_string();
                row[6] = format!("{}: {}", import.state, import.message);
                row
            });
        table(
            &["NAME", "VIP", "PORT", "PROTOCOL", "AFFINITY", "BACKENDS", "STATE"],
            frontends.chain(others),
        )
    }
}
