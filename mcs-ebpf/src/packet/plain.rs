//! Translates most packets, at the least cost: TCP and UDP without IP options, fragments and VLAN tags in the data, of a
//! flow that they leave as it is. All other packets go the general way.

use mcs_common::{Address, AddressKinds, Counter, FlowFlags, Seen, Tuple, select::Tables as _};

use super::{
    flows::{self, FlowPointer},
    frame::{Frame, LinkLayer, OutOfBounds, bytes_of},
    header::protocol,
    ip::{IpVersion, Start, difference_of},
    rewrite::replace_checksum,
    transport::{TCP_FLAGS, checksum_offset},
    verdict::{NEXT, drop_counted},
};
use crate::{counters::count, maps::ConfigMaps};

/// Whether the packet may go to a VIP.
#[inline(always)]
pub(crate) fn may_go_to_vip<F: IpVersion, L: LinkLayer>(frame: &Frame<L>) -> bool {
    peek::<F, L>(frame).is_none_or(|header| {
        let (_, destination) = F::ends(F::pair(&header));
        ConfigMaps.kinds_of(&destination).may_be_vip()
    })
}

/// Whether a packet of a pod may go to a VIP, or may open a connection to a backend directly while there are flows.
#[inline(always)]
pub(crate) fn concerns_flows<F: IpVersion, L: LinkLayer>(frame: &Frame<L>) -> bool {
    peek::<F, L>(frame).is_none_or(|header| {
        let (_, destination) = F::ends(F::pair(&header));
        let kinds = ConfigMaps.kinds_of(&destination);
        kinds != AddressKinds::NONE
            && (kinds.may_be_vip() || (flows::may_exist() && opens::<F, L>(frame)))
    })
}

/// Whether the packet opens a TCP connection. `false` if its headers cannot be read in place, or are not plain.
#[inline(always)]
pub(crate) fn opens<F: IpVersion, L: LinkLayer>(frame: &Frame<L>) -> bool {
    let is_tcp = |header: F::Header| {
        F::protocol(&header) == protocol::TCP
            && F::plain_payload(&header, frame.len() - L::HEADER).is_some()
    };
    let flags = L::HEADER + bytes_of::<F::Header>() + TCP_FLAGS;
    peek::<F, L>(frame).is_some_and(is_tcp)
        && frame.peek(flags).is_some_and(|flags: u8| flows::opens(flags.into()))
}

/// Whether the packet may belong to a flow that ends in a pod.
///
/// A reply comes from a backend, or from the VIP of a connection that passes. An ICMP error comes from any router.
#[inline(always)]
pub(crate) fn may_be_reply<F: IpVersion, L: LinkLayer>(frame: &Frame<L>) -> bool {
    peek::<F, L>(frame).is_none_or(|header| {
        let (source, _) = F::ends(F::pair(&header));
        let is_flow = matches!(F::protocol(&header), protocol::TCP | protocol::UDP);
        !is_flow || ConfigMaps.kinds_of(&source) != AddressKinds::NONE
    })
}

/// The IP header, if it can be read in place and no VLAN tag is in the data.
#[inline(always)]
fn peek<F: IpVersion, L: LinkLayer>(frame: &Frame<L>) -> Option<F::Header> {
    if frame.l3 == L::HEADER { frame.peek(L::HEADER) } else { None }
}

/// Decides about a packet that a pod sends; `None` if the general code has to.
#[inline(always)]
pub(crate) fn from_pod<F: IpVersion, L: LinkLayer>(frame: &Frame<L>) -> Option<i32> {
    let (start, ends) = read::<F, L>(frame)?;
    let (tuple, flags) = parse::<F, L>(frame, &start, ends)?;
    let entry = flows::find(&tuple)?;
    // TCP keeps its backend until it ends; any UDP datagram needs a backend that serves.
    let goes_on = tuple.protocol == protocol::TCP || entry.is_served(&tuple);
    if entry.flags() != 0 || !entry.stays(flags) || !goes_on {
        return None;
    }
    Some(translate::<F, L>(frame, &start, entry, Counter::PacketTranslated))
}

/// Decides about a packet that a pod receives; `None` if the general code has to.
#[inline(always)]
pub(crate) fn to_pod<F: IpVersion, L: LinkLayer>(frame: &Frame<L>) -> Option<i32> {
    let (start, ends) = read::<F, L>(frame)?;
    let (tuple, flags) = parse::<F, L>(frame, &start, ends)?;
    let Some(entry) = flows::find(&tuple) else { return Some(NEXT) };
    if entry.flags() != FlowFlags::REPLY || !entry.stays(flags) {
        return None;
    }
    Some(translate::<F, L>(frame, &start, entry, Counter::PacketReversed))
}

/// Reads the packet's start, and its source and destination. `None` if it has VLAN tags in its data.
#[inline(always)]
fn read<F: IpVersion, L: LinkLayer>(frame: &Frame<L>) -> Option<(Start<F>, (Address, Address))> {
    if frame.l3 != L::HEADER {
        return None;
    }
    let start = Start::<F>::read(frame).ok()?;
    let ends = F::ends(F::pair(&start.ip));
    Some((start, ends))
}

/// The packet's tuple and TCP flags. `None` if it is malformed, or may change its flow.
#[inline(always)]
fn parse<F: IpVersion, L: LinkLayer>(
    frame: &Frame<L>,
    start: &Start<F>,
    (src, dst): (Address, Address),
) -> Option<(Tuple, u32)> {
    let room = F::plain_payload(&start.ip, frame.len() - L::HEADER)?;
    let protocol = F::protocol(&start.ip);
    let flags = start.transport.flags(protocol, room)?;
    // It may begin another connection.
    if flags & Seen::SYN != 0 {
        return None;
    }
    let (src_port, dst_port) = start.transport.source_and_destination();
    Some((Tuple::new(src, src_port, dst, dst_port, protocol, frame.device()), flags))
}

/// Replaces the packet's ends by the flow's ends. Returns the verdict.
#[inline(always)]
fn translate<F: IpVersion, L: LinkLayer>(
    frame: &Frame<L>,
    start: &Start<F>,
    entry: FlowPointer,
    counter: Counter,
) -> i32 {
    match replace_ends(frame, start, entry) {
        Ok(()) => {
            count(counter);
            NEXT
        }
        Err(OutOfBounds) => drop_counted(Counter::PacketDroppedFailed),
    }
}

#[inline(always)]
fn replace_ends<F: IpVersion, L: LinkLayer>(
    frame: &Frame<L>,
    start: &Start<F>,
    entry: FlowPointer,
) -> Result<(), OutOfBounds> {
    // SAFETY: the pointer is to a part of a value of the map.
    let new = unsafe { F::read_pair(entry.to()) };
    let difference = difference_of(F::pair(&start.ip).as_ref(), new.as_ref());
    let protocol = F::protocol(&start.ip);
    let at = L::HEADER + bytes_of::<F::Header>() + checksum_offset(protocol);
    let (old_ports, ports) = (start.transport.ports(), entry.ports());
    replace_checksum(frame, protocol, at, difference.into(), [old_ports, ports])?;
    F::store_ends(frame, start, new, ports, difference)
}
