//! The last link: what new clients find in the maps of each node.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use mcs_controller::core::clusterset::well_known;
use mcs_kube::{
    ObjectKey,
    objects::{self, ServiceImportSpec, ServicePort, ServiceType},
    reasons::{ClusterCheck, Coded as _},
    report::{Frontend, ImportReport, ImportState},
};
use serde_json::Value;

use super::{
    Compared, Difference,
    facts::{ByKey, Ends, Table, Unread, View, What},
    source::{key_of, label},
};
use crate::status::{self, text};

/// ClusterProperties by which agents prefer clusters.
const PREFERENCES: [&str; 3] =
    [well_known::PREFERENCE_PROPERTY, well_known::DRAIN_PROPERTY, well_known::WEIGHT_PROPERTY];

/// Compares the tables of every node with these imports and their slices.
pub(super) fn follow(
    view: &View<'_>,
    views: &[View<'_>],
    imports: &ByKey<'_>,
    whole: &[&ObjectKey],
    compared: &mut Compared,
) {
    let Ok(imported) = &view.imported else { return };
    let mut ends = BTreeMap::<&ObjectKey, Ends>::new();
    for ((key, _), of) in imported {
        ends.entry(key).or_default().merge(of);
    }
    for (node, table) in &view.facts.tables {
        let told = table.as_ref().map_err(|unread| unread.within(&format!("node {node}")));
        compared.known(view, ClusterCheck::Tables, &told);
    }
    if view.facts.tables.is_empty() {
        let none = Unread::unknown("no node is known");
        compared.known(view, ClusterCheck::Tables, &Err::<(), _>(none));
    }
    let none = Ends::default();
    for key in whole {
        let Some(import) = imports.get(*key) else { continue };
        let Ok(spec) = objects::read::<ServiceImportSpec>(&import["spec"]) else { continue };
        // DNS alone serves the first; agents take the endpoints of the others from elsewhere.
        let is_headless = spec.service_type == ServiceType::Headless || spec.ips.is_empty();
        if is_headless || !(ends.contains_key(key) || status::is_own(import)) {
            continue;
        }
        compared.note(view, ClusterCheck::Tables);
        let asks = Wanted {
            view,
            key,
            ends: ends.get(key).unwrap_or(&none),
            takes_all: !prefers(view, views, import, &spec),
            spec,
        };
        for (node, table) in &view.facts.tables {
            let Ok(table) = table else { continue };
            if let Some(difference) = asks.difference(table) {
                compared.add(Difference { node: Some(node.clone()), ..difference });
            }
        }
    }
}

/// Whether agents choose among the endpoints of an import, on purpose, or may do so for all that is known.
fn prefers(view: &View<'_>, views: &[View<'_>], import: &Value, spec: &ServiceImportSpec) -> bool {
    let has = |value: &Option<String>, plain: &str| {
        value.as_deref().is_some_and(|value| !value.is_empty() && value != plain)
    };
    let is_weighed = |peer: &&Value| {
        let spec = &peer["spec"];
        ["weight", "drain"].iter().any(|field| !spec[*field].is_null())
            || spec["whenStale"].as_str().is_some_and(|when| when != "keep")
    };
    let has_none = |view: &View<'_>| {
        let properties = view.facts.read(What::Properties);
        properties.is_ok_and(|all| {
            !all.iter().any(|one| PREFERENCES.contains(&&*text(&one["metadata"]["name"])))
        })
    };
    let sources = import["status"]["clusters"].as_array().into_iter().flatten();
    let mut sources = sources.map(|one| text(&one["cluster"])).chain([view.id.to_owned()]);
    let annotations = import["metadata"]["annotations"].as_object().into_iter().flatten();
    let mut asked = annotations.map(|(name, _)| name).filter(|name| name.starts_with("traffic."));
    has(&spec.internal_traffic_policy, "Cluster")
        || has(&spec.traffic_distribution, "")
        || asked.next().is_some()
        || view.peers.iter().flat_map(BTreeMap::values).copied().any(|peer| is_weighed(&peer))
        || !sources.all(|source| views.iter().any(|view| view.id == source && has_none(view)))
}

/// What the tables of every node are to have of an import.
struct Wanted<'a> {
    view: &'a View<'a>,
    key: &'a ObjectKey,
    spec: ServiceImportSpec,
    ends: &'a Ends,
    /// Whether nothing is known by which an agent would leave out endpoints.
    takes_all: bool,
}

