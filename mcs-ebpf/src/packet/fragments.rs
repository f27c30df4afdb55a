//! Fragments: the first has the ports, the others follow it.

use aya_ebpf::bindings::BPF_ANY;
use mcs_common::{FlowFlags, Fragment, FragmentKey, Tuple};

use super::{
    NEXT,
    flows::now_ns,
    frame::{Frame, Link, OutOfBounds},
    ip::{Header, Ip, Piece},
    rewrite::rewrite,
    scratch::Scratch,
};
use crate::maps::{FRAGMENTS, load};

#[inline(always)]
const fn key<F: Ip>(header: &Header, tuple: &Tuple) -> FragmentKey {
    FragmentKey {
        src: tuple.src,
        dst: tuple.dst,
        id: header.id,
        protocol: if F::PIECES_BY_PROTOCOL { header.protocol } else { 0 },
        pad: 0,
        pad2: 0,
    }
}

/// Remembers what becomes of a datagram, if this is the first piece of one.
#[inline(always)]
pub(crate) fn remember<F: Ip>(header: &Header, scratch: &Scratch) {
    if header.piece != Piece::First {
        return;
    }
    let flow = &scratch.flow;
    let fragment = Fragment { to: flow.to, first_seen_ns: now_ns(), flags: flow.flags, pad: 0 };
    // Where it fails the other pieces are dropped, and the datagram with them.
    let _ = FRAGMENTS.insert(key::<F>(header, &scratch.tuple), fragment, BPF_ANY.into());
}

/// Translates a later piece like the first one. `None` if that has not been seen; else the verdict.
#[inline(always)]
pub(crate) fn follow<F: Ip, L: Link>(
    frame: &Frame<L>,
    header: &Header,
    tuple: &Tuple,
) -> Option<Result<i32, OutOfBounds>> {
    // SAFETY: the pointer is to a value of the map; a piece of an element that is reused meanwhile
    // goes astray, and its datagram is never put together.
    let first = unsafe { load(FRAGMENTS.get_ptr(key::<F>(header, tuple))?) };
    if !first.holds(now_ns()) {
        return None;
    }
    if let Err(error) = rewrite::<F, L>(frame, header, tuple, &first.to) {
        return Some(Err(error));
    }
    Some(if first.flags & FlowFlags::HAIRPIN != 0 { frame.send_back() } else { Ok(NEXT) })
}
