//! Made-up flows, from 10.0.0.0/8 to 10.99.0.1:80.

use mcs_common::{BackendRef, Flow, FlowFlags, Seen, Tuple};

use crate::prelude::*;

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// Flow number `n`, which 10.77.1.10:8080 serves: established, or answered.
pub(crate) fn flow(protocol: u8, n: u32, last_seen_ns: u64) -> FlowPair {
    let client = Ipv4Addr::from_bits(0x0a00_0000 + n).into();
    let backend = Ipv4Addr::new(10, 77, 1, 10).into();
    let vip = Ipv4Addr::new(10, 99, 0, 1).into();
    let key = Tuple::new(client, 40_000, vip, 80, protocol, 7);
    let to = Tuple::new(client, 40_000, backend, 8080, protocol, 7);
    let entry = |key: Tuple, to, flags| FlowEntry {
        key,
        flow: Flow {
            to,
            chosen: BackendRef { id: 1, generation: 1 },
            frontend: 1,
            flags,
            last_seen_ns,
            seen: Seen::ANY,
            pad: 0,
        },
    };
    let reply = entry(to.reversed(), key.reversed(), FlowFlags::REPLY);
    FlowPair::new(entry(key, to, 0), Some(reply))
}

/// The number of a flow.
pub(crate) fn number(flow: &FlowPair) -> u32 {
    let [.., client] = flow.client().src.words();
    u32::from_be(client) - 0x0a00_0000
}
