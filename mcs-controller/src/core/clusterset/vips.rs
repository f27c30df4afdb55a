//! Chooses VIPs: the same ones in every cluster, without an allocator.

mod search;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::Bound,
    time::Duration,
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use self::search::{Search, number};
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

    /// Describes which of these ranges overlap with VIP ranges. `whose`: the owner of the ranges.
    pub fn overlaps(&self, others: &[IpNet], whose: &str) -> Vec<String> {
        let ranges = [IpNet::V4(self.v4), IpNet::V6(self.v6)];
        let told = ranges.iter().filter_map(|range| {
            let other = others.iter().find(|other| overlap(range, other))?;
            Some(format!(
                "the VIP range {range} overlaps with {other} of this cluster's {whose}: no new VIP is in both. Give all \
                 clusters another --vip-cidr (chart: vipCidrs)"
            ))
        });
        told.collect()
    }

    /// Whether the range contains a whole VIP range.
    pub fn are_within(&self, range: &IpNet) -> bool {
        [IpNet::V4(self.v4), IpNet::V6(self.v6)].iter().any(|vips| range.contains(vips))
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

    /// Forgets the VIPs of an import that was deleted or has others now.
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

    /// The length of the run of used addresses that begins here, at most `most`.
    fn run_of_others(&self, owner: &ServiceName, from: IpAddr, most: usize) -> usize {
        let run = self.owners.range(from..).zip(number(from)..);
        run.take(most)
            .take_while(|((ip, owners), expected)| {
                number(**ip) == *expected && owners.iter().any(|other| other != owner)
            })
            .count()
    }

    /// The VIPs outside of the ranges, with their imports. It skips VIPs inside: there can be many.
    pub fn outside(
        &self,
        ranges: &VipRanges,
    ) -> impl Iterator<Item = (IpAddr, &BTreeSet<ServiceName>)> {
        let (v4, v6) = (IpNet::V4(ranges.v4), IpNet::V6(ranges.v6));
        let gaps = [
            (Bound::Unbounded, Bound::Excluded(v4.network())),
            (Bound::Excluded(v4.broadcast()), Bound::Excluded(v6.network())),
            (Bound::Excluded(v6.broadcast()), Bound::Unbounded),
        ];
        gaps.into_iter().flat_map(|gap| self.owners.range(gap)).map(|(ip, owners)| (*ip, owners))
    }

    /// The imports that have the VIP.
    pub fn owners(&self, ip: IpAddr) -> impl Iterator<Item = &ServiceName> {
        self.owners.get(&ip).into_iter().flatten()
    }

    /// The first other import with the VIP.
    pub fn other_owner(&self, owner: &ServiceName, ip: IpAddr) -> Option<&ServiceName> {
        self.owners.get(&ip)?.iter().find(|other| *other != owner)
    }
}

/// No VIP of a range is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum NoFreeVip {
    /// Imports have them.
    #[error(
        "the addresses of the VIP range {0} are in use: configure a larger range in all clusters"
    )]
    InUse(IpNet),
    /// They belong to something else.
    #[error(
        "every address of the VIP range {range} is reserved, as {reserved} belongs to this cluster's Services or pods: give \
         all clusters another VIP range, or correct the ranges of Services and pods"
    )]
    Reserved {
        /// The VIP range.
        range: IpNet,
        /// A range of Services or pods that overlaps with it.
        reserved: IpNet,
    },
}

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

/// A VIP of an import within a range of Services that no Service of the import has any more. The API server may give it to
/// any Service, whose clients would then reach the endpoints of the import.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostVip {
    /// The VIP.
    pub vip: IpAddr,
    /// Whether the import now gets another VIP.
    pub is_given_up: bool,
}

impl LostVip {
    /// How long the import keeps the VIP, so that its Service can be recreated.
    pub const GRACE: Duration = Duration::from_mins(10);
}

