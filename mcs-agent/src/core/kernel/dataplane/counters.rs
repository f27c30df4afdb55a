//! What the programs have counted, and how many clients session affinity remembers.

use std::{collections::BTreeMap, io, path::Path};

use aya::{
    Pod,
    maps::{Map, MapData, PerCpuArray},
};
use mcs_common::{Affinity, AffinityKey, ClientKey, Counter, maps};

use crate::core::kernel::{
    bpf::{PinnedHash, into_io},
    flows::monotonic_ns,
};

/// What the programs counted, summed over CPUs, by [`Counter::name`].
pub type Counts = BTreeMap<String, u64>;

/// Reads the counters pinned in the state directory.
pub fn read(state: &Path) -> io::Result<Counts> {
    let map = open(state, maps::COUNTERS)?;
    Counter::ALL
        .iter()
        .map(|counter| Ok((counter.name().to_owned(), sum(&map, *counter)?)))
        .collect()
}

/// How many new clients got a backend or were refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Connects and flows that got a backend.
    pub translated: u64,
    /// Connects and packets that were refused.
    pub refused: u64,
}

impl Tally {
    /// Adds the counters up.
    pub fn of(counts: &Counts) -> Self {
        let sum = |all: &[Counter]| {
            let values = all.iter().filter_map(|counter| counts.get(counter.name()));
            values.fold(0_u64, |sum, value| sum.wrapping_add(*value))
        };
        Self {
            translated: sum(&[Counter::ConnectTranslated, Counter::FlowCreated]),
            refused: sum(&[
                Counter::RefusedNoBackend,
                Counter::RefusedUnknownPort,
                Counter::RefusedInconsistent,
                Counter::RefusedGone,
                Counter::PacketRefusedNoBackend,
                Counter::PacketRefusedUnknownPort,
                Counter::PacketRefusedInconsistent,
                Counter::PacketRefusedCollision,
                Counter::PacketRefusedGone,
                Counter::PacketRefusedSctp,
            ]),
        }
    }
}

/// Reads one counter.
pub(super) fn read_one(state: &Path, counter: Counter) -> io::Result<u64> {
    sum(&open(state, maps::COUNTERS)?, counter)
}

/// Opens an array that each CPU has for itself, in the state directory.
pub(crate) fn open<V: Pod>(state: &Path, name: &str) -> io::Result<PerCpuArray<MapData, V>> {
    let map = MapData::from_pin(state.join(name)).map_err(into_io)?;
    PerCpuArray::try_from(Map::PerCpuArray(map)).map_err(into_io)
}

fn sum(map: &PerCpuArray<MapData, u64>, counter: Counter) -> io::Result<u64> {
    let values = map.get(&(counter as u32), 0).map_err(into_io)?;
    // Programs wrap around too, and a damaged map may hold anything.
    Ok(values.iter().fold(0, |sum, value| sum.wrapping_add(*value)))
}

/// The meaning of a counter, as in deploy/metrics.md.
pub fn meaning(name: &str) -> &'static str {
    Counter::ALL.iter().find(|counter| counter.name() == name).map_or("", |counter| text(*counter))
}

