//! `mcs-agent sockets`: how many sockets have which backends.

use std::{collections::BTreeMap, process::ExitCode};

use anyhow::Context as _;
use clap::{Args, Command, FromArgMatches as _};
use mcs_kube::{program::Style, report::SocketCount};

use crate::core::{
    cli::{ImportFilter, ReadArgs, or_none, view},
    feature::{Definition, Verb},
    kernel::{
        loader::Pins,
        sockets::{self, Connections, Sender, SocketInUse},
    },
    model::FrontendId,
    tables::{
        MapContents, NameMap,
        contents::{backend_address, frontend_id, frontend_key},
    },
};

/// The command in the list of features.
pub const FEATURE: Definition = Definition {
    verbs: &[Verb {
        command: || SocketsArgs::augment_args(Command::new("sockets")),
        run: |_, matches| run(&SocketsArgs::from_arg_matches(matches)?),
    }],
    ..Definition::named("socket_list")
};

/// Count the sockets that have each backend through a VIP
///
/// SOCKETS: the programs have translated their destination once, at connect(2). Such a socket counts until its owner closes it, also if the connection
/// has not come about or has ended. One of UDP that has connected again can count for both backends; one of MPTCP, or that was closed while no program was
/// attached, counts until the agent frees its slot. Sockets that had connected before `--socket-lb=off` do not count, nor do those without option memory
/// (counter `storage_failed`). UNCONNECTED: UDP sockets that send without connect(2). Their datagrams go to the backend as long as it serves. `mcs-agent
/// flows` lists what the packet path translates.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs-agent sockets
  mcs-agent sockets shop/cart
  mcs-agent sockets -o json | jq 'map(select(.cluster == \"west\") | .sockets + .unconnected) | add'")]
pub(crate) struct SocketsArgs {
    #[command(flatten)]
    filter: ImportFilter,
    #[command(flatten)]
    read: ReadArgs,
}

pub(crate) fn run(args: &SocketsArgs) -> anyhow::Result<ExitCode> {
    let import = args.filter.import();
    let pins = Pins::new(&args.read.bpffs.bpffs);
    let read = || {
        let contents = view::read_maps(&pins)?;
        let state = pins.state();
        let sockets = Connections::open(&state)
            .and_then(|connections| connections.in_use())
            .with_context(|| format!("cannot read the sockets in {}", state.display()))?;
        let senders = sockets::senders(&state)
            .with_context(|| format!("cannot read the UDP sockets in {}", state.display()))?;
        let mut all = count(&contents, &sockets, &senders);
        let maps = (&contents, &pins);
        args.filter.keep(import.as_ref(), maps, &mut all, |one| one.import.as_ref())?;
        Ok(all)
    };
    let header = ["VIP", "BACKEND", "CLUSTER", "SERVICE", "SOCKETS", "UNCONNECTED"];
    let print = |all: &Vec<_>, style: Style| style.table(&header, all.iter().map(row));
    args.read.output.print(read, print)
}

fn count(contents: &MapContents, sockets: &[SocketInUse], senders: &[Sender]) -> Vec<SocketCount> {
    let mut counts = BTreeMap::<SocketCount, [u64; 2]>::new();
    for socket in sockets {
        counts.entry(of(contents, socket)).or_default()[0] += 1;
    }
    for one in senders.iter().filter_map(|sender| of_sender(contents, *sender)) {
        counts.entry(one).or_default()[1] += 1;
    }
    let counted =
        |(one, [sockets, unconnected]): (_, [u64; 2])| SocketCount { sockets, unconnected, ..one };
    counts.into_iter().map(counted).collect()
}

fn of(contents: &MapContents, socket: &SocketInUse) -> SocketCount {
    let SocketInUse { vip, protocol, backend, chosen } = *socket;
    let frontend = FrontendId { ip: vip.ip(), port: vip.port(), protocol };
    let key = frontend_key(&frontend);
    let entry = if let Some((id, generation)) = chosen {
        // Another backend may have the id by now, and another frontend the index.
        let entry = contents.backends.get(id as usize);
        entry.filter(|entry| entry.generation == generation)
    } else {
        contents.frontends.get(&key).and_then(|index| {
            let mut entries = contents.backends.iter().filter(|one| one.frontend == *index);
            entries.find(|one| backend_address(one) == backend)
        })
    };
    let state = entry.and_then(|entry| contents.states.get(entry.frontend as usize));
    let state = state.filter(|state| state.key == key);
    let cluster = entry.map(|entry| contents.name(NameMap::Clusters, entry.cluster).cluster());
    SocketCount {
        import: state.map(|state| contents.name(NameMap::Services, state.service).import()),
        frontend,
        backend,
        cluster: cluster.filter(|name| !name.is_empty()),
        sockets: 0,
        unconnected: 0,
    }
}

