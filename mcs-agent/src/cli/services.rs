//! `mcs-agent services`: every frontend, and every import that has none.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    process::ExitCode,
    sync::Arc,
};

use clap::Args;
use serde::Serialize;

use super::{NamespaceArg, ReadArgs, Style, print, view};
use crate::{
    loader::Pins,
    model::{Departure, ImportReport, ObjectKey},
    reconcile::FrontendView,
};

/// `services -o json`: fields are added, never renamed.
#[derive(Debug, Serialize)]
struct Services {
    /// Every frontend in the maps.
    frontends: Vec<FrontendView>,
    /// Whether the status file was read and says how things are now. If not, nothing is known of imports without frontend.
    reported: bool,
    /// Why not: `imports` are then as of another time, or absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreported: Option<String>,
    /// Every ServiceImport and its state, from the status file.
    imports: Arc<Vec<Arc<ImportReport>>>,
    /// Addresses that were VIPs, which the maps keep for a while.
    departed: BTreeMap<IpAddr, Departure>,
}

/// List every frontend: its ServiceImport, VIP, port, affinity, and backends by source cluster; and imports without one
#[derive(Debug, Args)]
pub(super) struct ServicesArgs {
    #[command(flatten)]
    namespace: NamespaceArg,
    #[command(flatten)]
    read: ReadArgs,
}

pub(super) fn run(args: &ServicesArgs) -> anyhow::Result<ExitCode> {
    let pins = Pins::new(&args.read.bpffs.bpffs);
    args.read.output.print(|| Services::read(&pins, &args.namespace), Services::print)
}

impl Services {
    fn read(pins: &Pins, namespace: &NamespaceArg) -> anyhow::Result<Self> {
        let maps = view::read_maps(pins)?;
        let mut view = view::of(&maps);
        let mut departed = std::mem::take(&mut view.departed);
        let mut frontends = view::frontends(view);
        frontends.retain(|frontend| namespace.has(&frontend.import));
        // Without a report, only the imports that have no frontend are missing.
        let (report, unreported) = view::report_and_doubt(pins);
        let reported = unreported.is_none();
        let imports = report.map(|report| report.imports).unwrap_or_default();
        let of_namespace = imports.iter().filter(|import| namespace.has(&import.import)).cloned();
        // No namespace has an address that departed.
        departed.retain(|_, _| namespace.namespace.is_none());
        let imports = Arc::new(of_namespace.collect());
        Ok(Self { frontends, reported, unreported, imports, departed })
    }

    fn print(&self, style: Style) -> anyhow::Result<()> {
        let served: BTreeSet<&ObjectKey> = self.frontends.iter().map(|one| &one.import).collect();
        let reasons: BTreeMap<_, _> =
            self.imports.iter().map(|import| (&import.import, import.message.as_str())).collect();
        let frontends = self.frontends.iter().map(|one| {
            vec![
                one.import.to_string(),
                one.frontend.ip.to_string(),
                one.frontend.port.to_string(),
                one.frontend.protocol.to_string(),
                one.affinity(),
                one.clusters(),
                one.state.to_string(),
                reasons.get(&one.import).copied().unwrap_or_default().to_owned(),
            ]
        });
        let others = self.imports.iter().filter(|import| !served.contains(&import.import));
        let others = others.map(|import| {
            let mut row = unserved(import.state.to_string(), import.message.clone());
            row[0] = import.import.to_string();
            row
        });
        let departed = self.departed.iter().map(|(vip, departure)| {
            let mut row = unserved(departure.to_string(), departure.meaning().to_owned());
            row[1] = vip.to_string();
            row
        });
        style.table(
            &["NAME", "VIP", "PORT", "PROTOCOL", "AFFINITY", "BACKENDS", "STATE", "REASON"],
            frontends.chain(others).chain(departed),
        )?;
        self.unreported
            .iter()
            .try_for_each(|doubt| print(&format!("Reasons, and imports without frontend: {doubt}")))
    }
}

/// A row without a frontend.
fn unserved(state: String, reason: String) -> Vec<String> {
    let mut row = vec!["-".to_owned(); 6];
    row.extend([state, reason]);
    row
}
