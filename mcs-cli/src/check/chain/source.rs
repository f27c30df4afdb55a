//! The links in the cluster that exports: its ready pods, the slices of its Service, the ServiceExport and the mailbox.

use std::collections::BTreeSet;

use mcs_controller::core::clusterset::{ClusterId, ConditionType, well_known};
use mcs_kube::{
    ObjectKey,
    objects::{self, ExportedServiceSpec, ServicePort, ServiceSpec},
    reasons::{ClusterCheck, Reason},
};
use serde_json::Value;

use super::{
    Compared, Difference,
    facts::{Ends, PortKey, View},
    pods, seen, unlike,
};
use crate::status::{self, Problem};

/// What a cluster offers to others: the last link of it that is known.
pub(super) struct Offer {
    pub(super) key: ObjectKey,
    pub(super) ports: Vec<ServicePort>,
    /// Absent if it could not be read.
    pub(super) ends: Option<Ends>,
    /// Where `ends` are.
    pub(super) place: &'static str,
    /// The clusters that it is for; absent: all.
    pub(super) audience: Option<BTreeSet<String>>,
    /// What has to be alike in imports, by its name.
    pub(super) fields: Vec<(&'static str, String)>,
    /// Whether clusters disagree about it, as the ServiceExport says.
    pub(super) is_contested: bool,
}

impl Offer {
    /// Whether a cluster is to import it.
    pub(super) fn reaches(&self, cluster: &str) -> bool {
        self.audience.as_ref().is_none_or(|all| all.contains(cluster))
    }
}

/// Compares the links of a cluster, and returns what arrives in its mailbox.
pub(super) fn follow(view: &View<'_>, compared: &mut Compared) -> Vec<Offer> {
    let Some(exports) = compared.known(view, ClusterCheck::Exports, &view.exports) else {
        return vec![];
    };
    let mut offers = Vec::new();
    for (key, export) in exports {
        compared.note(view, ClusterCheck::Exports);
        let is_contested = conflict(export).is_some();
        if !is_judged(view, key, export, compared) {
            continue;
        }
        let Some(services) = compared.known(view, ClusterCheck::Endpoints, &view.services) else {
            continue;
        };
        let spec =
            services.get(key).and_then(|one| objects::read::<ServiceSpec>(&one["spec"]).ok());
        let Some(spec) = spec else {
            compared.note(view, ClusterCheck::Endpoints);
            let what = "the ServiceExport is valid, and there is no such Service";
            compared.add(Difference::new(view, ClusterCheck::Endpoints, key, what));
            continue;
        };
        let source = compared.known(view, ClusterCheck::Endpoints, &view.source);
        let mut ends = source.map(|all| all.get(key).cloned().unwrap_or_default());
        let before = compared.differences.len();
        if let Some(ends) = &ends {
            compared.note(view, ClusterCheck::Endpoints);
            pods::compare(view, key, &services[key]["spec"], ends, compared);
        }
        // The links behind are compared with the mailbox.
        ends = ends.filter(|_| !compared.has_more_than(before));
        let offer = Offer {
            key: key.clone(),
            ports: spec.ports.clone(),
            ends,
            place: "in the slices of its Service",
            audience: audience(export, view.id),
            fields: fields(&spec),
            is_contested,
        };
        offers.extend(published(view, offer, export, compared));
    }
    if let Ok(published) = &view.published {
        for key in published.keys().filter(|key| !exports.contains_key(key)) {
            let what = "there is no ServiceExport, and the mailbox has it";
            compared.add(Difference::new(view, ClusterCheck::Mailbox, key, what));
        }
    }
    offers
}

/// Whether the ServiceExport is exported, as its controller says.
fn is_judged(view: &View<'_>, key: &ObjectKey, export: &Value, compared: &mut Compared) -> bool {
    let new = || Difference::new(view, ClusterCheck::Exports, key, "");
    let say = |problem: &Problem| Some(format!("{}: {}", problem.reason, problem.message));
    if let Some(problem) = status::problem(export) {
        compared.add(new().told(say(&problem)));
        return false;
    }
    if let Some(conflict) = conflict(export) {
        compared.add(new().told(say(&conflict)));
    } else if let Some(older) = status::known::older(export) {
        compared.add(new().told(Some(format!("{}: {older}", Reason::Older))).doubt());
    } else if let Some(lacking) = Problem::if_condition(export, ConditionType::Imported, "False") {
        compared.add(new().told(say(&lacking)).doubt());
    }
    true
}

fn conflict(export: &Value) -> Option<Problem> {
    Problem::if_condition(export, ConditionType::Conflict, "True")
}

/// What the mailbox has of it. `None`: nothing.
fn published(
    view: &View<'_>,
    offer: Offer,
    export: &Value,
    compared: &mut Compared,
) -> Option<Offer> {
    let Some(all) = compared.known(view, ClusterCheck::Mailbox, &view.published) else {
        return Some(offer);
    };
    compared.note(view, ClusterCheck::Mailbox);
    let key = &offer.key;
    let told = || seen::refusal(export).or_else(|| view.event(key));
    let differs =
        |what: String| Difference::new(view, ClusterCheck::Mailbox, key, what).told(told());
    let exported = all.get(key).map(|one| objects::read::<ExportedServiceSpec>(&one["spec"]));
    let exported = match exported {
        Some(Ok(exported)) => exported,
        Some(Err(error)) => {
            compared.add(differs(format!("its ExportedService cannot be read: {error}")));
            return None;
        }
        None => {
            let what = "the cluster exports it, and the mailbox has no ExportedService";
            compared.add(differs(what.to_owned()));
            return None;
        }
    };
    let before = compared.differences.len();
    let ports = |all: &[ServicePort]| -> BTreeSet<_> {
        all.iter().map(|port| (key_of(port), port.port)).collect()
    };
    if ports(&offer.ports) != ports(&exported.ports) {
        let what = format!(
            "the Service has the ports {}, the mailbox {}",
            shown(&offer.ports),
            shown(&exported.ports)
        );
        compared.add(differs(what));
    }
    let here: Option<BTreeSet<String>> = exported.audience.map(|all| all.into_iter().collect());
    let own = |all: &Option<BTreeSet<String>>| {
        all.clone().map(|mut all| {
            all.remove(view.id);
            all
        })
    };
    if own(&here) != own(&offer.audience) {
        compared
            .add(differs("the mailbox has it for other clusters than the ServiceExport".into()));
    }
    let there = ServiceSpec {
        session_affinity: exported.session_affinity.unwrap_or_default(),
        internal_traffic_policy: exported.internal_traffic_policy,
        traffic_distribution: exported.traffic_distribution,
        cluster_ip: headless_ip(exported.service_type).to_owned(),
        ..ServiceSpec::default()
    };
    if let Some(what) = other_fields(&offer.fields, &fields(&there), "the mailbox") {
        compared.add(differs(what));
    }
    let copies = compared.known(view, ClusterCheck::Mailbox, &view.copies);
    let copies = copies.map(|all| all.get(key).cloned().unwrap_or_default());
    if let (Some(ends), Some(copies)) = (&offer.ends, &copies) {
        for port in &offer.ports {
            let (of, here) = (ends.of_port(&key_of(port)), copies.of_port(&key_of(port)));
            let what = unlike(&of, offer.place, &here, "in the mailbox");
            if let Some(what) = what {
                let one = differs(format!("port {}: {what}", label(port)));
                compared.add(Difference { port: Some(label(port)), ..one });
            }
        }
    }
    if compared.has_more_than(before) {
        return None;
    }
    Some(Offer { ends: copies, place: "in the mailbox", ..offer })
}

/// The clusters that an export is for.
fn audience(export: &Value, own: &str) -> Option<BTreeSet<String>> {
    let named = export["metadata"]["annotations"][well_known::AUDIENCE].as_str()?;
    let named = named.split(',').map(str::trim).filter(|id| id.parse::<ClusterId>().is_ok());
    Some(named.map(str::to_owned).chain([own.to_owned()]).collect())
}

pub(super) fn key_of(port: &ServicePort) -> PortKey {
    let (name, protocol) = port.key();
    (name.to_owned(), protocol.to_owned())
}

/// How people call a port.
pub(super) fn label(port: &ServicePort) -> String {
    let (name, protocol) = port.key();
    if name.is_empty() { format!("{}/{protocol}", port.port) } else { name.to_owned() }
}

pub(super) fn shown(ports: &[ServicePort]) -> String {
    let each = ports.iter().map(|port| format!("{} {}/{}", port.name, port.port, port.key().1));
    let mut each: Vec<_> = each.map(|text| text.trim_start().to_owned()).collect();
    each.sort();
    if each.is_empty() { "none".to_owned() } else { each.join(", ") }
}

const fn headless_ip(kind: objects::ServiceType) -> &'static str {
    match kind {
        objects::ServiceType::Headless => "None",
        objects::ServiceType::ClusterSetIp => "",
    }
}

