//! Looks up the frontend that a socket's destination names.

use mcs_common::{
    Counter, Peer,
    select::{FrontendMatch, Lookup, Tables as _, lookup_filtered},
};

use super::{
    context::{ALLOW, HookFamily, SocketContext},
    refuse::{refuse, refuse_uncounted},
    state,
};
use crate::{features, maps::ConfigMaps};

/// The frontend of `destination`, or the program's return value if it has none.
///
/// `connects` tells a connect from a datagram.
#[inline(always)]
pub(crate) fn frontend<F: HookFamily>(
    ctx: &SocketContext<F>,
    destination: &Peer,
    connects: bool,
) -> Result<FrontendMatch, i32> {
    let kinds = ConfigMaps.kinds_of(&destination.addr);
    if !kinds.may_be_vip() {
        // No socket has another address for a backend.
        if kinds.may_be_backend() {
            state::addressing_directly(ctx, destination, connects);
        }
        return Err(ALLOW);
    }
    let key = ctx.frontend_key(destination);
    match lookup_filtered(&ConfigMaps, &key) {
        Lookup::Miss => {
            state::addressing_directly(ctx, destination, connects);
            Err(ALLOW)
        }
        _ if ctx.is_left_alone() => Err(ALLOW),
        Lookup::Gone => Err(refuse(ctx, Counter::RefusedGone)),
        // The agent's self-test connects to port 0 and expects a refusal.
        Lookup::UnknownPort if destination.port == 0 => Err(refuse_uncounted()),
        // It connected before the agent served the VIP, as in `sendmsg`.
        Lookup::UnknownPort if !connects && ctx.is_connected_to(destination) => Err(ALLOW),
        Lookup::UnknownPort => {
            features::unknown_port(&key.vip);
            Err(refuse(ctx, Counter::RefusedUnknownPort))
        }
        Lookup::Inconsistent => Err(refuse(ctx, Counter::RefusedInconsistent)),
        Lookup::Found(frontend) => Ok(frontend),
    }
}
