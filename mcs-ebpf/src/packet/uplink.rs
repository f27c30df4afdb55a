//! Program `uplink`: no packet to a VIP leaves the node.

use aya_ebpf::programs::TcContext;
use mcs_common::{Counter, select::Tables as _};

use super::{
    frame::{Frame, IPV4, IPV6, LinkLayer},
    ip::{IpVersion, Ipv4, Ipv6},
    verdict::{NEXT, drop_counted},
};
use crate::maps::ConfigMaps;

/// Decides about a packet that leaves the node.
#[inline(always)]
pub(crate) fn uplink<L: LinkLayer>(ctx: TcContext) -> i32 {
    let frame = Frame::<L>::new(ctx);
    match frame.ethertype {
        IPV4 => drop_vip::<Ipv4, L>(&frame),
        IPV6 => drop_vip::<Ipv6, L>(&frame),
        _ => NEXT,
    }
}

/// Drops a packet to a VIP: no hook has translated it, and no router outside knows the address.
#[inline(always)]
fn drop_vip<F: IpVersion, L: LinkLayer>(frame: &Frame<L>) -> i32 {
    match F::destination(frame) {
        Ok(destination) if ConfigMaps.is_vip(&destination) => drop_counted(Counter::LeakPrevented),
        _ => NEXT,
    }
}
