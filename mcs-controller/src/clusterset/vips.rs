//! Chooses VIPs: the same ones in every cluster, without an allocator.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::{IpFamily, ServiceName};

/// The ranges that new VIPs come from. Every cluster of a clusterset has the same ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VipRanges {
    /// 241.0.0.0/8 by default. It is never routed.
    pub v4: Ipv4Net,
    /// A unique local range that the clusterset's name determines, by default.
    pub v6: Ipv6Net,
}

impl VipRanges {
    /// The default ranges of the clusterset with this name.
    pub fn for_clusterset(name: &str) -> Self {
        let hash = Sha256::digest(name.as_bytes());
        let mut octets = [0; 16];
        octets[0] = 0xfd;
        octets[1..6].copy_from_slice(&hash[..5]);
        let v6 = Ipv6Net::new_assert(Ipv6Addr::from(octets), 96);
        Self { v4: Ipv4Net::new_assert(Ipv4Addr::new(241, 0, 0, 0), 8), v6 }
    }

    /// The range of one family.
    pub fn of(&self, family: IpFamily) -> IpNet {
        match family {
            IpFamily::V4 => self.v4.into(),
            IpFamily::V6 => self.v6.into(),
        }
    }

    /// Whether the address is in one of the ranges.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.of(IpFamily::of(address)).contains(&address)
    }
}

/// The VIPs that ServiceImports of this cluster have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VipsInUse {
    owners: BTreeMap<IpAddr, BTreeSet<ServiceName>>,
}

impl VipsInUse {
    /// Notes the VIPs of an import.
    pub fn add(&mut self, owner: &ServiceName, ips: impl IntoIterator<Item = IpAddr>) {
        for ip in ips {
            self.owners.entry(ip).or_default().insert(owner.clone());
        }
    }

    /// Forgets the VIPs of an import that is gone or has others.
    pub fn remove(&mut self, owner: &ServiceName, ips: impl IntoIterator<Item = IpAddr>) {
        for ip in ips {
            if let Some(owners) = self.owners.get_mut(&ip) {
                owners.remove(owner);
                if owners.is_empty() {
                    self.owners.remove(&ip);
                }
            }
        }
    }

    fn is_free_for(&self, owner: &ServiceName, ip: IpAddr) -> bool {
        self.other_owner(owner, ip).is_none()
    }

    /// The first one of the other imports that have the VIP.
    pub fn other_owner(&self, owner: &ServiceName, ip: IpAddr) -> Option<&ServiceName> {
        self.owners.get(&ip)?.iter().find(|other| *other != owner)
    }
}

/// No VIP of a range is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("every address of the VIP range {0} is in use: configure a larger range in all clusters")]
pub struct NoFreeVip(pub IpNet);

/// Another import has the same VIP.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "ServiceImport {other} has {vip} too, and clients of one get the endpoints of the other: delete one of the two, and \
     the controller makes it again with another address"
)]
pub(super) struct SharedVip {
    vip: IpAddr,
    other: ServiceName,
}

/// Where an import's VIPs can come from.
#[derive(Clone, Copy, Debug)]
pub(super) struct VipSources<'a> {
    /// The ranges of new VIPs.
    pub(super) ranges: &'a VipRanges,
    /// Addresses that no VIP can have.
    pub(super) reserved: &'a [IpNet],
    /// VIPs of imports.
    pub(super) in_use: &'a VipsInUse,
    /// The VIPs of the import as the cluster has it. They stay for its life.
    pub(super) existing: &'a [IpAddr],
    /// The VIPs that the exporters have, those of the oldest one first.
    pub(super) preferred: &'a [IpAddr],
}

impl VipSources<'_> {
    /// One VIP for each family, in the same order. If no VIP of a family is free, those before it, and the
    /// problem.
    pub(super) fn choose(
        &self,
        name: &ServiceName,
        families: &[IpFamily],
    ) -> (Vec<IpAddr>, Option<NoFreeVip>) {
        let mut vips = Vec::new();
        for family in families {
            match self.choose_one(name, *family) {
                Ok(vip) => vips.push(vip),
                Err(problem) => return (vips, Some(problem)),
            }
        }
        (vips, None)
    }

    /// The first of these VIPs that another import has too.
    pub(super) fn shared(&self, name: &ServiceName, vips: &[IpAddr]) -> Option<SharedVip> {
        vips.iter().find_map(|vip| {
            let other = self.in_use.other_owner(name, *vip)?.clone();
            Some(SharedVip { vip: *vip, other })
        })
    }

    fn choose_one(&self, name: &ServiceName, family: IpFamily) -> Result<IpAddr, NoFreeVip> {
        let of_family = |ip: &&IpAddr| IpFamily::of(**ip) == family;
        if let Some(existing) = self.existing.iter().find(of_family) {
            return Ok(*existing);
        }
        let is_usable = |ip: IpAddr| {
            self.in_use.is_free_for(name, ip) && !self.reserved.iter().any(|net| net.contains(&ip))
        };
        // A peer can publish any address, so only those of the ranges count.
        let is_welcome = |ip: &&IpAddr| self.ranges.contains(**ip) && is_usable(**ip);
        if let Some(preferred) = self.preferred.iter().filter(of_family).find(is_welcome) {
            return Ok(*preferred);
        }
        let range = self.ranges.of(family);
        probes(range, name).find(|ip| is_usable(*ip)).ok_or(NoFreeVip(range))
    }
}

