//! Fragments: the first has the ports, the others follow it.

use aya_ebpf::{bindings::BPF_ANY, helpers::bpf_ktime_get_ns};
use mcs_common::{Flow, FlowFlags, Fragment, FragmentKey};

use super::{
    NEXT,
    frame::{Frame, Link, OutOfBounds},
    ip::{Header, Ip, Piece},
    rewrite::rewrite,
};
use crate::maps::{FRAGMENTS, load};

#[inline(always)]
const fn key(header: &Header) -> FragmentKey {
    FragmentKey {
        src: header.src,
        dst: header.dst,
        id: header.id,
        protocol: header.protocol,
        pad: 0,
        pad2: 0,
    }
}

/// Remembers what becomes of a datagram, if this is the first piece of one.
#[inline(always)]
pub(crate) fn remember(header: &Header, flow: &Flow) {
    if header.piece != Piece::First {
        return;
    }
    // SAFETY: the helper takes no argument.
    let now = unsafe { bpf_ktime_get_ns() };
    let fragment = Fragment { to: flow.to, first_seen_ns: now, flags: flow.flags, pad: 0 };
    // Where it fails the other pieces are dropped, and the datagram with them.
    let _ = FRAGMENTS.insert(key(header), fragment, BPF_ANY.into());
}

/// Translates a later piece like the first one. `None` if that has not been seen; else the verdict.
#[inline(always)]
pub(crate) fn follow<F: Ip, L: Link>(
    frame: &Frame<L>,
    header: &Header,
) -> Option<Result<i32, OutOfBounds>> {
    // SAFETY: the pointer is to a value of the map; a piece of an element that is reused meanwhile
    // goes astray, and its datagram is never put together.
    let first = unsafe { load(FRAGMENTS.get_ptr(key(header))?) };
    // SAFETY: the helper takes no argument.
    if !first.holds(unsafe { bpf_ktime_get_ns() }) {
        return None;
    }
    Some(translate::<F, L>(frame, header, &first))
}

#[inline(always)]
fn translate<F: Ip, L: Link>(
    frame: &Frame<L>,
    header: &Header,
    first: &Fragment,
) -> Result<i32, OutOfBounds> {
    let from = mcs_common::Tuple::new(header.src, 0, header.dst, 0, header.protocol);
    rewrite::<F, L>(frame, header, &from, &first.to)?;
    if first.flags & FlowFlags::HAIRPIN != 0 { frame.send_back() } else { Ok(NEXT) }
}
