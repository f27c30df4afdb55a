//! Session affinity: the same client to the same backend.

use core::ptr;

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    btf_maps::LruHashMap,
    helpers::{bpf_get_prandom_u32, bpf_ktime_get_ns},
};
use mcs_common::{
    Address, Affinity, AffinityKey, BackendRef, ClientKey, FRONTEND_AFFINITY_CLIENT_IP,
    select::{Choice, FrontendMatch, pick, recall},
};

use crate::{
    context::{Ctx, Family},
    maps::{AFFINITY, CLIENT_AFFINITY, ConfigMaps, LRU_ENTRIES, load},
};

/// Chooses a backend for a new connection.
#[inline(always)]
pub(crate) fn choose<F: Family>(ctx: &Ctx<F>, frontend: &FrontendMatch) -> Option<Choice> {
    if frontend.state.flags & FRONTEND_AFFINITY_CLIENT_IP == 0 {
        return choose_any(frontend);
    }
    choose_sticky(ctx, frontend)
}

#[inline(always)]
fn choose_any(frontend: &FrontendMatch) -> Option<Choice> {
    // SAFETY: the helper takes no argument.
    pick(&ConfigMaps, frontend.state.extent, unsafe { bpf_get_prandom_u32() })
}

#[inline(always)]
fn choose_sticky<F: Family>(ctx: &Ctx<F>, frontend: &FrontendMatch) -> Option<Choice> {
    stick(&AFFINITY, &key(ctx, frontend), frontend, || choose_any(frontend))
}

/// Chooses a backend for a client that is known by its address: the one that `random` picks, or
/// with affinity the client's.
#[inline(always)]
pub(crate) fn choose_for_client(
    client: &Address,
    frontend: &FrontendMatch,
    random: u32,
) -> Option<Choice> {
    let extent = frontend.state.extent;
    if frontend.state.flags & FRONTEND_AFFINITY_CLIENT_IP == 0 {
        return pick(&ConfigMaps, extent, random);
    }
    let key = ClientKey { client: *client, frontend: frontend.index, pad: 0 };
    // Not by the connection: a client that was evicted finds its backend again.
    let random = client.spread(frontend.index);
    stick(&CLIENT_AFFINITY, &key, frontend, || pick(&ConfigMaps, extent, random))
}

/// The backend that `map` remembers for `key`, or else one that `choose` finds.
#[inline(always)]
fn stick<K>(
    map: &LruHashMap<K, Affinity, LRU_ENTRIES>,
    key: &K,
    frontend: &FrontendMatch,
    choose: impl FnOnce() -> Option<Choice>,
) -> Option<Choice> {
    // SAFETY: the helper takes no argument.
    let now = unsafe { bpf_ktime_get_ns() };
    // Null instead of an `Option`: of an absent one LLVM spills a register that it never set, which
    // the verifier refuses before Linux 6.3.
    let known = map.get_ptr_mut(key).unwrap_or(ptr::null_mut());
    if !known.is_null() {
        // SAFETY: the pointer is to a value of the map. If it is evicted and reused meanwhile, the
        // backend's frontend and generation do not match.
        let affinity = unsafe { load(known) };
        if affinity.holds(now, frontend.state.affinity_seconds)
            && let Some(choice) = recall(&ConfigMaps, frontend.index, affinity.backend)
        {
            // SAFETY: as above.
            unsafe { (&raw mut (*known).last_used_ns).write_volatile(now) };
            return Some(choice);
        }
    }
    let choice = choose()?;
    let affinity = Affinity { backend: choice.chosen, last_used_ns: now };
    if !known.is_null() {
        // SAFETY: as above.
        unsafe { known.write_volatile(affinity) };
    } else if map.insert(key, affinity, BPF_NOEXIST.into()).is_err()
        && let Some(first) = map.get_ptr(key)
    {
        // Another CPU chose for this client at the same time: its choice stands.
        // SAFETY: as above.
        let first = unsafe { load(first) };
        if let Some(choice) = recall(&ConfigMaps, frontend.index, first.backend) {
            return Some(choice);
        }
    }
    Some(choice)
}

/// Takes note that the client uses `backend` again, without choosing.
#[inline(always)]
pub(crate) fn refresh<F: Family>(ctx: &Ctx<F>, frontend: &FrontendMatch, backend: BackendRef) {
    if frontend.state.flags & FRONTEND_AFFINITY_CLIENT_IP == 0 {
        return;
    }
    if let Some(known) = AFFINITY.get_ptr_mut(key(ctx, frontend)) {
        // SAFETY: as in `choose_sticky`; the helper takes no argument.
        unsafe {
            if load(known).backend == backend {
                (&raw mut (*known).last_used_ns).write_volatile(bpf_ktime_get_ns());
            }
        }
    }
}

#[inline(always)]
fn key<F: Family>(ctx: &Ctx<F>, frontend: &FrontendMatch) -> AffinityKey {
    AffinityKey { netns_cookie: ctx.netns_cookie(), frontend: frontend.index, pad: 0 }
}
