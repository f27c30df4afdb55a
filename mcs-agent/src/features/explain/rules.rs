//! Explains one import: what the rules make of it and of each endpoint of its slices.
//!
//! It runs the rules themselves, with a recorder. The caller need not have read every object: of other imports only the
//! claimants of this import's VIPs count, with their slices.

use std::{net::IpAddr, sync::Arc};

use serde::Serialize;

use super::fates::{Fates, PortFate};
use crate::core::{
    feature::Definition,
    model::{
        Capacity, DesiredState, EndpointAddress, EndpointSlice, Frontend, FrontendId, ImportPort,
        ImportReport, NodeContext, ObjectKey, Rejection,
    },
    rules::{Fate, IpFamily, candidate::Fallback, full_round, preference::Preferences, report},
    store::Snapshot,
};

/// What the rules make of one import.
#[derive(Debug)]
pub(super) struct Explanation {
    /// Its state; absent if there is no such import.
    pub(super) report: Option<ImportReport>,
    /// What is rejected of the import and of its slices.
    pub(super) rejections: Vec<Rejection>,
    /// The addresses that it lists, as written.
    pub(super) ips: Vec<String>,
    /// The ports that it lists.
    pub(super) ports: Vec<ImportPort>,
    /// The frontends that it holds.
    pub(super) frontends: Vec<(FrontendId, Frontend)>,
    /// Its slices, by name.
    pub(super) slices: Vec<ExplainedSlice>,
    /// The second choices that are used, with the name of the port.
    pub(super) fallbacks: Vec<(String, Fallback)>,
}

/// A slice and the fates of its endpoints.
#[derive(Debug, Serialize)]
pub(super) struct ExplainedSlice {
    /// Its name.
    pub(super) name: Arc<str>,
    /// The source cluster; empty if it names none.
    pub(super) cluster: Arc<str>,
    /// `addressType`.
    pub(super) address_type: String,
    /// Its ports: `http 8080/TCP`.
    pub(super) ports: Vec<String>,
    /// In its order.
    pub(super) endpoints: Vec<ExplainedEndpoint>,
}

/// An endpoint and its fate for each port. It has no fate if the rules have not evaluated it.
#[derive(Debug, Serialize)]
pub(super) struct ExplainedEndpoint {
    /// As written.
    pub(super) address: String,
    /// One for each port of the import, or one for all.
    pub(super) fates: Vec<PortFate>,
}

/// Explains an import. `in_force`: what the maps hold, with the reports of the agent, which alone remembers what preferences
/// did.
///
/// What all imports together want is not known here, so the limits of `--max-memory` do not count: the report of the
/// agent says what they reject.
pub(super) fn explain(
    snapshot: &Snapshot,
    node: &NodeContext,
    in_force: &DesiredState,
    key: &ObjectKey,
    features: &[Definition],
) -> Explanation {
    let node = NodeContext { capacity: Capacity::MOST, ..node.clone() };
    let preferences = &mut Preferences::default();
    for feature in features {
        preferences.add((feature.preference)(None));
    }
    let evaluation = full_round::evaluate(snapshot, &node, in_force, preferences);
    let import = snapshot.import(key);
    let mut explanation = Explanation {
        report: evaluation.desired.report(key).cloned(),
        rejections: evaluation.desired.rejections,
        ips: import.map(|import| import.ips.clone()).unwrap_or_default(),
        ports: import.map(|import| import.ports.clone()).unwrap_or_default(),
        frontends: Vec::new(),
        slices: Vec::new(),
        fallbacks: Vec::new(),
    };
    let is_slice = |name: &ObjectKey| snapshot.slices(key).any(|slice| slice.key == *name);
    explanation
        .rejections
        .retain(|rejection| rejection.object.key == *key || is_slice(&rejection.object.key));
    let mut fates = Fates::default();
    if let Some((import, claim)) = import.zip(evaluation.claims.get(key)) {
        let mut vips = evaluation.vips.clone();
        for (id, frontend) in &in_force.frontends {
            vips.entry(id.ip).or_insert_with(|| frontend.import.clone());
        }
        if let Some(report) = in_force.report(key) {
            preferences.each(|one| one.recall(&report.sections));
        }
        let assigned =
            claim.select_backends(import, snapshot, &vips, &node, preferences, &mut fates);
        explanation.report = Some(report::of_assigned(&assigned));
        explanation.frontends = assigned.frontends;
    }
    let frontends = &explanation.frontends;
    explanation.slices =
        snapshot.slices(key).map(|slice| explained(slice, &fates, frontends)).collect();
    explanation.fallbacks = fates.fallbacks.into_iter().collect();
    explanation
}

