//! recvfrom(2), recvmsg(2) and recvmmsg(2): the application sees the VIP as a datagram's source.

use mcs_common::{Counter, Peer, select::Tables as _};

use super::{
    context::{ALLOW, HookFamily, SocketContext},
    state, table,
};
use crate::{counters::count, maps::ConfigMaps};

/// Replaces the source of a received datagram by the VIP that the socket sent to.
///
/// Servers run this with each datagram: a client that is no backend costs one read of an array.
#[inline(always)]
pub(crate) fn recvmsg<F: HookFamily>(ctx: &SocketContext<F>) -> i32 {
    let peer = ctx.peer();
    if !ConfigMaps.kinds_of(&peer.addr).may_be_backend() {
        return ALLOW;
    }
    // connect(AF_UNSPEC) calls no hook: only the socket knows that it has no peer any more.
    let is_connected = ctx.is_connected();
    if is_connected && let Some(vip) = table::vip(ctx, &peer) {
        return show(ctx, &vip);
    }
    let mut sent = state::is_fallback();
    if let Some(state) = state::get(ctx) {
        if is_connected && let Some(vip) = state.connected_vip(&peer) {
            return show(ctx, &vip);
        }
        sent |= state.has_sent();
    }
    if sent && let Some(vip) = state::sent_vip(ctx, &peer) {
        return show(ctx, &vip);
    }
    ALLOW
}

#[inline(always)]
fn show<F: HookFamily>(ctx: &SocketContext<F>, vip: &Peer) -> i32 {
    ctx.set_peer(&vip.addr, vip.port);
    count(Counter::ReceiveReversed);
    ALLOW
}