impl fmt::Display for LostVip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no Service of the import has {} any more, and the API server may give it to another Service: {} minutes later, \
             or as soon as it does, the import gets another address, if one is free. Its derived Service keeps \
             it, if it is made again with this clusterIP",
            self.vip,
            Self::GRACE.as_secs() / 60
        )
    }
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
    /// The VIPs of the import as the cluster has it. They stay for its life, unless they are lost.
    pub(super) existing: &'a [IpAddr],
    /// The lost ones of `existing`.
    pub(super) lost: &'a [LostVip],
    /// The VIPs of the exporters, the oldest export's first.
    pub(super) preferred: &'a [IpAddr],
}

impl VipSources<'_> {
    /// One VIP for each family, in the same order. If a family has no free VIP: the VIPs before it, and the problem.
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

    /// The first lost VIP among these.
    pub(super) fn first_lost(&self, vips: &[IpAddr]) -> Option<LostVip> {
        self.lost.iter().find(|lost| vips.contains(&lost.vip)).copied()
    }

    /// The first VIP among these that another import also has.
    pub(super) fn shared(&self, name: &ServiceName, vips: &[IpAddr]) -> Option<SharedVip> {
        vips.iter().find_map(|vip| {
            let other = self.in_use.other_owner(name, *vip)?.clone();
            Some(SharedVip { vip: *vip, other })
        })
    }

    fn choose_one(&self, name: &ServiceName, family: IpFamily) -> Result<IpAddr, NoFreeVip> {
        let of_family = |ip: &&IpAddr| IpFamily::of(**ip) == family;
        let existing = self.existing.iter().find(of_family).copied();
        if let Some(existing) = existing.filter(|ip| !self.is_given_up(*ip)) {
            return Ok(existing);
        }
        let is_usable = |ip: IpAddr| {
            self.in_use.is_free_for(name, ip) && !self.reserved.iter().any(|net| net.contains(&ip))
        };
        // A peer can publish any address, so only addresses of the ranges count.
        let is_welcome = |ip: &&IpAddr| self.ranges.contains(**ip) && is_usable(**ip);
        if let Some(preferred) = self.preferred.iter().filter(of_family).find(is_welcome) {
            return Ok(*preferred);
        }
        let range = self.ranges.of(family);
        let overlapping = self.reserved.iter().filter(|net| overlap(net, &range)).copied();
        let search = Search {
            range,
            reserved: IpNet::aggregate(&overlapping.collect()),
            in_use: self.in_use,
        };
        // A lost VIP is better than none.
        search.first_free(name).or(existing).ok_or_else(|| search.problem(name))
    }

    fn is_given_up(&self, ip: IpAddr) -> bool {
        self.lost.iter().any(|lost| lost.is_given_up && lost.vip == ip)
    }
}

