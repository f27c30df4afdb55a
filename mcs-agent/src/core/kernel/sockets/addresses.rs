//! The addresses that sockets and flows have, those of backends that no config map has any more among them.

use std::{collections::HashSet, io, iter, path::Path};

use mcs_common::{Address, ReverseKey, ReverseValue, SentPairs, SocketState, maps};

use super::Connections;
use crate::core::kernel::{
    bpf::{PinnedHash, SocketIterator},
    flows::{FlowEntry, FlowPins, FlowTable},
};

/// Every address for which the programs may look in what sockets and flows have, of all network namespaces: of the maps
/// that are pinned in the state directory, and of these flow tables. One that becomes a backend meanwhile may be missed.
pub fn addresses_in_use(state: &Path, flows: &FlowPins) -> io::Result<Vec<Address>> {
    let (storage, mut found) = (SocketIterator::find()?, HashSet::new());
    // Twice, with reads that end elsewhere: a walk misses the value at the end of a read if another one is removed at that instant.
    // And before `udp_reverse`, where the programs put the pairs that leave the storage.
    for room in [8 << 16, 5 << 10] {
        storage.for_each(
            &state.join(maps::SOCKETS),
            room,
            |SocketState { current, previous, .. }| {
                found.extend([current.backend.addr, previous.backend.addr]);
            },
        )?;
        storage.for_each(
            &state.join(maps::SENT_PAIRS),
            room,
            |SentPairs { latest, previous }| {
                found.extend([latest.backend.addr, previous.backend.addr]);
            },
        )?;
    }
    let connected = Connections::open(state)?.in_use()?;
    found.extend(connected.iter().map(|socket| Address::from(socket.backend.ip())));
    let reverse = PinnedHash::<ReverseKey, ReverseValue>::open(&state.join(maps::UDP_REVERSE))?;
    reverse.for_each(|key, _| found.extend([key.backend.addr]))?;
    for table in iter::once(&flows.table).chain(&flows.former) {
        FlowTable::open(table)?.for_each(|FlowEntry { key, flow }| {
            found.extend([key.src, key.dst, flow.to.src, flow.to.dst]);
        })?;
    }
    Ok(found.into_iter().collect())
}
