//! getpeername(2): the application sees the VIP that it connected to.

use mcs_common::{Counter, Peer, select::Tables as _};

use super::{
    context::{ALLOW, HookFamily, SocketContext},
    state, table,
};
use crate::{counters::count, maps::ConfigMaps};

/// Replaces the peer's name by the VIP.
///
/// accept(2) with room for an address runs this too, on the new socket, which has no state.
#[inline(always)]
pub(crate) fn getpeername<F: HookFamily>(ctx: &SocketContext<F>) -> i32 {
    let peer = ctx.peer();
    if !ConfigMaps.kinds_of(&peer.addr).may_be_backend() {
        return ALLOW;
    }
    if let Some(vip) = table::vip(ctx, &peer) {
        return show(ctx, &vip);
    }
    let mut vip = state::get(ctx).and_then(|state| state.connected_vip(&peer));
    if vip.is_none() && state::is_fallback() {
        vip = state::tabled_vip(ctx, &peer);
    }
    if let Some(vip) = vip {
        return show(ctx, &vip);
    }
    ALLOW
}

#[inline(always)]
fn show<F: HookFamily>(ctx: &SocketContext<F>, vip: &Peer) -> i32 {
    ctx.set_peer(&vip.addr, vip.port);
    count(Counter::PeerReversed);
    ALLOW
}
