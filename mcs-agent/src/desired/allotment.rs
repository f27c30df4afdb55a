use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{
    capacity::{Limit, Places},
    precedence::{self, Claimant},
    refusal::Refusal,
};
use crate::model::{DesiredState, FrontendId, ObjectKey, RejectionReason};

/// Who has which VIP and frontend.
#[derive(Debug)]
pub(super) struct Allotment<'a> {
    /// Every VIP, and the first import that has it: all who claim a VIP share it.
    pub(super) vips: BTreeMap<IpAddr, &'a ObjectKey>,
    /// One per claimant, in their order.
    pub(super) holdings: Vec<Holding>,
}

/// What a claimant has been given.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Holding {
    /// Its frontends, with the index of the port in its claim.
    pub(super) frontends: Vec<(FrontendId, usize)>,
    /// Whether a VIP is ours by it. One of which others hold every frontend it claims is not: without
    /// this import all would be the same.
    pub(super) has_vip: bool,
}

/// Gives VIPs and frontends to the claimants, which are sorted by precedence, as far as
/// `max_frontends` goes for each; the rest is refused to them. What is in force goes before what is
/// new.
///
/// That bounds the imports in the maps as well: only those that hold a frontend stand there.
pub(super) fn allot<'a>(
    claimants: &mut [Claimant<'a>],
    max_frontends: u32,
    in_force: &DesiredState,
) -> Allotment<'a> {
    let mut room = Room::of(claimants, max_frontends, in_force);
    let holdings = claimants
        .iter_mut()
        .enumerate()
        .map(|(index, claimant)| {
            let (holding, refusals) = room.give(index, claimant);
            claimant.refusals.extend(refusals);
            holding
        })
        .collect();
    Allotment { vips: room.vips, holdings }
}

struct Room<'a> {
    claimants: Vec<&'a ObjectKey>,
    holders: BTreeMap<FrontendId, usize>,
    vips: BTreeMap<IpAddr, &'a ObjectKey>,
    vip_places: Places<IpAddr>,
    frontend_places: Places<FrontendId>,
}