/// The imports that list one of these addresses.
pub(super) fn claimants(snapshot: &Snapshot, ips: &[IpAddr]) -> Vec<ObjectKey> {
    let lists = |texts: &[String]| {
        texts.iter().filter_map(|text| text.parse().ok()).any(|ip: IpAddr| ips.contains(&ip))
    };
    let imports = snapshot.imports().filter(|import| lists(&import.ips));
    imports.map(|import| import.key.clone()).collect()
}

/// `frontends`: the frontends of the import.
fn explained(
    slice: &EndpointSlice,
    fates: &Fates,
    frontends: &[(FrontendId, Frontend)],
) -> ExplainedSlice {
    let family = IpFamily::of_slice(&slice.address_type);
    let lacks_port =
        family.is_ok_and(|family| frontends.iter().any(|(id, _)| IpFamily::of(id.ip) == family));
    let endpoints = slice.endpoints.iter().map(|endpoint| {
        let mut of_endpoint = fates.of(endpoint);
        // The rules made no candidate of the endpoint, and did not reject it: its slice lacks the ports.
        if of_endpoint.is_empty() && lacks_port {
            of_endpoint.push(PortFate::of_all(Ok(Fate::NoSuchPort), None));
        }
        ExplainedEndpoint { address: text(&endpoint.address), fates: of_endpoint }
    });
    let ports = slice.ports.iter().map(|port| {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let number = port.port.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let name = if port.name.is_empty() { "unnamed" } else { &port.name };
        format!("{name} {number}/{protocol}")
    });
    ExplainedSlice {
        name: Arc::clone(&slice.key.name),
        cluster: Arc::clone(&slice.source_cluster),
        address_type: slice.address_type.clone(),
        ports: ports.collect(),
        endpoints: endpoints.collect(),
    }
}