const fn text(counter: Counter) -> &'static str {
    match counter {
        Counter::ConnectTranslated => "connects sent to a backend",
        Counter::SendTranslated => "datagrams of unconnected sockets sent to a backend",
        Counter::ReceiveReversed => "received datagrams whose source was shown as the VIP",
        Counter::PeerReversed => "peer names shown as the VIP",
        Counter::RefusedNoBackend => "sockets refused: no usable backend",
        Counter::RefusedUnknownPort => {
            "sockets refused: the VIP has no such port, or `--max-memory` no room for it"
        }
        Counter::RefusedInconsistent => {
            "sockets refused: the maps were in a state that no reader should see"
        }
        Counter::RefusedGone => {
            "sockets refused: the VIP's import was deleted less than five minutes ago"
        }
        Counter::SlotUnavailable => {
            "connects whose connection is in socket storage: both slots for the socket were taken, or it was connected already"
        }
        Counter::StorageFailed => {
            "sockets without room for storage; a table holds their state instead"
        }
        Counter::ReverseShared => {
            "two VIPs of one socket share a backend: replies are shown as from the VIP used last"
        }
        Counter::PacketTranslated => "packets to a VIP sent to a backend",
        Counter::PacketReversed => "replies whose source became the VIP",
        Counter::FlowCreated => "new flows",
        Counter::FlowPortChanged => {
            "flows that got another source port, because their replies would look like those of another flow"
        }
        Counter::IcmpTranslated => "ICMP errors translated, with the packet inside",
        Counter::EchoAnswered => "echo requests to a VIP that the node answered",
        Counter::RedirectDropped => "redirects about translated packets",
        Counter::PacketRefusedNoBackend => "packets refused with RST or ICMP: no usable backend",
        Counter::PacketRefusedUnknownPort => {
            "packets refused with RST or ICMP: the VIP has no such port, or `--max-memory` no room for it"
        }
        Counter::PacketRefusedInconsistent => {
            "packets refused with RST or ICMP: the maps were in a state that no reader should see"
        }
        Counter::PacketRefusedCollision => {
            "packets refused with RST or ICMP: no source port would distinguish the replies from those of another flow, or a direct \
             connect to a backend has the port of a flow to it"
        }
        Counter::PacketRefusedGone => {
            "packets refused with RST or ICMP, on a pod's device or an uplink: the VIP's import was deleted less than five minutes ago"
        }
        Counter::PacketRefusedSctp => "SCTP packets refused with ICMP",
        Counter::RefusalLimited => {
            "refused packets without an answer: beyond 1000 a second and CPU"
        }
        Counter::RefusalSilent => {
            "refused packets without an answer: the packet was an answer itself, or too large to become one"
        }
        Counter::PacketDroppedProtocol => "packets to a VIP of a protocol without ports",
        Counter::PacketDroppedMalformed => {
            "packets to a VIP whose headers are cut short, contradictory or nested too deep"
        }
        Counter::PacketDroppedFragment => {
            "later fragments to a VIP whose first fragment was not seen"
        }
        Counter::PacketDroppedIcmp => "ICMP to a VIP that belongs to no flow",
        Counter::PacketDroppedFailed => {
            "packets dropped because the packet or the flow table could not be written"
        }
        Counter::LeakPrevented => {
            "packets to a VIP that no hook had translated, on an uplink: dropped, or answered with a reset if they are of TCP and had passed unchanged"
        }
        Counter::PacketPassed => {
            "packets to a VIP left unchanged: of TCP connections that are older than the agent's service of this VIP, and ICMP errors about no flow"
        }
    }
}

/// How many clients a frontend remembers: network namespaces by socket, and addresses by packet. `frontend`: its index
/// in `states`.
pub fn count_affinity(state: &Path, frontend: u32, seconds: u32) -> io::Result<usize> {
    let now = monotonic_ns();
    let mut clients = 0;
    let mut add = |index: u32, value: Affinity| {
        clients += usize::from(index == frontend && value.holds(now, seconds));
    };
    PinnedHash::<AffinityKey, Affinity>::open(&state.join(maps::AFFINITY))?
        .for_each(|key, value| add(key.frontend, value))?;
    PinnedHash::<ClientKey, Affinity>::open(&state.join(maps::CLIENT_AFFINITY))?
        .for_each(|key, value| add(key.frontend, value))?;
    Ok(clients)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_every_counter_with_its_meaning() {
        let document = include_str!("../../../../../deploy/metrics.md");
        let (_, events) = document.split_once("\n## Events\n").unwrap();
        let mut rows: Vec<_> = events.lines().filter(|line| line.starts_with("| `")).collect();
        let mut expected =
            Counter::ALL.map(|counter| format!("| `{}` | {} |", counter.name(), text(counter)));
        rows.sort_unstable();
        expected.sort_unstable();
        assert_eq!(rows, expected);
    }
}