impl<'a> Room<'a> {
    fn of(claimants: &[Claimant<'a>], max_frontends: u32, in_force: &DesiredState) -> Self {
        let limit = |noun, wanted| Limit::new(max_frontends, noun, wanted);
        let holders = precedence::holders(claimants);
        let vips: BTreeSet<&IpAddr> = claimants.iter().flat_map(|c| &c.claim.vips).collect();
        let vips_in_force = vips.iter().filter(|ip| in_force.vips.contains(ip));
        let in_force = holders.keys().filter(|id| in_force.frontends.contains_key(id));
        Self {
            claimants: claimants.iter().map(|claimant| &claimant.import.key).collect(),
            vips: BTreeMap::new(),
            vip_places: Places::new(
                limit("ClusterSetIPs", vips.len()),
                vips_in_force.map(|ip| **ip).collect(),
            ),
            frontend_places: Places::new(
                limit("frontends", holders.len()),
                in_force.copied().collect(),
            ),
            holders,
        }
    }

    fn give(&mut self, index: usize, claimant: &Claimant<'a>) -> (Holding, Vec<Refusal>) {
        let mut holding = Holding::default();
        let mut refusals = Vec::new();
        for &ip in &claimant.claim.vips {
            if let Err(refusal) = self.give_vip(ip, index) {
                refusals.push(refusal);
                continue;
            }
            let mut all_taken = !claimant.claim.ports.is_empty();
            for (frontend, port) in claimant.frontends_of(ip) {
                match self.give_frontend(frontend, index) {
                    Ok(()) => {
                        all_taken = false;
                        holding.frontends.push((frontend, port));
                    }
                    Err(refusal) => {
                        all_taken &= refusal.reason == RejectionReason::FrontendTaken;
                        refusals.push(refusal);
                    }
                }
            }
            holding.has_vip |= !all_taken;
        }
        (holding, refusals)
    }

    fn give_vip(&mut self, ip: IpAddr, index: usize) -> Result<(), Refusal> {
        if !self.vips.contains_key(&ip) {
            if !self.vip_places.take(&ip) {
                return Err(self.vip_places.refuse(&format!("ClusterSetIP {ip}")));
            }
            self.vips.insert(ip, self.claimants[index]);
        }
        Ok(())
    }

    fn give_frontend(&mut self, frontend: FrontendId, index: usize) -> Result<(), Refusal> {
        match self.holders.get(&frontend) {
            Some(&holder) if holder != index => {
                Err(precedence::taken(frontend, self.claimants[holder]))
            }
            _ if !self.frontend_places.take(&frontend) => {
                Err(self.frontend_places.refuse(&format!("frontend {frontend}")))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use RejectionReason::{Capacity, FrontendTaken};

    use super::*;
    use crate::{
        desired::claim::{Verdict, judge},
        model::{
            NodeContext, ServiceImport,
            fixture::{import, key},
        },
    };

    fn claimants(imports: &[ServiceImport]) -> Vec<Claimant<'_>> {
        let mut claimants: Vec<Claimant<'_>> = imports
            .iter()
            .map(|import| match judge(import, true, &NodeContext::default()) {
                (Verdict::Claimed(claim), refusals) => Claimant { import, claim, refusals },
                other => panic!("{}: {other:?}", import.key),
            })
            .collect();
        precedence::sort(&mut claimants);
        claimants
    }

    /// Per claimant in order of precedence: name, frontends, `has_vip`, reasons.
    fn outcome(
        imports: &[ServiceImport],
        max: u32,
    ) -> Vec<(String, Vec<String>, bool, Vec<RejectionReason>)> {
        let mut claimants = claimants(imports);
        let allotment = allot(&mut claimants, max, &DesiredState::default());
        claimants
            .iter()
            .zip(allotment.holdings)
            .map(|(claimant, holding)| {
                (
                    claimant.import.key.name.to_string(),
                    holding.frontends.iter().map(|(id, _)| id.to_string()).collect(),
                    holding.has_vip,
                    claimant.refusals.iter().map(|refusal| refusal.reason).collect(),
                )
            })
            .collect()
    }

    fn row(
        name: &str,
        frontends: &[&str],
        has_vip: bool,
        reasons: &[RejectionReason],
    ) -> (String, Vec<String>, bool, Vec<RejectionReason>) {
        let frontends = frontends.iter().map(|frontend| (*frontend).to_owned()).collect();
        (name.to_owned(), frontends, has_vip, reasons.to_vec())
    }

    #[test]
    fn the_older_then_the_name_has_precedence() {
        let web = |name: &str| import(name).ip("10.0.0.1").port("http", 80);
        let ageless = |name: &str| ServiceImport { created: None, ..web(name) };
        for (one, other, holder) in [
            (web("shop/b").created(1), web("shop/a").created(2), "shop/b"),
            (web("shop/b").created(1), web("shop/a").created(1), "shop/a"),
            (web("a/b").created(1), web("b/a").created(1), "a/b"),
            (web("shop/b").created(1), ageless("shop/a"), "shop/b"),
            (web("shop/b").created(-1), ageless("shop/a"), "shop/b"),
            (ageless("shop/b"), ageless("shop/a"), "shop/a"),
        ] {
            for imports in [[one.clone(), other.clone()], [other.clone(), one.clone()]] {
                let claimants = claimants(&imports);
                assert_eq!(claimants[0].import.key, key(holder));
            }
        }
    }

    #[test]
    fn a_frontend_is_taken_alone() {
        let imports = [
            import("shop/old").created(1).ip("10.0.0.1").port("http", 80).port("tls", 443),
            import("shop/new").created(2).ip("10.0.0.1").ip("10.0.0.2").port("h", 80),
            import("shop/udp").created(3).ip("10.0.0.1").port_of("u", 80, Some("UDP")),
            import("shop/late").created(4).ip("10.0.0.1").port("h", 443),
            import("shop/bare").created(5).ip("10.0.0.1"),
        ];
        assert_eq!(
            outcome(&imports, 100),
            [
                row("old", &["10.0.0.1:80/TCP", "10.0.0.1:443/TCP"], true, &[]),
                row("new", &["10.0.0.2:80/TCP"], true, &[FrontendTaken]),
                row("udp", &["10.0.0.1:80/UDP"], true, &[]),
                row("late", &[], false, &[FrontendTaken]),
                row("bare", &[], true, &[]),
            ]
        );
        let mut claimants = claimants(&imports);
        let allotment = allot(&mut claimants, 100, &DesiredState::default());
        assert_eq!(
            claimants[1].refusals[0].message,
            "10.0.0.1:80/TCP is held by ServiceImport shop/old, which is older or comes first by \
             name; give one of them another ClusterSetIP or port"
        );
        let vips: Vec<_> = allotment
            .vips
            .iter()
            .map(|(ip, import)| (ip.to_string(), import.to_string()))
            .collect();
        assert_eq!(
            vips,
            [("10.0.0.1", "shop/old"), ("10.0.0.2", "shop/new")]
                .map(|(ip, import)| (ip.to_owned(), import.to_owned()))
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_to_the_younger() {
        let imports = [
            import("shop/a").created(1).ip("10.0.0.1").port("h", 80).port("t", 443),
            import("shop/b").created(2).ip("10.0.0.2").port("h", 80).port("t", 443),
            import("shop/c").created(3).ip("10.0.0.3").ip("10.0.0.4").port("h", 80),
            import("shop/d").created(4).ip("10.0.0.1").port("h", 80).port("x", 81),
        ];
        assert_eq!(
            outcome(&imports, 3),
            [
                row("a", &["10.0.0.1:80/TCP", "10.0.0.1:443/TCP"], true, &[]),
                row("b", &["10.0.0.2:80/TCP"], true, &[Capacity]),
                row("c", &[], true, &[Capacity, Capacity]),
                row("d", &[], true, &[FrontendTaken, Capacity]),
            ]
        );
        assert_eq!(outcome(&imports, 7).iter().filter(|row| row.3.contains(&Capacity)).count(), 0);
        let mut claimants = claimants(&imports);
        let allotment = allot(&mut claimants, 3, &DesiredState::default());
        assert_eq!(allotment.vips.len(), 3);
        let messages: Vec<&str> =
            claimants[2].refusals.iter().map(|refusal| refusal.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "frontend 10.0.0.3:80/TCP does not fit: 7 frontends are wanted and --max-memory has \
                 room for 3; raise it in proportion",
                "ClusterSetIP 10.0.0.4 does not fit: 4 ClusterSetIPs are wanted and --max-memory \
                 has room for 3; raise it in proportion",
            ]
        );
    }
}
