//! What a socket's destination is to us.

use mcs_common::{
    Counter, Peer,
    select::{FrontendMatch, Lookup, lookup},
};

use crate::{
    context::{ALLOW, Ctx, Family, refuse, refuse_uncounted},
    maps::ConfigMaps,
    sockets,
};

/// The frontend that the destination is, or the verdict on one that is none. `connects` tells a
/// connect from a datagram.
#[inline(always)]
pub(crate) fn frontend<F: Family>(
    ctx: &Ctx<F>,
    destination: &Peer,
    connects: bool,
) -> Result<FrontendMatch, i32> {
    match lookup(&ConfigMaps, &ctx.frontend_key(destination)) {
        Lookup::Miss => {
            sockets::addressing_directly(ctx, destination, connects);
            Err(ALLOW)
        }
        _ if ctx.is_left_alone() => Err(ALLOW),
        // No port: an agent's witness finds out that it is refused.
        Lookup::UnknownPort if destination.port == 0 => Err(refuse_uncounted()),
        Lookup::UnknownPort => Err(refuse(Counter::RefusedUnknownPort)),
        Lookup::Inconsistent => Err(refuse(Counter::RefusedInconsistent)),
        Lookup::Found(frontend) => Ok(frontend),
    }
}
