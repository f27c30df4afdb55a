//! `mcs-agent services`: every frontend, and every import that has none.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    process::ExitCode,
    sync::Arc,
};

use serde::Serialize;

use super::{
    Format, ReadArgs,
    output::{self, table},
    view,
};
use crate::{
    loader::Pins,
    model::{Departure, ImportReport, ObjectKey},
    reconcile::{FrontendView, MapView},
};

/// `services -o json`: fields are added, never renamed.
#[derive(Debug, Serialize)]
struct Services {
    /// Every frontend in the maps.
    frontends: Vec<FrontendView>,
    /// Every ServiceImport and its state, from the status file.
    imports: Arc<Vec<Arc<ImportReport>>>,
    /// Addresses that were VIPs, which the maps keep for a while.
    departed: BTreeMap<IpAddr, Departure>,
}

pub(super) fn run(args: &ReadArgs) -> anyhow::Result<ExitCode> {
    let pins = Pins::new(&args.bpffs.bpffs);
    let maps = view::read_maps(&pins)?;
    let frontends = view::frontends(&maps);
    let departed = MapView::of(&maps).departed;
    // Without a report, only the imports that have no frontend are missing.
    let imports = view::read_report(&pins).map(|report| report.imports).unwrap_or_default();
    let services = Services { frontends, imports, departed };
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
                one.state.to_string(),
            ]
        });
        let others =
            self.imports.iter().filter(|import| !served.contains(&import.import)).map(|import| {
                let mut row = vec!["-".to_owned(); 7];
                row[0] = import.import.to_string();
                row[6] = format!("{}: {}", import.state, import.message);
                row
            });
        let departed = self.departed.iter().map(|(vip, departure)| {
            let mut row = vec!["-".to_owned(); 7];
            row[1] = vip.to_string();
            row[6] = format!("{departure}: {}", departure.meaning());
            row
        });
        table(
            &["NAME", "VIP", "PORT", "PROTOCOL", "AFFINITY", "BACKENDS", "STATE"],
            frontends.chain(others).chain(departed),
        )
    }
}