/// The fields of a Service that its imports have too.
pub(super) fn fields(spec: &ServiceSpec) -> Vec<(&'static str, String)> {
    let or = |value: Option<&String>, default: &str| {
        value.filter(|one| !one.is_empty()).map_or(default, |one| &**one).to_owned()
    };
    let is_headless = spec.cluster_ip == "None";
    // The two are one.
    let distribution = or(spec.traffic_distribution.as_ref(), "");
    let distribution = distribution.replace("PreferClose", "PreferSameZone");
    vec![
        ("type", if is_headless { "Headless" } else { "ClusterSetIP" }.to_owned()),
        ("sessionAffinity", or(Some(&spec.session_affinity), "None")),
        ("internalTrafficPolicy", or(spec.internal_traffic_policy.as_ref(), "Cluster")),
        ("trafficDistribution", distribution),
    ]
}

/// The first field that differs.
pub(super) fn other_fields(
    before: &[(&'static str, String)],
    here: &[(&'static str, String)],
    place: &str,
) -> Option<String> {
    let shown = |value: &str| if value.is_empty() { "none".to_owned() } else { value.to_owned() };
    before.iter().zip(here).find(|(one, other)| one != other).map(|((name, one), (_, other))| {
        format!("{name} is {} in the source, and {} in {place}", shown(one), shown(other))
    })
}
