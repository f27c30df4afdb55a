//! The links in a cluster that imports: its namespace, the ServiceImport and the imported slices.

use std::collections::{BTreeMap, BTreeSet};

use mcs_controller::core::clusterset::ConditionType;
use mcs_kube::{
    ObjectKey,
    objects::{self, ClusterPeerSpec, ServiceImportSpec, ServiceSpec, ServiceType},
    reasons::{ClusterCheck, Reason},
};
use serde_json::Value;

use super::{
    Compared, Difference,
    facts::{End, Ends, View},
    seen,
    source::{Offer, fields, key_of, label, other_fields, shown},
    tables, unlike,
};
use crate::status::{self, Problem};

/// An offer, and the cluster that makes it.
type Offered<'a> = (&'a View<'a>, &'a Offer);

/// Compares the links of a cluster that imports.
pub(super) fn follow(
    view: &View<'_>,
    views: &[View<'_>],
    offers: &[Vec<Offer>],
    compared: &mut Compared,
) {
    let Some(imports) = compared.known(view, ClusterCheck::Imports, &view.imports) else { return };
    let mut wanted = BTreeMap::<&ObjectKey, Vec<Offered<'_>>>::new();
    for (source, offers) in views.iter().zip(offers) {
        for offer in wanted_from(view, source, offers, compared) {
            wanted.entry(&offer.key).or_default().push((source, offer));
        }
    }
    let mut whole = Vec::new();
    for (key, offered) in &wanted {
        compared.note(view, ClusterCheck::Imports);
        let before = compared.differences.len();
        match imports.get(*key) {
            Some(import) => of_import(view, key, import, offered, compared),
            None => missing(view, key, offered, compared),
        }
        if !compared.has_more_than(before) {
            whole.push(*key);
        }
    }
    let traced: BTreeSet<_> = compared.differences.iter().map(|one| one.service.clone()).collect();
    // Nobody that was asked exports these.
    for (key, import) in imports.iter().filter(|(key, _)| !wanted.contains_key(key)) {
        compared.note(view, ClusterCheck::Imports);
        if !traced.contains(&key.to_string()) && !says(view, key, import, compared) {
            whole.push(key);
        }
    }
    tables::follow(view, views, imports, &whole, compared);
}

/// The offers of a cluster that this one is to import.
fn wanted_from<'a>(
    view: &View<'_>,
    source: &View<'_>,
    offers: &'a [Offer],
    compared: &mut Compared,
) -> Vec<&'a Offer> {
    let mut wanted: Vec<_> = offers.iter().filter(|offer| offer.reaches(view.id)).collect();
    if source.id == view.id {
        return wanted;
    }
    let Some(peers) = compared.known(view, ClusterCheck::Imports, &view.peers) else {
        return vec![];
    };
    let Some(peer) = peers.get(source.id) else {
        if let Some(first) = wanted.first().filter(|_| !peers.is_empty()) {
            let what = format!(
                "{} exports {} services to this cluster, and there is no ClusterPeer of it here",
                source.id,
                wanted.len()
            );
            let one = Difference::new(view, ClusterCheck::Peers, &first.key, what);
            compared.add(one.of(source.id).doubt());
        }
        return vec![];
    };
    let rules = objects::read::<ClusterPeerSpec>(&peer["spec"]).map(|spec| spec.namespaces);
    let rules = rules.unwrap_or_default();
    wanted.retain(|offer| rules.allows(&offer.key.namespace));
    wanted
}

/// A service that is not imported.
fn missing(view: &View<'_>, key: &ObjectKey, offered: &[Offered<'_>], compared: &mut Compared) {
    let sources: Vec<_> = offered.iter().map(|(source, _)| source.id).collect();
    let from = sources.join(", ");
    let namespace = ObjectKey::new("", &*key.namespace);
    if let Ok(namespaces) = &view.namespaces {
        let is_told = sources.iter().all(|source| is_told_lacking(view, key, source));
        let what = match namespaces.get(&namespace) {
            None => "it lacks the namespace",
            Some(one) if !one["metadata"]["deletionTimestamp"].is_null() => {
                "its namespace is Terminating, so that no import is made in it"
            }
            Some(_) => "",
        };
        if !what.is_empty() {
            // A cluster may lack namespaces. Row `namespaces` has what its controller says of them.
            if !is_told {
                let what = format!("exported by {from} to this cluster, and {what}");
                let new = Difference::new(view, ClusterCheck::Namespaces, key, what);
                compared.add(new.told(view.event(key)).doubt());
            }
            return;
        }
    }
    let what = format!("exported by {from} to this cluster, and there is no ServiceImport");
    let told = sources.iter().find_map(|source| seen::of_import(view, key, None, source));
    compared.add(Difference::new(view, ClusterCheck::Imports, key, what).told(told));
}

