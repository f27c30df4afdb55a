//! `mcs-agent services`: every frontend, and every import that has none.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    process::ExitCode,
    sync::Arc,
};

use clap::{Args, Command, FromArgMatches as _};
use mcs_kube::{
    program::{Style, print},
    report::ImportList,
};
use serde::Serialize;

use crate::core::{
    cli::{NamespaceArg, ReadArgs, view},
    feature::{Definition, Verb},
    kernel::loader::Pins,
    model::{Departure, ObjectKey},
    tables::FrontendView,
};

/// The command in the list of features.
pub const FEATURE: Definition = Definition {
    verbs: &[Verb {
        command: || ServicesArgs::augment_args(Command::new("services")),
        run: |_, matches| run(&ServicesArgs::from_arg_matches(matches)?),
    }],
    ..Definition::named("service_list")
};

/// `services -o json`: fields are added, never renamed.
#[derive(Debug, Serialize)]
struct Services {
    /// Every frontend in the maps.
    frontends: Vec<FrontendView>,
    #[serde(flatten)]
    list: ImportList,
    /// Addresses that were VIPs, which the maps keep for a while.
    departed: BTreeMap<IpAddr, Departure>,
}

/// List every frontend: its ServiceImport, VIP, port, affinity, and backends by source cluster; and imports without one
#[derive(Debug, Args)]
pub(crate) struct ServicesArgs {
    #[command(flatten)]
    namespace: NamespaceArg,
    #[command(flatten)]
    read: ReadArgs,
}

pub(crate) fn run(args: &ServicesArgs) -> anyhow::Result<ExitCode> {
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
        let imports = report.map(|report| report.imports).unwrap_or_default();
        let of_namespace = imports.iter().filter(|import| namespace.has(&import.import)).cloned();
        // No namespace has an address that departed.
        departed.retain(|_, _| namespace.namespace.is_none());
        let imports = Arc::new(of_namespace.collect());
        let list = ImportList { reported: unreported.is_none(), unreported, imports };
        Ok(Self { frontends, list, departed })
    }

    fn print(&self, style: Style) -> anyhow::Result<()> {
        let served: BTreeSet<&ObjectKey> = self.frontends.iter().map(|one| &one.import).collect();
        let reasons: BTreeMap<_, _> = self
            .list
            .imports
            .iter()
            .map(|import| (&import.import, import.message.as_str()))
            .collect();
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
        let others = self.list.imports.iter().filter(|import| !served.contains(&import.import));
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
        let mut unreported = self.list.unreported.iter();
        unreported
            .try_for_each(|doubt| print(&format!("Reasons, and imports without frontend: {doubt}")))
    }
}

/// A row without a frontend.
fn unserved(state: String, reason: String) -> Vec<String> {
    let mut row = vec!["-".to_owned(); 6];
    row.extend([state, reason]);
    row
}

#[cfg(test)]
mod tests {
    use mcs_kube::report::ServiceTables;

    use super::*;
    use crate::core::{
        model::{FrontendId, Protocol},
        tables::{BackendView, FrontendStatus},
    };

    #[test]
    fn mcs_reads_what_it_prints() {
        let address = "10.1.0.1:8080".parse().unwrap();
        let backend =
            BackendView { address, cluster: "east".to_owned(), id: 1, slots: 1, generation: 1 };
        let frontend = FrontendView {
            import: ObjectKey::new("shop", "web"),
            frontend: FrontendId { ip: [241, 0, 0, 1].into(), port: 80, protocol: Protocol::Tcp },
            affinity_seconds: None,
            state: FrontendStatus::Ready,
            backends: vec![backend],
            kept: vec![],
            index: 0,
            extent: mcs_common::Extent::default(),
        };
        let list = ImportList { reported: true, unreported: None, imports: Arc::default() };
        let printed = Services { frontends: vec![frontend], list, departed: BTreeMap::new() };
        let printed = serde_json::to_value(printed).unwrap();
        let read: ServiceTables = serde_json::from_value(printed).unwrap();
        assert_eq!(read.frontends[0].import.to_string(), "shop/web");
        assert_eq!(read.frontends[0].frontend.to_string(), "241.0.0.1:80/TCP");
        assert_eq!(read.frontends[0].backends[0].address, address);
    }
}
