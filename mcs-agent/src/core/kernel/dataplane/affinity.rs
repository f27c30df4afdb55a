//! The clients that session affinity remembers.

use std::{io, path::Path};

use mcs_common::{Affinity, AffinityKey, ClientKey, maps};

use crate::core::kernel::{bpf::PinnedHash, flows::monotonic_ns};

/// How many clients a frontend remembers: network namespaces by socket, and addresses by packet. `frontend`: its index
/// in `states`.
pub fn count(state: &Path, frontend: u32, seconds: u32) -> io::Result<usize> {
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
