//! Fragments: the first has the ports, the others follow it.
#![expect(
    clippy::needless_borrows_for_generic_args,
    reason = "what is passed by value is copied to the stack, which has no room for it"
)]

use aya_ebpf::bindings::BPF_ANY;
use mcs_common::FlowFlags;

use super::{
    NEXT,
    flows::now_ns,
    frame::{Frame, Link, OutOfBounds},
    ip::{Header, Ip, Piece},
    rewrite::rewrite,
    scratch::Scratch,
};
use crate::maps::{FRAGMENTS, load_into};

#[inline(always)]
fn set_key<F: Ip>(header: &Header, scratch: &mut Scratch) {
    let key = &mut scratch.fragment_key;
    key.src = scratch.tuple.src;
    key.dst = scratch.tuple.dst;
    key.id = header.id;
    key.protocol = if F::PIECES_BY_PROTOCOL { header.protocol } else { 0 };
    key.pad = 0;
    key.pad2 = 0;
    key.device = scratch.tuple.device;
    key.pad3 = 0;
}

/// Remembers what becomes of a datagram, if this is the first piece of one.
#[inline(always)]
pub(crate) fn remember<F: Ip>(header: &Header, scratch: &mut Scratch) {
    if header.piece != Piece::First {
        return;
    }
    set_key::<F>(header, scratch);
    scratch.fragment.to = scratch.flow.to;
    scratch.fragment.first_seen_ns = now_ns();
    scratch.fragment.flags = scratch.flow.flags;
    scratch.fragment.pad = 0;
    // Where it fails the other pieces are dropped, and the datagram with them.
    let _ = FRAGMENTS.insert(&scratch.fragment_key, &scratch.fragment, BPF_ANY.into());
}

/// Forgets a datagram whose identification is used for another one, which is not translated.
#[inline(always)]
pub(crate) fn forget<F: Ip>(header: &Header, scratch: &mut Scratch) {
    if header.piece == Piece::First {
        set_key::<F>(header, scratch);
        // Absent is as good.
        let _ = FRAGMENTS.remove(&scratch.fragment_key);
    }
}

/// Translates a later piece like the first one. `None` if that has not been seen; else the verdict.
#[inline(always)]
pub(crate) fn follow<F: Ip, L: Link>(
    frame: &Frame<L>,
    header: &Header,
    scratch: &mut Scratch,
) -> Option<Result<i32, OutOfBounds>> {
    set_key::<F>(header, scratch);
    // SAFETY: the pointer is to a value of the map; a piece of an element that is reused meanwhile
    // goes astray, and its datagram is never put together.
    unsafe { load_into(&mut scratch.fragment, FRAGMENTS.get_ptr(&scratch.fragment_key)?) };
    let first = &scratch.fragment;
    if !first.holds(now_ns()) {
        return None;
    }
    if let Err(error) = rewrite::<F, L>(frame, header, &scratch.tuple, &first.to) {
        return Some(Err(error));
    }
    Some(if first.flags & FlowFlags::HAIRPIN != 0 { frame.send_back() } else { Ok(NEXT) })
}