/// `None` if its backend does not serve any more: its next datagram goes to another one.
fn of_sender(contents: &MapContents, Sender { frontend, chosen }: Sender) -> Option<SocketCount> {
    let backend = contents.remembered(frontend, chosen)?;
    let state = contents.states.get(frontend as usize)?;
    let cluster = contents.name(NameMap::Clusters, backend.cluster).cluster();
    Some(SocketCount {
        import: Some(contents.name(NameMap::Services, state.service).import()),
        frontend: frontend_id(&state.key)?,
        backend: backend_address(&backend),
        cluster: Some(cluster).filter(|name| !name.is_empty()),
        sockets: 0,
        unconnected: 0,
    })
}

fn row(one: &SocketCount) -> Vec<String> {
    vec![
        one.frontend.to_string(),
        one.backend.to_string(),
        or_none(one.cluster.as_ref()),
        or_none(one.import.as_ref()),
        one.sockets.to_string(),
        one.unconnected.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use mcs_common::BackendRef;

    use super::*;
    use crate::core::{
        model::{Capacity, DesiredState, ObjectKey, Protocol},
        tables::fixtures::{desired, frontend, id, maps},
    };

    const CAPACITY: Capacity =
        Capacity { vips: 4, frontends: 4, endpoints: 8, clusters: 2, imports: 4 };
    const EAST: (&str, &str) = ("10.1.0.1:53", "east");
    const WEST: (&str, &str) = ("10.2.0.1:53", "west");

    /// A UDP service whose new clients get `backends`, while `also_serving` keeps its present ones.
    fn dns(backends: &[(&str, &str)], also_serving: &[(&str, &str)]) -> DesiredState {
        let mut dns = frontend("dns", backends);
        dns.also_serving = frontend("dns", also_serving).backends;
        desired([(FrontendId { protocol: Protocol::Udp, ..id("10.0.0.1", 53) }, dns)])
    }

    #[test]
    fn a_socket_without_slot_has_the_backend_of_its_address() {
        let (both, now) = (dns(&[EAST, WEST], &[]), dns(&[EAST], &[WEST]));
        let contents = maps(CAPACITY, &[&both, &now]).0.contents().clone();
        let socket = |backend: &str, protocol| SocketInUse {
            vip: "10.0.0.1:53".parse().unwrap(),
            protocol,
            backend: backend.parse().unwrap(),
            chosen: None,
        };
        for (backend, protocol, expected) in [
            (WEST.0, Protocol::Udp, Some("west")),
            ("10.2.0.9:53", Protocol::Udp, None),
            (WEST.0, Protocol::Tcp, None),
        ] {
            let found = count(&contents, &[socket(backend, protocol)], &[]);
            assert_eq!((found.len(), found[0].sockets), (1, 1));
            assert_eq!(found[0].cluster.as_deref(), expected);
            assert_eq!(found[0].import.is_some(), expected.is_some());
        }
    }

    #[test]
    fn who_sends_without_connecting_counts_while_the_backend_serves() {
        let both = dns(&[EAST, WEST], &[]);
        let before = maps(CAPACITY, &[&both]).0.contents().clone();
        let backends = (0..).zip(before.backends.iter());
        let of_west = |(_, one): &(u32, &_)| backend_address(one).to_string() == WEST.0;
        let (id, west) = backends.into_iter().find(of_west).unwrap();
        let chosen = BackendRef { id, generation: west.generation };
        let sender = Sender { frontend: west.frontend, chosen };
        let senders = [sender, sender, Sender { frontend: west.frontend + 1, chosen }];
        for (now, expected) in [
            (both.clone(), 2),
            // Drained: who has it keeps it.
            (dns(&[EAST], &[WEST]), 2),
            // Past the deadline.
            (dns(&[EAST], &[]), 0),
        ] {
            let contents = maps(CAPACITY, &[&both, &now]).0.contents().clone();
            let found = count(&contents, &[], &senders);
            assert_eq!(found.iter().map(|one| one.unconnected).sum::<u64>(), expected, "{now:?}");
            for one in found {
                let cluster = one.cluster.as_deref();
                assert_eq!((cluster, &*one.backend.to_string()), (Some("west"), WEST.0));
                assert_eq!(one.import, Some(ObjectKey::new("demo", "dns")));
            }
        }
    }
}
