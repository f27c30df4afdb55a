//! `mcs-agent sockets`: how many sockets are connected to which backends.

use std::{collections::BTreeMap, net::SocketAddr, process::ExitCode};

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;

use super::{ImportFilter, ReadArgs, Style, or_none, view};
use crate::{
    loader::Pins,
    model::{FrontendId, ObjectKey},
    reconcile::{MapContents, NameMap, convert::frontend_key},
    stale::{self, SocketSlotInUse},
};

/// Count the sockets that are connected to each backend through a VIP
///
/// The programs translate the destination of these sockets once, at connect(2). `mcs-agent flows` lists what the packet path
/// translates. A socket counts from its connect(2) until its owner closes it, also if the connection has not come about or has ended. UDP sockets
/// that send without connect(2) do not count, nor do sockets that find no place in a full table.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs-agent sockets
  mcs-agent sockets shop/cart
  mcs-agent sockets -o json | jq 'map(select(.cluster == \"west\").sockets) | add'")]
pub(super) struct SocketsArgs {
    #[command(flatten)]
    filter: ImportFilter,
    #[command(flatten)]
    read: ReadArgs,
}

/// The sockets of one VIP and one backend. `sockets -o json` is a list of them: fields are added, never renamed.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
struct Connected {
    /// The ServiceImport; absent if it was removed, or the backend was.
    #[serde(flatten)]
    import: Option<ObjectKey>,
    /// The ClusterSetIP, port and protocol.
    #[serde(flatten)]
    frontend: FrontendId,
    backend: SocketAddr,
    /// The backend's source cluster; null if its slice names none, or the backend was removed.
    cluster: Option<String>,
    sockets: u64,
}

pub(super) fn run(args: &SocketsArgs) -> anyhow::Result<ExitCode> {
    let import = args.filter.import();
    let pins = Pins::new(&args.read.bpffs.bpffs);
    let read = || {
        let contents = view::read_maps(&pins)?;
        let state = pins.state();
        let sockets = stale::socket_slots_in_use(&state)
            .with_context(|| format!("cannot read the table of sockets in {}", state.display()))?;
        let mut all = count(&contents, &sockets);
        let maps = (&contents, &pins);
        args.filter.keep(import.as_ref(), maps, &mut all, |one| one.import.as_ref())?;
        Ok(all)
    };
    let header = ["VIP", "BACKEND", "CLUSTER", "SERVICE", "SOCKETS"];
    let print = |all: &Vec<_>, style: Style| style.table(&header, all.iter().map(Connected::row));
    args.read.output.print(read, print)
}

fn count(contents: &MapContents, sockets: &[SocketSlotInUse]) -> Vec<Connected> {
    let mut counts = BTreeMap::<Connected, u64>::new();
    for socket in sockets {
        *counts.entry(Connected::of(contents, socket)).or_default() += 1;
    }
    counts.into_iter().map(|(one, sockets)| Connected { sockets, ..one }).collect()
}

impl Connected {
    fn of(contents: &MapContents, socket: &SocketSlotInUse) -> Self {
        let SocketSlotInUse { vip, protocol, backend, id, generation } = *socket;
        let frontend = FrontendId { ip: vip.ip(), port: vip.port(), protocol };
        // Another backend may have the id by now, and another frontend the index.
        let entry = contents.backends.get(id as usize);
        let entry = entry.filter(|entry| entry.generation == generation);
        let state = entry.and_then(|entry| contents.states.get(entry.frontend as usize));
        let state = state.filter(|state| state.key == frontend_key(&frontend));
        let cluster = entry.map(|entry| contents.name(NameMap::Clusters, entry.cluster).cluster());
        Self {
            import: state.map(|state| contents.name(NameMap::Services, state.service).import()),
            frontend,
            backend,
            cluster: cluster.filter(|name| !name.is_empty()),
            sockets: 0,
        }
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.frontend.to_string(),
            self.backend.to_string(),
            or_none(self.cluster.as_ref()),
            or_none(self.import.as_ref()),
            self.sockets.to_string(),
        ]
    }
}