/// Every address of the range but its first and last one, from a place that the name determines.
fn probes(range: IpNet, name: &ServiceName) -> impl Iterator<Item = IpAddr> {
    let first = number(range.network());
    let room = number(range.broadcast()) - first;
    let hash = Sha256::digest(name.to_string().as_bytes());
    let start = hash.iter().take(16).fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
    let inner = room.saturating_sub(1);
    let start = start.checked_rem(inner).unwrap_or(0);
    (0..inner).map(move |step| {
        let offset = 1 + (start + step) % inner;
        address(first + offset, range)
    })
}

fn number(ip: IpAddr) -> u128 {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> ServiceName {
        ServiceName::new("shop", name).expect("a name")
    }

    fn small(v4: &str) -> VipRanges {
        let v4 = v4.parse().expect("a range");
        VipRanges { v4, ..VipRanges::for_clusterset("test") }
    }

    fn new_vips<'a>(ranges: &'a VipRanges, in_use: &'a VipsInUse) -> VipSources<'a> {
        VipSources { ranges, reserved: &[], in_use, existing: &[], preferred: &[] }
    }

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn a_vip_follows_from_the_name() {
        let ranges = VipRanges::for_clusterset("test");
        let in_use = VipsInUse::default();
        let vips = new_vips(&ranges, &in_use).choose(&name("web"), &[IpFamily::V6, IpFamily::V4]);
        // Clusters of two versions have to choose the same ones.
        assert_eq!(vips, (ips(&["fd9f:86d0:8188::4232:8f5a", "241.210.94.96"]), None));
    }

    #[test]
    fn a_taken_vip_leads_to_the_next() {
        let ranges = small("241.0.0.0/29");
        let mut in_use = VipsInUse::default();
        let mut chosen = BTreeSet::new();
        for number in 0..6 {
            let name = name(&format!("s{number}"));
            let (vips, _) = new_vips(&ranges, &in_use).choose(&name, &[IpFamily::V4]);
            in_use.add(&name, vips.iter().copied());
            chosen.extend(vips);
        }
        let all: BTreeSet<_> = (1..=6).map(|last| IpAddr::from([241, 0, 0, last])).collect();
        assert_eq!(chosen, all, "neither the first nor the last address of the range");
        let full = new_vips(&ranges, &in_use).choose(&name("more"), &[IpFamily::V4]);
        assert_eq!(full, (vec![], Some(NoFreeVip(ranges.v4.into()))));
        in_use.remove(&name("s3"), chosen.iter().copied());
        let freed = new_vips(&ranges, &in_use).choose(&name("more"), &[IpFamily::V4]);
        assert_eq!(freed.1, None);
    }

    #[test]
    fn a_range_without_room_has_no_vips() {
        for range in ["241.0.0.0/32", "241.0.0.0/31"] {
            let ranges = small(range);
            let in_use = VipsInUse::default();
            let none = new_vips(&ranges, &in_use).choose(&name("web"), &[IpFamily::V4]);
            assert_eq!(none, (vec![], Some(NoFreeVip(ranges.v4.into()))), "{range}");
        }
    }

    #[test]
    fn existing_vips_stay_and_others_follow_the_oldest_exporter() {
        let ranges = small("241.0.0.0/24");
        let reserved: Vec<IpNet> = vec!["241.0.0.64/26".parse().expect("a range")];
        let mut in_use = VipsInUse::default();
        in_use.add(&name("other"), ips(&["241.0.0.9", "10.0.0.1"]));
        let choose = |existing: &[&str], preferred: &[&str]| {
            let (existing, preferred) = (ips(existing), ips(preferred));
            let sources = VipSources {
                reserved: &reserved,
                existing: &existing,
                preferred: &preferred,
                ..new_vips(&ranges, &in_use)
            };
            sources.choose(&name("web"), &[IpFamily::V4]).0
        };
        let hashed = choose(&[], &[]);
        assert_eq!(choose(&["10.0.0.1"], &["241.0.0.5"]), ips(&["10.0.0.1"]), "for life");
        assert_eq!(choose(&["fd00::1"], &["fd00::2", "241.0.0.5"]), ips(&["241.0.0.5"]));
        assert_eq!(choose(&[], &["241.0.0.9"]), hashed, "another import has it");
        assert_eq!(choose(&[], &["241.0.0.65"]), hashed, "it is reserved");
        assert_eq!(choose(&[], &["192.0.2.1"]), hashed, "it is outside the range");
    }

    #[test]
    fn the_default_ranges_differ_by_clusterset() {
        let one = VipRanges::for_clusterset("one");
        assert!(one.v6 != VipRanges::for_clusterset("two").v6);
        assert!(one.v6.addr().is_unique_local());
    }
}
