//! Assigns VIPs and frontends to the imports that claim them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{
    capacity::{Limit, Quota},
    claim::{Assignment, Claim, Claimant, ClaimedFrontend},
    fields::ObjectProblem,
};
use crate::core::model::{Capacity, DesiredState, FrontendId, ObjectKey, RejectionReason};

/// Sorts by age, then namespace and name: the order of precedence. An import without a creation time comes last.
pub(super) fn sort(claimants: &mut [Claimant<'_>]) {
    claimants.sort_by_key(|(import, _)| (import.created.is_none(), import.created, &import.key));
}

/// Assigns VIPs and frontends to the claimants, which are sorted by precedence. The capacity limits both; each claim gets a
/// problem for what does not fit. VIPs and frontends in force come before new ones. A VIP whose frontends do not fit is
/// assigned without them, so that its clients are refused.
///
/// This limits the imports in the maps too: the maps hold an import only if it has a frontend.
///
/// Returns every VIP with the first import that claims it, and whether not all fits. All imports that claim a VIP share it.
pub(super) fn assign(
    claimants: &mut [Claimant<'_>],
    capacity: Capacity,
    in_force: &DesiredState,
) -> (BTreeMap<IpAddr, ObjectKey>, bool) {
    let mut assigner = Assigner::new(claimants, capacity, in_force);
    for (index, (_, claim)) in claimants.iter_mut().enumerate() {
        assigner.assign(index, claim);
    }
    // A map that is collected has full nodes: it takes half the memory of a map into which entries are inserted.
    (assigner.vips.into_iter().collect(), assigner.is_crowded)
}

/// Who gets a frontend.
struct Holder {
    /// The index of the claimant.
    index: usize,
    /// Whether others claim it too.
    is_contested: bool,
}

/// The holder of every frontend: the first claimant that has slices, or else the first one.
///
/// An import without slices can be a controller's note of a service that another import leads to.
fn holders(claimants: &[Claimant<'_>]) -> BTreeMap<FrontendId, Holder> {
    let mut holders: BTreeMap<FrontendId, Holder> = BTreeMap::new();
    for (index, (_, claim)) in claimants.iter().enumerate() {
        for frontend in claim.frontends() {
            holders
                .entry(frontend.id)
                .and_modify(|holder| {
                    holder.is_contested = true;
                    if claim.has_slices && !claimants[holder.index].1.has_slices {
                        holder.index = index;
                    }
                })
                .or_insert(Holder { index, is_contested: false });
        }
    }
    holders
}

struct Assigner {
    claimants: Vec<ObjectKey>,
    /// The VIPs that several imports claim.
    shared: BTreeSet<IpAddr>,
    is_crowded: bool,
    holders: BTreeMap<FrontendId, Holder>,
    vips: BTreeMap<IpAddr, ObjectKey>,
    vip_quota: Quota<IpAddr>,
    frontend_quota: Quota<FrontendId>,
}

impl Assigner {
    fn new(claimants: &[Claimant<'_>], capacity: Capacity, in_force: &DesiredState) -> Self {
        let holders = holders(claimants);
        let mut vips = BTreeSet::new();
        let all = claimants.iter().flat_map(|(_, claim)| &claim.vips).copied();
        let shared = all.filter(|ip| !vips.insert(*ip)).collect();
        let frontends = holders.keys().filter(|id| in_force.frontends.contains_key(id)).copied();
        let vip_limit = Limit::new(capacity.vips, "ClusterSetIPs", vips.len());
        let frontend_limit = Limit::new(capacity.frontends, "frontends", holders.len());
        Self {
            shared,
            is_crowded: !(vip_limit.suffices() && frontend_limit.suffices()),
            claimants: claimants.iter().map(|(import, _)| import.key.clone()).collect(),
            vips: BTreeMap::new(),
            vip_quota: Quota::new(vip_limit, &vips & &in_force.vips),
            frontend_quota: Quota::new(frontend_limit, frontends.collect()),
            holders,
        }
    }

    fn assign(&mut self, index: usize, claim: &mut Claim) {
        let mut assigned = Assignment::default();
        let mut problems = Vec::new();
        for &ip in &claim.vips {
            if let Err(problem) = self.assign_vip(ip, index) {
                problems.push(problem);
                continue;
            }
            let mut all_taken = !claim.ports.is_empty();
            for frontend in claim.frontends_of(ip) {
                match self.assign_frontend(frontend.id, index) {
                    Ok(()) => {
                        all_taken = false;
                        assigned.frontends.push(frontend);
                    }
                    Err(problem) => {
                        all_taken &= problem.reason == RejectionReason::FrontendTaken;
                        problems.push(problem);
                    }
                }
            }
            assigned.has_vip |= !all_taken;
        }
        assigned.frontends.shrink_to_fit();
        let is_contested = |one: ClaimedFrontend| self.holders[&one.id].is_contested;
        assigned.is_contested = claim.frontends().any(is_contested);
        assigned.shares_vips = claim.vips.iter().any(|ip| self.shared.contains(ip));
        claim.problems.extend(problems);
        claim.assigned = assigned;
    }

    fn assign_vip(&mut self, ip: IpAddr, index: usize) -> Result<(), ObjectProblem> {
        if !self.vips.contains_key(&ip) {
            self.vip_quota.take(&ip, || format!("ClusterSetIP {ip}"))?;
            self.vips.insert(ip, self.claimants[index].clone());
        }
        Ok(())
    }

    fn assign_frontend(&mut self, frontend: FrontendId, index: usize) -> Result<(), ObjectProblem> {
        let holder = self.holders[&frontend].index;
        if holder == index {
            return self.frontend_quota.take(&frontend, || format!("frontend {frontend}"));
        }
        Err(ObjectProblem::advised(
            RejectionReason::FrontendTaken,
            format_args!(
                "{frontend} is held by ServiceImport {}, which goes first: one with slices before one \
                 without, then the older, then by name",
                self.claimants[holder]
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use RejectionReason::{Capacity, FrontendTaken};

    use super::*;
    use crate::core::{
        model::{
            self, NodeContext, ServiceImport,
            fixture::{import, key},
        },
        rules::{claim::evaluate, eligibility::Coverage, preference::Preferences},
    };

    /// Room for so many VIPs and frontends.
    fn room(vips: u32, frontends: u32) -> model::Capacity {
        model::Capacity { vips, frontends, ..model::Capacity::NONE }
    }

    fn claimants(imports: &[ServiceImport]) -> Vec<Claimant<'_>> {
        let (node, in_force) = (NodeContext::default(), DesiredState::default());
        let mut claimants: Vec<Claimant<'_>> = imports
            .iter()
            .map(|import| {
                let preferences = Preferences::default();
                let claim = evaluate(import, &Coverage::Complete, &node, &in_force, &preferences);
                (import, claim.unwrap())
            })
            .collect();
        sort(&mut claimants);
        claimants
    }

    /// Name, frontends, `has_vip`, reasons of a claimant.
    type Row = (String, Vec<String>, bool, Vec<RejectionReason>);

    /// The claimants in order of precedence.
    fn outcome(imports: &[ServiceImport], room: model::Capacity) -> Vec<Row> {
        outcome_after(imports, room, &DesiredState::default())
    }

    fn outcome_after(
        imports: &[ServiceImport],
        room: model::Capacity,
        in_force: &DesiredState,
    ) -> Vec<Row> {
        let mut claimants = claimants(imports);
        assign(&mut claimants, room, in_force);
        let rows = claimants.into_iter().map(|(import, Claim { assigned, problems, .. })| {
            (
                import.key.name.to_string(),
                assigned.frontends.iter().map(|frontend| frontend.id.to_string()).collect(),
                assigned.has_vip,
                problems.iter().map(|problem| problem.reason).collect(),
            )
        });
        rows.collect()
    }

    fn row(name: &str, frontends: &[&str], has_vip: bool, reasons: &[RejectionReason]) -> Row {
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
                assert_eq!(claimants[0].0.key, key(holder));
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
            outcome(&imports, room(100, 100)),
            [
                row("old", &["10.0.0.1:80/TCP", "10.0.0.1:443/TCP"], true, &[]),
                row("new", &["10.0.0.2:80/TCP"], true, &[FrontendTaken]),
                row("udp", &["10.0.0.1:80/UDP"], true, &[]),
                row("late", &[], false, &[FrontendTaken]),
                row("bare", &[], true, &[]),
            ]
        );
        let mut claimants = claimants(&imports);
        let (vips, _) = assign(&mut claimants, room(100, 100), &DesiredState::default());
        assert_eq!(
            claimants[1].1.problems[0].message,
            "10.0.0.1:80/TCP is held by ServiceImport shop/old, which goes first: one with slices before \
             one without, then the older, then by name; give one of them another ClusterSetIP or port"
        );
        let vips: Vec<_> =
            vips.iter().map(|(ip, import)| (ip.to_string(), import.to_string())).collect();
        assert_eq!(
            vips,
            [("10.0.0.1", "shop/old"), ("10.0.0.2", "shop/new")]
                .map(|(ip, import)| (ip.to_owned(), import.to_owned()))
        );
    }

    #[test]
    fn what_does_not_fit_is_denied_to_the_younger() {
        let imports = [
            import("shop/a").created(1).ip("10.0.0.1").port("h", 80).port("t", 443),
            import("shop/b").created(2).ip("10.0.0.2").port("h", 80).port("t", 443),
            import("shop/c").created(3).ip("10.0.0.3").ip("10.0.0.4").port("h", 80),
            import("shop/d").created(4).ip("10.0.0.1").port("h", 80).port("x", 81),
        ];
        assert_eq!(
            outcome(&imports, room(3, 3)),
            [
                row("a", &["10.0.0.1:80/TCP", "10.0.0.1:443/TCP"], true, &[]),
                row("b", &["10.0.0.2:80/TCP"], true, &[Capacity]),
                row("c", &[], true, &[Capacity, Capacity]),
                row("d", &[], true, &[FrontendTaken, Capacity]),
            ]
        );
        let all = outcome(&imports, room(4, 7));
        assert_eq!(all.iter().filter(|row| row.3.contains(&Capacity)).count(), 0);
        let mut claimants = claimants(&imports);
        let (vips, _) = assign(&mut claimants, room(3, 3), &DesiredState::default());
        assert_eq!(vips.len(), 3);
        let messages: Vec<&str> =
            claimants[2].1.problems.iter().map(|problem| problem.message.as_str()).collect();
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

    #[test]
    fn a_vip_without_room_for_its_frontends_refuses_until_there_is() {
        let web = |name: &str, last: u8| {
            import(name).created(last.into()).ip(&format!("10.0.0.{last}")).port("h", 80)
        };
        let imports = [web("shop/a", 1), web("shop/b", 2), web("shop/c", 3), web("shop/d", 4)];
        let refused = |name: &str| row(name, &[], true, &[Capacity]);
        let nowhere = |name: &str| row(name, &[], false, &[Capacity]);
        assert_eq!(
            outcome(&imports, room(3, 1)),
            [row("a", &["10.0.0.1:80/TCP"], true, &[]), refused("b"), refused("c"), nowhere("d")]
        );
        // `d` had its VIP before: it keeps it, and a frontend that goes is the oldest one's.
        let ip = |last: u8| IpAddr::from([10, 0, 0, last]);
        let in_force = DesiredState { vips: [1, 3, 4].map(ip).into(), ..DesiredState::default() };
        assert_eq!(
            outcome_after(&imports[1..], room(2, 1), &in_force),
            [nowhere("b"), row("c", &["10.0.0.3:80/TCP"], true, &[]), refused("d")]
        );
        assert_eq!(
            outcome_after(&imports[1..], room(3, 1), &in_force),
            [row("b", &["10.0.0.2:80/TCP"], true, &[]), refused("c"), refused("d")]
        );
    }
}
