//! The search for a free address of a VIP range.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use sha2::{Digest as _, Sha256};

use super::{NoFreeVip, VipsInUse};
use crate::core::clusterset::ServiceName;

/// The most used addresses that a search passes. Passing all of them takes a millisecond.
const MOST_PROBES: usize = 1 << 16;

/// A search for a free address of a range. Its cost does not depend on the sizes of the range and of reserved ranges.
pub(super) struct Search<'a> {
    pub(super) range: IpNet,
    /// The reserved ranges that overlap with it, sorted and disjoint.
    pub(super) reserved: Vec<IpNet>,
    pub(super) in_use: &'a VipsInUse,
}

impl Search<'_> {
    /// The first free address from an offset that the name determines. The first and last address of the range do not
    /// count.
    pub(super) fn first_free(&self, name: &ServiceName) -> Option<IpAddr> {
        let first = number(self.range.network()).checked_add(1)?;
        let last = number(self.range.broadcast()).checked_sub(1).filter(|last| *last >= first)?;
        let hash = Sha256::digest(name.to_string().as_bytes());
        let hash = hash.iter().take(16).fold(0_u128, |hash, byte| hash << 8 | u128::from(*byte));
        let start = first + hash % (last - first + 1);
        let mut left = MOST_PROBES;
        [(start, last), (first, start - 1)]
            .into_iter()
            .find_map(|(from, to)| self.first_free_in(name, from, to, &mut left))
    }

    fn first_free_in(
        &self,
        name: &ServiceName,
        from: u128,
        to: u128,
        left: &mut usize,
    ) -> Option<IpAddr> {
        let mut candidate = from;
        while candidate <= to && *left > 0 {
            let ip = address(candidate, self.range);
            if let Some(net) = self.reserved_at(ip) {
                candidate = number(net.broadcast()).checked_add(1)?;
                continue;
            }
            let run = self.in_use.run_of_others(name, ip, *left);
            if run == 0 {
                return Some(ip);
            }
            *left -= run;
            candidate = candidate.checked_add(u128::try_from(run).ok()?)?;
        }
        None
    }

    fn reserved_at(&self, ip: IpAddr) -> Option<&IpNet> {
        let after = self.reserved.partition_point(|net| net.network() <= ip);
        self.reserved.get(after.checked_sub(1)?).filter(|net| net.contains(&ip))
    }

    /// Why there is no free address.
    pub(super) fn problem(&self, name: &ServiceName) -> NoFreeVip {
        let (range, nothing) = (self.range, VipsInUse::default());
        let unused = Search { range, reserved: self.reserved.clone(), in_use: &nothing };
        match self.reserved.first() {
            Some(&reserved) if unused.first_free(name).is_none() => {
                NoFreeVip::Reserved { range, reserved }
            }
            _ => NoFreeVip::InUse(range),
        }
    }
}

pub(super) fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => ip.into(),
    }
}

fn address(number: u128, range: IpNet) -> IpAddr {
    match range {
        IpNet::V4(_) => Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).into(),
        IpNet::V6(_) => Ipv6Addr::from(number).into(),
    }
}
