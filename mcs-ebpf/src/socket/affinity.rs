//! Chooses the backend of a socket: at random, or with session affinity the network namespace's.

use core::hint::cold_path;

use aya_ebpf::helpers::{bpf_get_prandom_u32, bpf_ktime_get_ns};
use mcs_common::{
    AffinityKey, BackendRef,
    select::{Choice, FrontendMatch, pick},
};

use super::context::{HookFamily, SocketContext};
use crate::{
    affinity::{has_affinity, recall_or_choose},
    maps::{AFFINITY, ConfigMaps, load},
};

/// Chooses a backend for a new connection.
#[inline(always)]
pub(crate) fn choose<F: HookFamily>(
    ctx: &SocketContext<F>,
    frontend: &FrontendMatch,
) -> Option<Choice> {
    if !has_affinity(frontend) {
        return choose_any(frontend);
    }
    cold_path();
    choose_with_affinity(ctx, frontend)
}

#[inline(always)]
fn choose_with_affinity<F: HookFamily>(
    ctx: &SocketContext<F>,
    frontend: &FrontendMatch,
) -> Option<Choice> {
    recall_or_choose(&AFFINITY, &key(ctx, frontend), frontend, |_| choose_any(frontend))
}

#[inline(always)]
fn choose_any(frontend: &FrontendMatch) -> Option<Choice> {
    // SAFETY: the helper takes no argument.
    pick(&ConfigMaps, frontend.state.extent, unsafe { bpf_get_prandom_u32() })
}

/// Restarts the affinity timeout of a client that uses `backend` again without a new choice.
#[inline(always)]
pub(crate) fn refresh<F: HookFamily>(
    ctx: &SocketContext<F>,
    frontend: &FrontendMatch,
    backend: BackendRef,
) {
    if !has_affinity(frontend) {
        return;
    }
    if let Some(known) = AFFINITY.get_ptr_mut(key(ctx, frontend)) {
        // SAFETY: as in `recall_or_choose`; the helper takes no argument.
        unsafe {
            if load(known).backend == backend {
                (&raw mut (*known).last_used_ns).write_volatile(bpf_ktime_get_ns());
            }
        }
    }
}

#[inline(always)]
fn key<F: HookFamily>(ctx: &SocketContext<F>, frontend: &FrontendMatch) -> AffinityKey {
    AffinityKey { netns_cookie: ctx.netns_cookie(), frontend: frontend.index, pad: 0 }
}