fn is_told_lacking(view: &View<'_>, key: &ObjectKey, source: &str) -> bool {
    let peer = view.peers.as_ref().ok().and_then(|peers| peers.get(source));
    let told = peer.map(|peer| status::missing_namespaces(peer)).unwrap_or_default();
    told.iter().any(|text| text.contains(&key.to_string()))
}

/// Compares an import with what is offered, and its slices.
fn of_import(
    view: &View<'_>,
    key: &ObjectKey,
    import: &Value,
    offered: &[Offered<'_>],
    compared: &mut Compared,
) {
    let new = |what: String| Difference::new(view, ClusterCheck::Imports, key, what);
    let spec: ServiceImportSpec = match objects::read(&import["spec"]) {
        Ok(spec) => spec,
        Err(error) => {
            return compared.add(new(format!("the ServiceImport cannot be read: {error}")));
        }
    };
    let before = compared.differences.len();
    // Another controller decides by its own rules.
    if status::is_own(import) {
        contributions(view, key, import, &spec, offered, compared);
    }
    if compared.has_more_than(before) {
        return;
    }
    let Some(imported) = compared.known(view, ClusterCheck::Slices, &view.imported) else { return };
    for (source, offer) in offered {
        compared.note(view, ClusterCheck::Slices);
        let here = imported.get(&(key.clone(), source.id.to_owned())).cloned().unwrap_or_default();
        if let Some(ends) = &offer.ends {
            slices(view, import, &spec, (source, offer), (ends, &here), compared);
        }
    }
    let sources: BTreeSet<_> = offered.iter().map(|(source, _)| source.id).collect();
    let known: BTreeSet<_> = view.peers.iter().flat_map(BTreeMap::keys).map(|id| &**id).collect();
    for ((_, source), here) in imported.iter().filter(|((other, _), _)| other == key) {
        let is_offered = sources.contains(&**source);
        // Of clusters that were not asked nothing is known.
        let is_known = known.contains(&**source) || source == view.id;
        if status::is_own(import) && !is_offered && !is_known && !here.any_port.is_empty() {
            let what =
                format!("slices of cluster {source:?} are here, and there is no ClusterPeer of it");
            compared.add(Difference::new(view, ClusterCheck::Slices, key, what).of(source));
        }
    }
    if !compared.has_more_than(before) {
        says(view, key, import, compared);
    }
}

/// Whether the import has what each cluster offers.
fn contributions(
    view: &View<'_>,
    key: &ObjectKey,
    import: &Value,
    spec: &ServiceImportSpec,
    offered: &[Offered<'_>],
    compared: &mut Compared,
) {
    let new = |what: String| Difference::new(view, ClusterCheck::Imports, key, what);
    let counted = import["status"]["clusters"].as_array().into_iter().flatten();
    let counted: BTreeSet<_> = counted.filter_map(|one| one["cluster"].as_str()).collect();
    // A conflict can leave a cluster out.
    let lacks =
        |(source, offer): &&Offered<'_>| !offer.is_contested && !counted.contains(source.id);
    if let Some((source, _)) = offered.iter().find(lacks) {
        let what = "it does not name that cluster among those that export the service".to_owned();
        let told = seen::of_import(view, key, Some(import), source.id);
        return compared.add(new(what).of(source.id).told(told));
    }
    let told = || seen::refusal(import).or_else(|| view.event(key));
    if spec.service_type == ServiceType::ClusterSetIp && spec.ips.is_empty() {
        return compared.add(new("it has no address".to_owned()).told(told()));
    }
    // What contested exports become is for the oldest one to decide.
    if offered.iter().any(|(_, offer)| offer.is_contested) || conflict(import).is_some() {
        return;
    }
    let ports: BTreeSet<_> = spec.ports.iter().map(|port| (key_of(port), port.port)).collect();
    let all = offered.iter().flat_map(|(_, offer)| &offer.ports);
    let offered_ports: BTreeSet<_> = all.map(|port| (key_of(port), port.port)).collect();
    // Clusters that were not asked can have further ports.
    let are_all_known = counted.len() == offered.len();
    let are_like =
        if are_all_known { ports == offered_ports } else { offered_ports.is_subset(&ports) };
    if !are_like {
        let (source, offer) = offered[0];
        let what = format!(
            "{} exports the ports {}, the import has {}",
            source.id,
            shown(&offer.ports),
            shown(&spec.ports)
        );
        return compared.add(new(what).told(told()));
    }
    let here = fields(&ServiceSpec {
        session_affinity: spec.session_affinity.clone().unwrap_or_default(),
        internal_traffic_policy: spec.internal_traffic_policy.clone(),
        traffic_distribution: spec.traffic_distribution.clone(),
        cluster_ip: if spec.service_type == ServiceType::Headless { "None" } else { "" }.to_owned(),
        ..ServiceSpec::default()
    });
    if let Some(what) = other_fields(&offered[0].1.fields, &here, "the import") {
        compared.add(new(what).told(told()));
    }
}

/// Compares imported slices with those that the other cluster offers.
fn slices(
    view: &View<'_>,
    import: &Value,
    spec: &ServiceImportSpec,
    (source, offer): (&View<'_>, &Offer),
    (ends, here): (&Ends, &Ends),
    compared: &mut Compared,
) {
    let is_of_family = |(ip, _): &End| {
        let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
        spec.ip_families.is_empty() || spec.ip_families.iter().any(|one| one == family)
    };
    let place = format!("{} {}", offer.place, of(source.id));
    let mut compare = |port: Option<String>, before: BTreeSet<End>, here: &BTreeSet<End>| {
        let before: BTreeSet<_> = before.into_iter().filter(is_of_family).collect();
        let Some(what) = unlike(&before, &place, here, "in the imported slices") else { return };
        let what = match &port {
            Some(port) => format!("port {port}: {what}"),
            None => what,
        };
        let lacking: Vec<_> = before.difference(here).collect();
        let told = outside(view, source.id, &lacking);
        let told = told.or_else(|| seen::of_import(view, &offer.key, Some(import), source.id));
        let one = Difference::new(view, ClusterCheck::Slices, &offer.key, what);
        compared.add(Difference { port, ..one.of(source.id).told(told) });
    };
    if spec.service_type == ServiceType::Headless {
        return compare(None, ends.any_port.clone(), &here.any_port);
    }
    let is_contested = offer.is_contested || conflict(import).is_some();
    for port in offer.ports.iter().filter(|_| !is_contested) {
        let key = key_of(port);
        compare(Some(label(port)), ends.of_port(&key), &here.of_port(&key));
    }
}

fn of(source: &str) -> String {
    format!("of {source}")
}

/// Why endpoints are refused that are outside of the ranges of the ClusterPeer.
fn outside(view: &View<'_>, source: &str, lacking: &[&End]) -> Option<String> {
    let peer = view.peers.as_ref().ok()?.get(source)?;
    let spec: ClusterPeerSpec = objects::read(&peer["spec"]).ok()?;
    let ranges: Vec<ipnet::IpNet> =
        spec.pod_cidrs.iter().filter_map(|one| one.parse().ok()).collect();
    let is_outside = |(ip, _): &&&End| !ranges.iter().any(|range| range.contains(ip));
    let (ip, _) = lacking.iter().find(is_outside).filter(|_| !ranges.is_empty())?;
    let ranges = spec.pod_cidrs.join(", ");
    Some(format!(
        "{}: {ip} is outside of podCIDRs of the ClusterPeer, {ranges}",
        Reason::EndpointsRefused
    ))
}

fn conflict(import: &Value) -> Option<Problem> {
    Problem::if_condition(import, ConditionType::ImportConflict, "True")
}

/// Notes what the import says of itself. Returns whether it says anything.
fn says(view: &View<'_>, key: &ObjectKey, import: &Value, compared: &mut Compared) -> bool {
    let is = |kind, status| Problem::if_condition(import, kind, status);
    // Of an own import it says what the other conditions do.
    let refused = || is(ConditionType::Accepted, "False").filter(|_| !status::is_own(import));
    // The export of this cluster reports the same conflict.
    let is_exported = view.exports.iter().any(|exports| exports.contains_key(key));
    let problem = is(ConditionType::Ready, "False")
        .or_else(|| is(ConditionType::EndpointsReady, "False"))
        .or_else(refused)
        .or_else(|| conflict(import).filter(|_| !is_exported));
    let partly = || {
        let counted = is(ConditionType::EndpointsReady, "True");
        counted.filter(|one| one.reason == Reason::PortPartlyReady)
    };
    let doubt = || {
        status::unready(import)
            .or_else(partly)
            .or_else(|| is(ConditionType::SelectorsResolved, "False"))
            .or_else(|| is(ConditionType::Accepted, "Unknown"))
    };
    let is_doubt = problem.is_none();
    let Some(said) = problem.or_else(doubt) else { return false };
    let told = Some(format!("{}: {}", said.reason, said.message));
    let one = Difference::new(view, ClusterCheck::Imports, key, "").told(told);
    compared.add(Difference { is_doubt, ..one });
    true
}
