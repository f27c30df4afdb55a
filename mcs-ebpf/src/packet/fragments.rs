//! Translates IP fragments: only the first has the ports, and the later ones are treated like it.
#![expect(
    clippy::needless_borrows_for_generic_args,
    reason = "what is passed by value is copied to the stack, which has no room for it"
)]

use aya_ebpf::bindings::BPF_ANY;
use mcs_common::FlowFlags;

use super::{
    clock::tick_ns,
    frame::{Frame, LinkLayer, OutOfBounds},
    header::{FragmentPosition, IpHeader},
    ip::IpVersion,
    rewrite::rewrite,
    verdict::NEXT,
};
use crate::{
    maps::{FRAGMENTS, load_into},
    per_cpu::Scratch,
};

#[inline(always)]
fn set_key<F: IpVersion>(header: &IpHeader, scratch: &mut Scratch) {
    let key = &mut scratch.fragment_key;
    key.src = scratch.tuple.src;
    key.dst = scratch.tuple.dst;
    key.id = header.id;
    key.protocol = if F::FRAGMENTS_BY_PROTOCOL { header.protocol } else { 0 };
    key.pad = 0;
    key.pad2 = 0;
    key.device = scratch.tuple.device;
    key.pad3 = 0;
}

/// Remembers how a datagram is translated, if this is its first fragment.
#[inline(always)]
pub(crate) fn remember<F: IpVersion>(header: &IpHeader, scratch: &mut Scratch) {
    if header.fragment != FragmentPosition::First {
        return;
    }
    set_key::<F>(header, scratch);
    scratch.fragment.to = scratch.flow.to;
    scratch.fragment.first_seen_ns = tick_ns();
    scratch.fragment.flags = scratch.flow.flags;
    scratch.fragment.pad = 0;
    // If it fails, the later fragments are dropped, and the datagram is lost.
    let _ = FRAGMENTS.insert(&scratch.fragment_key, &scratch.fragment, BPF_ANY.into());
}

/// Forgets the datagram that had the same identification before this one, which is not translated.
#[inline(always)]
pub(crate) fn forget<F: IpVersion>(header: &IpHeader, scratch: &mut Scratch) {
    if header.fragment == FragmentPosition::First {
        set_key::<F>(header, scratch);
        // An absent entry counts as success.
        let _ = FRAGMENTS.remove(&scratch.fragment_key);
    }
}

/// Translates a later fragment like the first one and returns the verdict, or `None` if the first has
/// not been seen.
#[inline(always)]
pub(crate) fn follow<F: IpVersion, L: LinkLayer>(
    frame: &Frame<L>,
    header: &IpHeader,
    scratch: &mut Scratch,
) -> Option<Result<i32, OutOfBounds>> {
    set_key::<F>(header, scratch);
    // SAFETY: the pointer is to a value of the map. If the map reuses the element meanwhile, this
    // fragment goes to a wrong place and its datagram is never reassembled.
    unsafe { load_into(&mut scratch.fragment, FRAGMENTS.get_ptr(&scratch.fragment_key)?) };
    let first = &scratch.fragment;
    if !first.holds(tick_ns()) {
        return None;
    }
    if let Err(error) = rewrite::<F, L>(frame, header, &scratch.tuple, &first.to) {
        return Some(Err(error));
    }
    Some(if first.flags & FlowFlags::HAIRPIN != 0 { frame.send_back() } else { Ok(NEXT) })
}
