//! recvfrom(2), recvmsg(2) and recvmmsg(2): the application sees the VIP as a datagram's source.

use mcs_common::{Counter, select::Tables as _};

use super::{
    context::{ALLOW, HookFamily, SocketContext},
    state,
};
use crate::{counters::count, maps::ConfigMaps};

/// Replaces the source of a received datagram by the VIP that the socket sent to.
///
/// Servers run this with each datagram: a client that is no backend costs one read of an array.
#[inline(always)]
pub(crate) fn recvmsg<F: HookFamily>(ctx: &SocketContext<F>) -> i32 {
    let peer = ctx.peer();
    if !ConfigMaps.hint(&peer.addr).may_be_backend() {
        return ALLOW;
    }
    let mut sent = state::is_fallback();
    if let Some(state) = state::get(ctx) {
        // connect(AF_UNSPEC) calls no hook: only the socket knows that it has no peer any more.
        if ctx.is_connected()
            && let Some(vip) = state::connected_vip(state, &peer)
        {
            ctx.set_peer(&vip.addr, vip.port);
            count(Counter::ReceiveReversed);
            return ALLOW;
        }
        sent |= state.unconnected != 0;
    }
    if sent && let Some(vip) = state::sent_vip(ctx, &peer) {
        ctx.set_peer(&vip.addr, vip.port);
        count(Counter::ReceiveReversed);
    }
    ALLOW
}
