//! The prefixes that the addresses of endpoints have: they tell that no endpoint has an address, without a look at all.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use crate::core::model::{EndpointAddress, EndpointSlice};

/// How many endpoints have each prefix. Those of a node share one, mostly.
#[derive(Clone, Debug, Default)]
pub(super) struct EndpointPrefixes(Arc<BTreeMap<IpAddr, u32>>);

impl EndpointPrefixes {
    /// Counts the endpoints of `now` instead of those of `before`.
    pub(super) fn replace(&mut self, before: Option<&EndpointSlice>, now: Option<&EndpointSlice>) {
        if prefixes(before).eq(prefixes(now)) {
            return;
        }
        let counts = Arc::make_mut(&mut self.0);
        for prefix in prefixes(now) {
            *counts.entry(prefix).or_default() += 1;
        }
        for prefix in prefixes(before) {
            if let Some(count) = counts.get_mut(&prefix) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&prefix);
                }
            }
        }
    }

    /// Whether an endpoint can have the address.
    pub(super) fn has(&self, ip: IpAddr) -> bool {
        self.0.contains_key(&prefix(ip))
    }
}

fn prefixes(slice: Option<&EndpointSlice>) -> impl Iterator<Item = IpAddr> {
    slice.into_iter().flat_map(|slice| &slice.endpoints).filter_map(|endpoint| {
        match &endpoint.address {
            EndpointAddress::Ip(ip) => Some(prefix(*ip)),
            EndpointAddress::Absent | EndpointAddress::Other(_) => None,
        }
    })
}

/// The first 24 bits of an IPv4 address, the first 64 of an IPv6 address.
fn prefix(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => (ip & std::net::Ipv4Addr::new(255, 255, 255, 0)).into(),
        IpAddr::V6(ip) => (ip & std::net::Ipv6Addr::from_bits(!0 << 64)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::fixture::slice;

    #[test]
    fn an_endpoint_is_counted_until_the_last_of_its_prefix_is_gone() {
        let of = |addresses: &[&str]| {
            addresses.iter().fold(slice("shop/a", "web"), |slice, ip| slice.address(ip))
        };
        let mut known = EndpointPrefixes::default();
        let mut replace = |before: &[&str], now: &[&str]| {
            let (before, now) = (of(before), of(now));
            known.replace(Some(&before), Some(&now));
            ["10.1.0.9", "10.1.1.9", "fd00::1:9", "fd00:0:0:1::1"]
                .map(|ip| known.has(ip.parse().unwrap()))
        };
        let all = ["10.1.0.1", "10.1.0.2", "fd00::1", "web"];
        assert_eq!(replace(&[], &all), [true, false, true, false]);
        assert_eq!(replace(&all, &all[1..3]), [true, false, true, false]);
        assert_eq!(replace(&all[1..3], &["10.1.1.1"]), [false, true, false, false]);
        assert_eq!(replace(&["10.1.1.1"], &[]), [false; 4]);
    }
}