/// Whether two ranges have an address in common.
pub fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(other) || other.contains(one)
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
        VipSources { ranges, reserved: &[], in_use, existing: &[], lost: &[], preferred: &[] }
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
        assert_eq!(full, (vec![], Some(NoFreeVip::InUse(ranges.v4.into()))));
        in_use.remove(&name("s3"), chosen.iter().copied());
        let freed = new_vips(&ranges, &in_use).choose(&name("more"), &[IpFamily::V4]);
        assert_eq!(freed.1, None);
    }

    #[test]
    fn vips_of_other_ranges_are_found() {
        let mut in_use = VipsInUse::default();
        let vips =
            ["240.255.255.255", "241.0.0.0", "241.0.0.255", "241.0.1.0", "fd00::1", "fe00::1"];
        in_use.add(&name("web"), ips(&vips));
        let ranges = small("241.0.0.0/24");
        let outside: Vec<_> = in_use.outside(&ranges).map(|(ip, _)| ip).collect();
        assert_eq!(outside, ips(&["240.255.255.255", "241.0.1.0", "fd00::1", "fe00::1"]));
    }

    #[test]
    fn a_range_without_room_has_no_vips() {
        for range in ["241.0.0.0/32", "241.0.0.0/31"] {
            let ranges = small(range);
            let in_use = VipsInUse::default();
            let none = new_vips(&ranges, &in_use).choose(&name("web"), &[IpFamily::V4]);
            assert_eq!(none, (vec![], Some(NoFreeVip::InUse(ranges.v4.into()))), "{range}");
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

    /// A cluster that imports two services with one hash.
    #[derive(Default)]
    struct Importing {
        in_use: VipsInUse,
        vips: BTreeMap<ServiceName, IpAddr>,
    }

    impl Importing {
        /// Looks at a service whose exporter says that it has this VIP.
        fn sees(&mut self, ranges: &VipRanges, name: &ServiceName, claim: Option<IpAddr>) {
            let existing: Vec<_> = self.vips.get(name).copied().into_iter().collect();
            let preferred: Vec<_> = claim.into_iter().collect();
            let sources = VipSources {
                existing: &existing,
                preferred: &preferred,
                ..new_vips(ranges, &self.in_use)
            };
            let (vips, problem) = sources.choose(name, &[IpFamily::V4]);
            assert_eq!(problem, None);
            self.in_use.add(name, vips.iter().copied());
            self.vips.insert(name.clone(), vips[0]);
        }
    }

    /// The first cluster exports the first service, the second one the second, and the third one none.
    #[test]
    fn two_services_of_one_hash_have_the_same_vips_where_they_are_seen_in_the_same_order() {
        let ranges = small("241.0.0.0/24");
        let mut alone = BTreeMap::new();
        let services = (0..).find_map(|number| {
            let (mut cluster, name) = (Importing::default(), name(&format!("s{number}")));
            cluster.sees(&ranges, &name, None);
            let former = alone.insert(cluster.vips[&name], name.clone())?;
            Some((cluster.vips[&name], [former, name]))
        });
        let (hashed, services) = services.expect("two names of one hash");
        let next = IpAddr::from(Ipv4Addr::from(u32::try_from(number(hashed) + 1).unwrap()));
        for orders in 0..8_u8 {
            let seen_first = |cluster: usize| usize::from(orders >> cluster & 1);
            let mut clusters: [Importing; 3] = Default::default();
            for (nth, cluster) in clusters.iter_mut().enumerate() {
                let first = seen_first(nth);
                for service in [first, 1 - first] {
                    cluster.sees(&ranges, &services[service], None);
                }
            }
            let chosen = clusters.each_ref().map(|one| one.vips.clone());
            for (nth, vips) in chosen.iter().enumerate() {
                let first = seen_first(nth);
                let of = [first, 1 - first].map(|service| vips[&services[service]]);
                assert_eq!(of, [hashed, next], "cluster {nth} of orders {orders:03b}");
            }
            // What the exporters have chosen is known late. Each cluster keeps what it gave.
            let unused = "241.0.0.200".parse().unwrap();
            for (exporter, service) in services.iter().enumerate() {
                for claim in [chosen[exporter][service], unused] {
                    for cluster in &mut clusters {
                        cluster.sees(&ranges, service, Some(claim));
                    }
                }
            }
            assert_eq!(clusters.each_ref().map(|one| one.vips.clone()), chosen);
            // A cluster that joins later knows it, and gives no VIP to both.
            for order in [[0, 1], [1, 0]] {
                let mut late = Importing::default();
                for service in order {
                    let claim = chosen[service][&services[service]];
                    late.sees(&ranges, &services[service], Some(claim));
                }
                let of = order.map(|service| late.vips[&services[service]]);
                assert_ne!(of[0], of[1], "orders {orders:03b}");
                assert_eq!(of[0], chosen[order[0]][&services[order[0]]], "it is free there");
                if seen_first(0) == seen_first(1) {
                    assert_eq!(late.vips, chosen[0], "the exporters agree, and so does it");
                }
            }
        }
    }

    #[test]
    fn a_vip_that_is_lost_stays_until_it_is_given_up_and_another_is_free() {
        let services: Vec<IpNet> = vec!["10.96.0.0/16".parse().unwrap()];
        let existing = ips(&["10.96.0.9"]);
        let choose = |ranges: &VipRanges, is_given_up| {
            let lost = [LostVip { vip: existing[0], is_given_up }];
            let in_use = VipsInUse::default();
            let sources = VipSources {
                reserved: &services,
                existing: &existing,
                lost: &lost,
                ..new_vips(ranges, &in_use)
            };
            let (vips, problem) = sources.choose(&name("web"), &[IpFamily::V4]);
            assert_eq!(problem, None);
            assert_eq!(sources.first_lost(&vips).is_some(), vips == existing);
            vips
        };
        let ranges = VipRanges::for_clusterset("test");
        assert_eq!(choose(&ranges, false), existing);
        assert_eq!(choose(&ranges, true), ips(&["241.210.94.96"]));
        assert_eq!(choose(&small("10.96.0.0/24"), true), existing, "no other is free");
    }

    #[test]
    fn a_search_costs_the_same_in_any_range() {
        let pods: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        let in_use = VipsInUse::default();
        let begin = std::time::Instant::now();
        for v6 in ["fd9f:86d0:8188::/96", "fd9f:86d0:8188::/64"] {
            let ranges = VipRanges { v6: v6.parse().unwrap(), ..VipRanges::for_clusterset("test") };
            let sources = VipSources { reserved: &pods, ..new_vips(&ranges, &in_use) };
            let (vips, problem) = sources.choose(&name("web"), &[IpFamily::V4, IpFamily::V6]);
            assert_eq!(vips, ips(&["241.210.94.96"]), "the pods have none of these");
            let all = NoFreeVip::Reserved { range: ranges.v6.into(), reserved: pods[1] };
            assert_eq!(problem, Some(all));
            // All but a few at the end.
            let most = ["fd9f:86d0:8188::/97", "fd9f:86d0:8188::8000:0/98"];
            let most: Vec<IpNet> = most.iter().map(|net| net.parse().unwrap()).collect();
            let sources = VipSources { reserved: &most, ..new_vips(&ranges, &in_use) };
            let (vips, _) = sources.choose(&name("web"), &[IpFamily::V6]);
            assert!(!most.iter().any(|net| net.contains(&vips[0])), "{vips:?}");
        }
        let took = begin.elapsed();
        assert!(took < std::time::Duration::from_secs(5), "a walk takes minutes: {took:?}");
    }

    #[test]
    fn a_search_gives_up_after_many_vips_in_a_row() {
        let ranges = small("241.0.0.0/8");
        let mut in_use = VipsInUse::default();
        // A peer may publish whatever VIPs it likes.
        let VipRanges { v4, .. } = ranges;
        let start = u32::from(Ipv4Addr::new(241, 210, 94, 0));
        for number in start..start + 100_000 {
            in_use.add(&name("other"), [IpAddr::from(Ipv4Addr::from(number))]);
        }
        let found = new_vips(&ranges, &in_use).choose(&name("web"), &[IpFamily::V4]);
        assert_eq!(found, (vec![], Some(NoFreeVip::InUse(v4.into()))), "it gives up");
    }

    #[test]
    fn what_is_in_use_is_not_what_is_reserved() {
        let ranges = small("241.0.0.0/29");
        let reserved: Vec<IpNet> = vec!["241.0.0.0/30".parse().unwrap()];
        let mut in_use = VipsInUse::default();
        in_use.add(&name("other"), ips(&["241.0.0.4", "241.0.0.6"]));
        let choose = |in_use: &VipsInUse, reserved: &[IpNet]| {
            let sources = VipSources { reserved, ..new_vips(&ranges, in_use) };
            sources.choose(&name("web"), &[IpFamily::V4])
        };
        assert_eq!(choose(&in_use, &reserved).0, ips(&["241.0.0.5"]));
        in_use.add(&name("third"), ips(&["241.0.0.5"]));
        let range = ranges.v4.into();
        assert_eq!(choose(&in_use, &reserved).1, Some(NoFreeVip::InUse(range)));
        let halves: Vec<IpNet> =
            ["241.0.0.0/30", "241.0.0.4/30"].iter().map(|net| net.parse().unwrap()).collect();
        let (_, problem) = choose(&in_use, &halves);
        assert!(matches!(problem, Some(NoFreeVip::Reserved { .. })), "{problem:?}");
    }

    #[test]
    fn the_default_ranges_differ_by_clusterset() {
        let one = VipRanges::for_clusterset("one");
        assert!(one.v6 != VipRanges::for_clusterset("two").v6);
        assert!(one.v6.addr().is_unique_local());
    }
}
