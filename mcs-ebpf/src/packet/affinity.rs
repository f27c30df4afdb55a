//! Chooses the backend of a flow: by a number, or with session affinity the client address's.

use aya_ebpf::helpers::bpf_get_prandom_u32;
use mcs_common::{
    Address, ClientKey,
    select::{Choice, FrontendMatch, pick},
};

use crate::{
    affinity::{has_affinity, recall_or_choose},
    maps::{CLIENT_AFFINITY, ConfigMaps},
};

/// Chooses a backend for a client: by `random`, or with affinity the client's former backend.
#[inline(always)]
pub(crate) fn choose_for_client(
    client: &Address,
    frontend: &FrontendMatch,
    random: u32,
) -> Option<Choice> {
    let extent = frontend.state.extent;
    if !has_affinity(frontend) {
        return pick(&ConfigMaps, extent, random);
    }
    let key = ClientKey { client: *client, frontend: frontend.index, pad: 0 };
    // Not `random`, which depends on the connection: this way a client whose entry was evicted
    // gets the same backend again. A client whose time is over may get another one.
    let own = client.short_hash(frontend.index);
    recall_or_choose(&CLIENT_AFFINITY, &key, frontend, |is_over| {
        // SAFETY: the helper takes no argument.
        let random = if is_over { unsafe { bpf_get_prandom_u32() } } else { own };
        pick(&ConfigMaps, extent, random)
    })
}
