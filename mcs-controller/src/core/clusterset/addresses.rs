//! The addresses of a slice in little memory. A cluster can have millions, and the controller compares them when an
//! operator forbids some.

use std::{
    iter::from_fn,
    net::{IpAddr, Ipv6Addr},
};

/// The bits of a byte that belong to the number.
const BITS: u32 = 7;
/// Marks a byte that another byte of the same number follows.
const MORE: u8 = 1 << BITS;

/// A set of addresses. Each is stored as the distance from the previous one: addresses of one cluster's pods are close.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Addresses(Box<[u8]>);

impl Addresses {
    /// These addresses, in any order.
    pub fn of(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let mut numbers: Vec<_> = addresses.into_iter().map(number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let (mut bytes, mut former) = (Vec::with_capacity(numbers.len()), 0);
        for number in numbers {
            let mut rest = number - former;
            former = number;
            while rest >= MORE.into() {
                bytes.push(rest.to_le_bytes()[0] | MORE);
                rest >>= BITS;
            }
            bytes.push(rest.to_le_bytes()[0]);
        }
        Self(bytes.into())
    }

    /// All of them, sorted.
    pub fn all(&self) -> impl Iterator<Item = IpAddr> {
        let (mut bytes, mut number) = (self.0.iter(), 0_u128);
        from_fn(move || {
            let mut shift = 0;
            loop {
                let byte = bytes.next()?;
                number += u128::from(byte & !MORE) << shift;
                shift += BITS;
                if byte & MORE == 0 {
                    return Some(IpAddr::from(Ipv6Addr::from(number)).to_canonical());
                }
            }
        })
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().into(),
        IpAddr::V6(ip) => ip.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pods_of_one_cluster_take_a_byte_or_two_each() {
        let first = u32::from(Ipv4Addr::new(10, 2, 0, 0));
        let of =
            |step: u32| Addresses::of((0..100).map(|n| Ipv4Addr::from(first + n * step).into()));
        assert!(of(1).0.len() <= 106 && of(256).0.len() <= 206);
        assert_eq!(size_of::<Addresses>(), 16);
    }

    proptest! {
        #[test]
        fn addresses_are_those_that_were_given(
            v4 in prop::collection::btree_set(any::<Ipv4Addr>(), 0..9),
            v6 in prop::collection::btree_set(any::<Ipv6Addr>(), 0..9),
        ) {
            for mut given in [
                v4.into_iter().map(IpAddr::from).collect::<Vec<_>>(),
                v6.into_iter().map(IpAddr::from).collect(),
            ] {
                // An IPv4-mapped address equals the IPv4 address.
                given.retain(|address| address.to_canonical() == *address);
                let twice = given.iter().chain(given.iter().rev()).copied();
                let kept = Addresses::of(twice);
                given.sort();
                prop_assert_eq!(kept.all().collect::<Vec<_>>(), given);
            }
        }
    }
}