impl Wanted<'_> {
    /// The first difference of a table.
    fn difference(&self, table: &Table) -> Option<Difference> {
        let new = |what: String| Difference::new(self.view, ClusterCheck::Tables, self.key, what);
        let report = table.services.list.imports.iter().find(|one| one.import == *self.key);
        let frontends = &table.services.frontends;
        let frontends: Vec<_> = frontends.iter().filter(|one| one.import == *self.key).collect();
        if report.is_some_and(|one| one.state == ImportState::LeftAlone) {
            return None;
        }
        if report.is_none() && frontends.is_empty() {
            let what = "the agent does not know the import".to_owned();
            let told = refusal(table, self.key, None);
            // An agent that has not reported knows more than it says.
            return table.services.list.reported.then(|| new(what).told(told));
        }
        let told = || refusal(table, self.key, report.map(AsRef::as_ref));
        for ip in self.spec.ips.iter().filter_map(|ip| ip.parse::<IpAddr>().ok()) {
            for port in self.spec.ports.iter().filter(|port| port.key().1 != "SCTP") {
                let found = frontends.iter().find(|one| is_of(one, ip, port));
                let what = match found {
                    None => Some("the agent has no frontend for it".to_owned()),
                    Some(one) => self.unlike(one, ip, port, report.map(AsRef::as_ref)),
                };
                if let Some(what) = what {
                    let what = format!("port {} of {ip}: {what}", label(port));
                    return Some(Difference { port: Some(label(port)), ..new(what).told(told()) });
                }
            }
        }
        None
    }

    /// How a frontend differs from the slices.
    fn unlike(
        &self,
        frontend: &Frontend,
        ip: IpAddr,
        port: &ServicePort,
        report: Option<&ImportReport>,
    ) -> Option<String> {
        let there: BTreeSet<SocketAddr> = frontend.backends.iter().map(|one| one.address).collect();
        let number = u16::try_from(port.port).unwrap_or_default();
        let ready = self.ends.of_port(&key_of(port));
        let ready = ready.iter().filter(|(end, _)| end.is_ipv4() == ip.is_ipv4());
        let ready = ready.map(|(ip, port)| {
            let port = port.and_then(|port| u16::try_from(port).ok());
            SocketAddr::new(*ip, port.unwrap_or(number))
        });
        let ready: BTreeSet<_> = ready.collect();
        let counts =
            format!("{} ready in the imported slices, {} in the table", ready.len(), there.len());
        if let Some(stray) = there.iter().find(|one| !self.ends.all.contains(&one.ip())) {
            return Some(format!("{counts}; {stray} is in no slice"));
        }
        if let Some(other) = there
            .iter()
            .find(|one| !ready.contains(one) && ready.iter().any(|ready| ready.ip() == one.ip()))
        {
            return Some(format!("{counts}; {other} has another port in the slices"));
        }
        let is_plain = report.is_none_or(|one| {
            one.message.is_empty() && one.tiers.is_none() && one.sections.is_empty()
        });
        let lacking: Vec<_> = ready.difference(&there).collect();
        let is_lost = there.is_empty() || (self.takes_all && is_plain);
        let first = lacking.first().filter(|_| is_lost && !self.is_local())?;
        Some(format!("{counts}; {} lack, such as {first}", lacking.len()))
    }

    /// Whether only endpoints on the client's node count.
    fn is_local(&self) -> bool {
        self.spec.internal_traffic_policy.as_deref() == Some("Local")
    }
}

fn is_of(frontend: &Frontend, ip: IpAddr, port: &ServicePort) -> bool {
    let id = &frontend.frontend;
    id.ip == ip && i32::from(id.port) == port.port && id.protocol.to_string() == port.key().1
}

/// Why the agent does not serve all of an import.
fn refusal(table: &Table, key: &ObjectKey, report: Option<&ImportReport>) -> Option<String> {
    let rejected = table.rejections.iter().find(|one| one.object.key == *key);
    let rejected = rejected.map(|one| format!("{}: {}", one.reason.name(), one.message));
    let said = report.filter(|one| !one.message.is_empty());
    rejected.or_else(|| said.map(|one| format!("{}: {}", one.state, one.message)))
}