fn text(address: &EndpointAddress) -> String {
    match address {
        EndpointAddress::Absent => "no address".to_owned(),
        EndpointAddress::Ip(ip) => ip.to_string(),
        EndpointAddress::Other(text) => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::fates::word, *};
    use crate::core::model::{
        ClusterAffinity, ImportState, RejectionReason, ServiceImport, Tiers,
        fixture::{endpoint, import, key, knowing, node, plain_node, slice, snapshot},
    };

    fn web() -> ServiceImport {
        import("shop/web").ip("10.0.0.1").port("http", 80)
    }

    fn east() -> EndpointSlice {
        slice("shop/web-east", "web").cluster("east").port("http", 8080)
    }

    fn west() -> EndpointSlice {
        slice("shop/web-west", "web").cluster("west").port("http", 8080)
    }

    fn here() -> NodeContext {
        knowing(node(), |facts| facts.service_ranges = plain_node().facts.service_ranges)
    }

    fn of(import: ServiceImport, slices: Vec<EndpointSlice>) -> Explanation {
        let objects: Vec<crate::core::model::Object> =
            std::iter::once(import.into()).chain(slices.into_iter().map(Into::into)).collect();
        explain(&snapshot(objects), &here(), &DesiredState::default(), &key("shop/web"), &[])
    }

    /// `address fate`, of every endpoint.
    fn fates(explanation: &Explanation) -> Vec<String> {
        let endpoints = explanation.slices.iter().flat_map(|slice| &slice.endpoints);
        let one = |endpoint: &ExplainedEndpoint| {
            let fates: Vec<_> = endpoint.fates.iter().map(|one| word(one.fate)).collect();
            format!("{} {}", endpoint.address, fates.join(","))
        };
        endpoints.map(one).collect()
    }

    #[test]
    fn readiness_decides() {
        let explanation = of(
            web(),
            vec![
                east()
                    .address("10.1.0.1")
                    .endpoint(endpoint("10.1.0.2").conditions(false, false, false))
                    .endpoint(endpoint("10.1.0.3").draining()),
            ],
        );
        assert_eq!(
            fates(&explanation),
            ["10.1.0.1 used", "10.1.0.2 not-ready", "10.1.0.3 terminating"]
        );
        assert_eq!(explanation.report.unwrap().state, ImportState::Ready);
        let backends: Vec<_> =
            explanation.frontends[0].1.backends.iter().map(|one| one.address.to_string()).collect();
        assert_eq!(backends, ["10.1.0.1:8080"]);
    }

    #[test]
    fn those_that_drain_are_used_if_none_is_ready() {
        let explanation = of(
            web(),
            vec![
                east()
                    .endpoint(endpoint("10.1.0.1").draining())
                    .endpoint(endpoint("10.1.0.2").conditions(false, false, false)),
            ],
        );
        assert_eq!(fates(&explanation), ["10.1.0.1 used", "10.1.0.2 not-ready"]);
        assert_eq!(explanation.fallbacks, [("http".to_owned(), Fallback::TerminatingServe)]);
    }

    #[test]
    fn the_tier_that_is_empty_is_named() {
        let tiers = Tiers::parse(r#"[{"clusters":["east"]},{"clusters":["south","west"]}]"#);
        let tiered = ServiceImport { tiers: Some(Box::new(tiers)), ..web() };
        let unready = endpoint("10.1.0.1").conditions(false, false, false);
        for (near, far, expected) in [
            (east().address("10.1.0.1"), west().address("10.2.0.1"), None),
            (
                east().endpoint(unready.clone()),
                west().address("10.2.0.1"),
                Some("tier 1 (east) has no usable endpoint, so tier 2 (south, west) serves it"),
            ),
            (
                east().endpoint(unready.clone()),
                west().cluster("north").address("10.2.0.1"),
                Some("no tier has a usable endpoint, so all clusters serve it"),
            ),
            (east().endpoint(unready.clone()), west().endpoint(unready), None),
        ] {
            let fallbacks = of(tiered.clone(), vec![near, far]).fallbacks;
            let told = fallbacks.iter().map(|(_, fallback)| fallback.to_string()).next();
            assert_eq!(told.as_deref(), expected);
        }
    }

    #[test]
    fn each_preference_has_a_fate() {
        let local = ServiceImport { internal_traffic_policy: Some("Local".to_owned()), ..web() };
        let explanation = of(
            local,
            vec![
                east()
                    .endpoint(endpoint("10.1.0.1").node("n1"))
                    .endpoint(endpoint("10.1.0.2").node("n2")),
            ],
        );
        assert_eq!(fates(&explanation), ["10.1.0.1 used", "10.1.0.2 other-node"]);

        let affinity =
            ClusterAffinity { annotation: "example.io/affinity", value: "local".to_owned() };
        let affinity = ServiceImport { cluster_affinity: Some(affinity.into()), ..web() };
        let results = Tiers::parse(r#"[{"clusters":["east"]}]"#);
        let results = ServiceImport { tiers: Some(Box::new(results)), ..web() };
        for import in [affinity, results] {
            let slices = vec![east().address("10.1.0.1"), west().address("10.2.0.1")];
            assert_eq!(fates(&of(import, slices)), ["10.1.0.1 used", "10.2.0.1 other-tier"]);
        }

        let hints = east()
            .endpoint(endpoint("10.1.0.1").for_zone("z1"))
            .endpoint(endpoint("10.1.0.2").for_zone("z2"));
        assert_eq!(fates(&of(web(), vec![hints])), ["10.1.0.1 used", "10.1.0.2 topology-hint"]);

        let near = ServiceImport { traffic_distribution: Some("PreferSameZone".into()), ..web() };
        let zones = east()
            .endpoint(endpoint("10.1.0.1").in_zone("z1"))
            .endpoint(endpoint("10.1.0.2").in_zone("z2"));
        assert_eq!(fates(&of(near, vec![zones])), ["10.1.0.1 used", "10.1.0.2 farther"]);
    }

    #[test]
    fn a_small_share_leaves_endpoints_without_a_slot() {
        let traffic = r#"{"east":{"weight":1},"west":{"weight":1000}}"#;
        let traffic = crate::core::model::Traffic::parse(traffic).unwrap();
        let node = knowing(here(), |facts| facts.traffic = traffic);
        let many = (1..=20).fold(east(), |slice, last| slice.address(&format!("10.1.0.{last}")));
        let objects: [crate::core::model::Object; 3] =
            [web().into(), many.into(), west().address("10.2.0.1").into()];
        let (snapshot, former) = (snapshot(objects), DesiredState::default());
        let found = fates(&explain(&snapshot, &node, &former, &key("shop/web"), &[]));
        assert!(found.contains(&"10.2.0.1 used".to_owned()), "{found:?}");
        assert!(found.iter().any(|one| one.ends_with(" no-slot")), "{found:?}");
    }

    #[test]
    fn duplicates_and_what_is_rejected_have_fates() {
        let explanation = of(
            web(),
            vec![
                east().address("10.1.0.1").address("127.0.0.1").address("fd00::1"),
                west().address("10.1.0.1"),
            ],
        );
        assert_eq!(
            fates(&explanation),
            [
                "10.1.0.1 used",
                "127.0.0.1 endpoint-forbidden",
                "fd00::1 endpoint-invalid",
                "10.1.0.1 duplicate",
            ]
        );
        let message = explanation.slices[0].endpoints[1].fates[0].message.clone().unwrap();
        assert!(message.contains("loopback"), "{message}");
        let reasons: Vec<_> = explanation.rejections.iter().map(|one| one.reason).collect();
        assert_eq!(reasons, [RejectionReason::EndpointInvalid, RejectionReason::EndpointForbidden]);
    }

    #[test]
    fn a_slice_without_the_port_says_so() {
        let other = slice("shop/web-west", "web").cluster("west").port("web", 8080);
        let explanation = of(web(), vec![east().address("10.1.0.1"), other.address("10.2.0.1")]);
        assert_eq!(fates(&explanation), ["10.1.0.1 used", "10.2.0.1 no-such-port"]);
        // Of another family, for which the import has no VIP: the rules do not ask for it.
        let v6 = slice("shop/web-v6", "web").v6().port("http", 8080).address("fd00:1::1");
        assert_eq!(fates(&of(web(), vec![v6])), ["fd00:1::1 "]);
    }

    #[test]
    fn a_fate_for_each_port() {
        let two = web().port("admin", 81);
        let both = east().port("admin", 9090).address("10.1.0.1");
        let explanation = of(two, vec![both]);
        assert_eq!(fates(&explanation), ["10.1.0.1 used,used"]);
        let fates = &explanation.slices[0].endpoints[0].fates;
        assert_eq!(fates[0].port.as_deref(), Some("http"));
        assert_eq!(fates[1].backend, Some("10.1.0.1:9090".parse().unwrap()));
    }

    #[test]
    fn who_holds_the_vip_decides() {
        let older = import("shop/older").ip("10.0.0.1").port("http", 80).created(1);
        let of_older = slice("shop/older-east", "older").port("http", 8080).address("10.1.0.9");
        let snapshot = snapshot([
            crate::core::model::Object::from(web().created(2)),
            older.into(),
            of_older.into(),
            east().address("10.1.0.1").into(),
        ]);
        let explained =
            |name| explain(&snapshot, &here(), &DesiredState::default(), &key(name), &[]);
        let web = explained("shop/web");
        assert_eq!(web.report.unwrap().state, ImportState::Rejected);
        assert_eq!(web.rejections[0].reason, RejectionReason::FrontendTaken);
        assert!(web.frontends.is_empty());
        assert_eq!(explained("shop/older").frontends.len(), 1);
        let ip = "10.0.0.1".parse().unwrap();
        assert_eq!(claimants(&snapshot, &[ip]), [key("shop/older"), key("shop/web")]);
        assert!(explained("shop/none").report.is_none());
    }
}
