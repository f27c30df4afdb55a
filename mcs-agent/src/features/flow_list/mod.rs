//! `mcs-agent flows`: the flows of the packet path.

use std::{net::SocketAddr, process::ExitCode};

use anyhow::Context as _;
use clap::{Args, Command, FromArgMatches as _};
use mcs_common::{Address, FlowFlags};
use mcs_kube::{program::Style, report::FlowView};

use crate::core::{
    cli::{ImportFilter, ReadArgs, or_none, view},
    feature::{Definition, Verb},
    kernel::{
        flows::{FlowPair, FlowTable, monotonic_ns},
        loader::Pins,
    },
    model::{FrontendId, Protocol},
    tables::{MapContents, NameMap, contents::frontend_key},
};

/// The command in the list of features.
pub const FEATURE: Definition = Definition {
    verbs: &[Verb {
        command: || FlowsArgs::augment_args(Command::new("flows")),
        run: |_, matches| run(&FlowsArgs::from_arg_matches(matches)?),
    }],
    ..Definition::named("flow_list")
};

/// List the flows of the packet path, which translates what the socket path does not
///
/// FLAGS: hairpin (the client is its own backend), port-changed (the backend sees another source
/// port), backend-gone (a TCP connection to a backend that was removed), half (one of the flow's two
/// entries was evicted because the table is full), passed (a TCP connection whose packets stay as they are: it is
/// older than the agent's service of this VIP, or it is a direct one, and VIP names its backend).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs-agent flows
  mcs-agent flows shop/cart
  mcs-agent flows -o json | jq -r '.[] | select(.state == \"established\") | .backend'")]
pub(crate) struct FlowsArgs {
    #[command(flatten)]
    filter: ImportFilter,
    #[command(flatten)]
    read: ReadArgs,
}

pub(crate) fn run(args: &FlowsArgs) -> anyhow::Result<ExitCode> {
    let import = args.filter.import();
    let pins = Pins::new(&args.read.bpffs.bpffs);
    let read = || {
        let contents = view::read_maps(&pins)?;
        let mut flows = read_flows(&pins, &contents)?;
        let maps = (&contents, &pins);
        args.filter.keep(import.as_ref(), maps, &mut flows, |flow| flow.import.as_ref())?;
        flows.sort();
        Ok(flows)
    };
    let header = ["CLIENT", "VIP", "BACKEND", "CLUSTER", "SERVICE", "STATE", "IDLE", "FLAGS"];
    let print = |flows: &Vec<_>, style: Style| style.table(&header, flows.iter().map(row));
    args.read.output.print(read, print)
}

fn read_flows(pins: &Pins, contents: &MapContents) -> anyhow::Result<Vec<FlowView>> {
    let pin = pins.flows();
    let flows = FlowTable::open(&pin)
        .and_then(|table| table.flows())
        .with_context(|| format!("cannot read the flow table {}", pin.display()))?;
    let now_ns = monotonic_ns();
    Ok(flows.iter().filter_map(|flow| of_pair(contents, flow, now_ns)).collect())
}

/// `None` for a protocol other than TCP and UDP.
fn of_pair(contents: &MapContents, pair: &FlowPair, now_ns: u64) -> Option<FlowView> {
    let (client, translated, flow) = (pair.client(), pair.translated(), pair.flow());
    let frontend = FrontendId {
        ip: client.dst.to_ip(),
        port: client.dst_port,
        protocol: Protocol::from_number(client.protocol)?,
    };
    // Another frontend or backend may have the index or id by now.
    let state = contents.states.get(flow.frontend as usize);
    let service = state
        .filter(|state| state.key == frontend_key(&frontend))
        .map(|state| contents.name(NameMap::Services, state.service));
    let backend = contents.backends.get(flow.chosen.id as usize).filter(|backend| {
        backend.generation == flow.chosen.generation && backend.frontend == flow.frontend
    });
    let cluster = backend
        .map(|backend| contents.name(NameMap::Clusters, backend.cluster).cluster())
        .filter(|name| !name.is_empty());
    let serves = backend.is_some_and(|backend| backend.still_serves(flow.frontend, flow.chosen));
    let passed = flow.flags & FlowFlags::PASSED != 0;
    let flags = [
        ("hairpin", flow.flags & FlowFlags::HAIRPIN != 0),
        ("port-changed", client.src_port != translated.src_port),
        ("backend-gone", !serves && !passed),
        ("half", pair.entries().count() == 1),
        ("passed", passed),
    ];
    Some(FlowView {
        import: service.map(|record| record.import()),
        frontend,
        client: address(client.src, client.src_port),
        backend: address(translated.dst, translated.dst_port),
        cluster,
        state: pair.state().name().into(),
        idle_seconds: now_ns.saturating_sub(pair.last_seen_ns()) / 1_000_000_000,
        flags: flags.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| (*name).into()).collect(),
    })
}

fn row(flow: &FlowView) -> Vec<String> {
    vec![
        flow.client.to_string(),
        flow.frontend.to_string(),
        flow.backend.to_string(),
        or_none(flow.cluster.as_ref()),
        or_none(flow.import.as_ref()),
        flow.state.to_string(),
        format!("{}s", flow.idle_seconds),
        or_none((!flow.flags.is_empty()).then(|| flow.flags.join(","))),
    ]
}

fn address(ip: Address, port: u16) -> SocketAddr {
    SocketAddr::new(ip.to_ip(), port)
}
