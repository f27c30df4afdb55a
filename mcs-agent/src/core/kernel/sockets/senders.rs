//! The UDP sockets that send to a VIP without connect(2), as the programs remember them.

use std::{collections::HashSet, io, path::Path};

use mcs_common::{BackendRef, PinKey, maps};

use crate::core::kernel::bpf::PinnedHash;

/// A socket that has sent to a frontend, and that may do so again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sender {
    /// The frontend's index.
    pub frontend: u32,
    /// The backend that its datagrams go to as long as that serves.
    pub chosen: BackendRef,
}

/// Every sender in the map that is pinned in the state directory, once for each frontend. The programs remove it at close(2);
/// a socket that was closed while no program was attached is listed until the kernel evicts it.
pub fn senders(state: &Path) -> io::Result<Vec<Sender>> {
    let mut entries = Vec::new();
    PinnedHash::open(&state.join(maps::UDP_PINS))?
        .for_each(|key, chosen| entries.push((key, chosen)))?;
    Ok(open(&entries))
}

/// Those whose socket is not closed.
fn open(entries: &[(PinKey, BackendRef)]) -> Vec<Sender> {
    let is_end = |key: &PinKey| key.frontend == PinKey::CLOSED;
    let closed: HashSet<u64> =
        entries.iter().filter(|(key, _)| is_end(key)).map(|(key, _)| key.cookie).collect();
    let open = entries.iter().filter(|(key, _)| !is_end(key) && !closed.contains(&key.cookie));
    open.map(|&(PinKey { frontend, .. }, chosen)| Sender { frontend, chosen }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_socket_is_no_sender() {
        let pin = |cookie, frontend| {
            let chosen = BackendRef { id: frontend, generation: 0 };
            (PinKey { cookie, frontend, pad: 0 }, chosen)
        };
        let entries = [pin(1, 7), pin(1, 8), pin(2, 7), pin(2, 8), pin(1, PinKey::CLOSED)];
        let left: Vec<_> = open(&entries).iter().map(|one| (one.frontend, one.chosen.id)).collect();
        assert_eq!(left, [(7, 7), (8, 8)]);
    }
}
