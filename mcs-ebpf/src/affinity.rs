//! Session affinity, for both paths: a client returns to the backend that it had.

use core::ptr;

use aya_ebpf::{bindings::BPF_NOEXIST, btf_maps::LruHashMap, helpers::bpf_ktime_get_ns};
use mcs_common::{
    Affinity, FRONTEND_AFFINITY_CLIENT_IP,
    select::{Choice, FrontendMatch, recall_for_new},
};

use crate::maps::{ConfigMaps, LRU_ENTRIES, load};

/// Whether the frontend has `sessionAffinity: ClientIP`.
#[inline(always)]
pub(crate) fn has_affinity(frontend: &FrontendMatch) -> bool {
    frontend.state.flags & FRONTEND_AFFINITY_CLIENT_IP != 0
}

/// The backend that `map` remembers for `key`, or else a backend from `choose`, which the map
/// then remembers. `choose` is told whether the map remembers a backend whose time is over. A kept backend does not count: kube-proxy's affinity knows usable endpoints only.
#[inline(always)]
pub(crate) fn recall_or_choose<K>(
    map: &LruHashMap<K, Affinity, LRU_ENTRIES>,
    key: &K,
    frontend: &FrontendMatch,
    choose: impl FnOnce(bool) -> Option<Choice>,
) -> Option<Choice> {
    // SAFETY: the helper takes no argument.
    let now = unsafe { bpf_ktime_get_ns() };
    // Null instead of an `Option`: LLVM spills a register that an absent one never set, and the
    // verifier rejects that before Linux 6.3.
    let known = map.get_ptr_mut(key).unwrap_or(ptr::null_mut());
    let mut is_over = false;
    if !known.is_null() {
        // SAFETY: the pointer is to a value of the map. If the map evicts and reuses the element
        // meanwhile, the backend's frontend and generation do not match.
        let affinity = unsafe { load(known) };
        is_over = !affinity.holds(now, frontend.state.affinity_seconds);
        if !is_over
            && let Some(choice) = recall_for_new(&ConfigMaps, frontend.index, affinity.backend)
        {
            // SAFETY: as above.
            unsafe { (&raw mut (*known).last_used_ns).write_volatile(now) };
            return Some(Choice { by_affinity: true, ..choice });
        }
    }
    let choice = choose(is_over)?;
    let affinity = Affinity { backend: choice.chosen, last_used_ns: now };
    if !known.is_null() {
        // SAFETY: as above.
        unsafe { known.write_volatile(affinity) };
    } else if map.insert(key, affinity, BPF_NOEXIST.into()).is_err()
        && let Some(first) = map.get_ptr(key)
    {
        // Another CPU chose for this client at the same time. Its choice is used.
        // SAFETY: as above.
        let first = unsafe { load(first) };
        if let Some(choice) = recall_for_new(&ConfigMaps, frontend.index, first.backend) {
            return Some(choice);
        }
    }
    Some(choice)
}
