//! What only a drained cluster serves: the ports of its services for which no other cluster has a ready endpoint, as the
//! slices of an importing cluster say. The agents there go by the same slices.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use mcs_controller::core::clusterset::{ClusterId, well_known};
use mcs_kube::{
    Traffic,
    objects::{
        Endpoint, EndpointConditions, EndpointSlice, ObjectMeta, ServiceImport, ServicePort,
    },
};
use serde_json::Value;

use crate::{
    cluster::{Cluster, IMPORTS, PEERS, of_type},
    status::{condition, text},
};

/// A service of which nobody but the drained cluster is known to serve each port in each IP family.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Alone {
    /// `NAMESPACE/NAME`.
    pub(super) service: String,
    /// The ports that others do not serve. Empty: they serve none of it.
    ports: Vec<String>,
    /// Why it is not known whether another cluster serves it.
    pub(super) unknown: Option<String>,
}

#[cfg(test)]
impl Alone {
    pub(super) fn of(service: &str) -> Self {
        Self { service: service.to_owned(), ports: vec![], unknown: None }
    }
}

impl fmt::Display for Alone {
    /// `shop/web (443/TCP by IPv6; not known: cluster south is silent)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = self.unknown.as_ref().map(|why| format!("not known: {why}"));
        let ports = Some(self.ports.join(", ")).filter(|ports| !ports.is_empty());
        let notes: Vec<_> = ports.into_iter().chain(unknown).collect();
        f.write_str(&self.service)?;
        if notes.is_empty() { Ok(()) } else { write!(f, " ({})", notes.join("; ")) }
    }
}

/// What an importing cluster has.
struct Importer<'a> {
    drained: &'a str,
    traffic: Traffic,
    /// The peers whose slices do not show that they serve, with the reason.
    doubtful: BTreeMap<String, String>,
    /// By namespace and name of the service.
    slices: BTreeMap<(String, String), Vec<EndpointSlice>>,
}

/// A port by its name and protocol, which slices and imports share, and an IP family.
type Port = (String, String, &'static str);

/// The services that the drained cluster serves alone, by what this cluster knows. `traffic`: what its agents are told.
pub(super) async fn alone(
    cluster: &Cluster,
    drained: &ClusterId,
    traffic: Traffic,
) -> anyhow::Result<Vec<Alone>> {
    let peers = cluster.list_if_served(PEERS).await?;
    let mut slices = BTreeMap::<_, Vec<EndpointSlice>>::new();
    for slice in cluster.slices(None, well_known::SERVICE_NAME).await? {
        let service = label(&slice, well_known::SERVICE_NAME);
        slices.entry((slice.metadata.namespace.clone(), service)).or_default().push(slice);
    }
    let doubtful = peers.iter().filter_map(doubt).collect();
    let known = Importer { drained: drained.as_str(), traffic, doubtful, slices };
    let imports: Vec<ServiceImport> = of_type(&cluster.list(IMPORTS).await?);
    Ok(imports.iter().filter_map(|import| known.alone(import)).collect())
}

/// The cluster of a peer, and why its slices do not show that it serves. Those of a silent one stay as they were.
fn doubt(peer: &Value) -> Option<(String, String)> {
    let cluster = text(&peer["spec"]["clusterId"]);
    let is_fresh = condition(peer, "Fresh").is_some_and(|fresh| fresh["status"] == "True");
    // With another reason, some of its pods are reached by each family.
    let is_lost = condition(peer, "PodsReachable").is_some_and(|one| one["reason"] == "NotReached");
    let why = match (is_fresh, is_lost) {
        (false, _) => format!("cluster {cluster} is silent"),
        (_, true) => format!("pods of cluster {cluster} are not reached"),
        _ => return None,
    };
    Some((cluster, why))
}

impl Importer<'_> {
    fn alone(&self, import: &ServiceImport) -> Option<Alone> {
        let ObjectMeta { namespace, name, .. } = import.metadata.clone();
        let service = format!("{namespace}/{name}");
        let slices = self.slices.get(&(namespace, name)).map(Vec::as_slice).unwrap_or_default();
        let clusters = import.status.iter().flat_map(|status| &status.clusters);
        let exporters: BTreeSet<_> = clusters.map(|one| one.cluster.clone()).collect();
        let sources: BTreeSet<_> = slices.iter().map(source).collect();
        // Slices that are not there yet, or not any more, say nothing of their cluster.
        let unread = |cluster: &str| exporters.contains(cluster) && !sources.contains(cluster);
        let wanted = Wanted::of(import);
        let ports = |is_of: &dyn Fn(&str) -> bool, counts: &dyn Fn(&Endpoint) -> bool| {
            let slices = slices.iter().filter(|slice| is_of(&source(slice)));
            let ports = slices.flat_map(|slice| served(slice, counts));
            ports.filter(|port| wanted.has(port)).collect::<BTreeSet<Port>>()
        };
        let of_drained = ports(&|cluster| cluster == self.drained, &is_usable);
        let others = ports(
            &|cluster| self.is_left(cluster) && self.doubt(cluster).is_none(),
            &Endpoint::is_ready,
        );
        let is_unread = unread(self.drained);
        let of_drained = if is_unread { wanted.all() } else { of_drained };
        let missing: BTreeSet<_> = of_drained.difference(&others).collect();
        // A headless service names no ports that its cluster could be asked about.
        let may_be_alone = is_unread && of_drained.is_empty() && others.is_empty();
        if missing.is_empty() && !may_be_alone {
            return None;
        }
        let others = exporters.iter().chain(&sources).filter(|cluster| self.is_left(cluster));
        let unknown = others.chain([&self.drained.to_owned()]).find_map(|cluster| {
            if unread(cluster) {
                return Some(format!("there is no EndpointSlice of cluster {cluster}"));
            }
            self.doubt(cluster).cloned()
        });
        let ports = if missing.len() == of_drained.len() {
            vec![]
        } else {
            missing.into_iter().map(|port| wanted.name(port)).collect()
        };
        Some(Alone { service, ports, unknown })
    }

    /// Whether new clients may get this cluster once the other one is drained.
    fn is_left(&self, cluster: &str) -> bool {
        cluster != self.drained && !self.traffic.is_drained(cluster)
    }

    /// Why a cluster beside the drained one may not serve.
    fn doubt(&self, cluster: &str) -> Option<&String> {
        self.doubtful.get(cluster).filter(|_| cluster != self.drained)
    }
}

/// The ports and IP families of an import; without ports or addresses, as of a headless service, all.
struct Wanted {
    /// Number, by name and protocol.
    ports: BTreeMap<(String, String), i32>,
    families: BTreeSet<&'static str>,
}

impl Wanted {
    fn of(import: &ServiceImport) -> Self {
        let port = |one: &ServicePort| (owned(one.key()), one.port);
        let family = |ip: &String| if ip.contains(':') { "IPv6" } else { "IPv4" };
        Self {
            ports: import.spec.ports.iter().map(port).collect(),
            families: import.spec.ips.iter().map(family).collect(),
        }
    }

    fn has(&self, (name, protocol, family): &Port) -> bool {
        (self.ports.is_empty() || self.ports.contains_key(&(name.clone(), protocol.clone())))
            && (self.families.is_empty() || self.families.contains(family))
    }

    fn all(&self) -> BTreeSet<Port> {
        let of = |family: &&'static str| {
            let ports = self.ports.keys().map(|(name, protocol)| (name.clone(), protocol.clone()));
            ports.map(|(name, protocol)| (name, protocol, *family)).collect::<Vec<_>>()
        };
        self.families.iter().flat_map(of).collect()
    }

    /// `443/TCP by IPv6`.
    fn name(&self, (name, protocol, family): &Port) -> String {
        let number = self.ports.get(&(name.clone(), protocol.clone()));
        let port = number.map_or_else(|| name.clone(), i32::to_string);
        format!("{port}/{protocol} by {family}")
    }
}

/// The ports of a slice, if one of its endpoints counts.
fn served(slice: &EndpointSlice, counts: &dyn Fn(&Endpoint) -> bool) -> Vec<Port> {
    let family = match &*slice.address_type {
        "IPv4" => "IPv4",
        "IPv6" => "IPv6",
        _ => return vec![],
    };
    if !slice.endpoints.iter().any(counts) {
        return vec![];
    }
    let ports: Vec<_> = slice.ports.iter().map(|port| owned(port.key())).collect();
    // A headless Service without ports has such slices.
    let ports = if ports.is_empty() { vec![<(String, String)>::default()] } else { ports };
    ports.into_iter().map(|(name, protocol)| (name, protocol, family)).collect()
}

fn owned((name, protocol): (&str, &str)) -> (String, String) {
    (name.to_owned(), protocol.to_owned())
}

/// Whether it serves where no other endpoint is ready: also if it terminates.
fn is_usable(endpoint: &Endpoint) -> bool {
    let EndpointConditions { serving, terminating, .. } = endpoint.conditions.unwrap_or_default();
    endpoint.is_ready() || (serving != Some(false) && terminating == Some(true))
}

fn source(slice: &EndpointSlice) -> String {
    label(slice, well_known::SOURCE_CLUSTER)
}

fn label(slice: &EndpointSlice, name: &str) -> String {
    slice.metadata.label(name).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    const READY: [bool; 3] = [true, true, false];
    const UNREADY: [bool; 3] = [false, false, false];
    const TERMINATING: [bool; 3] = [false, true, true];

    /// A slice of a cluster, its port's name, and the conditions of its endpoints.
    fn slice(cluster: &str, family: &str, port: &str, endpoints: &[[bool; 3]]) -> EndpointSlice {
        let endpoint = |[ready, serving, terminating]: &[bool; 3]| json!({"conditions": {"ready": ready, "serving": serving, "terminating": terminating}});
        let slice = json!({
            "metadata": {"labels": {well_known::SOURCE_CLUSTER: cluster}},
            "addressType": family,
            "ports": [{"name": port, "port": 8080}],
            "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        });
        from_value(slice).unwrap()
    }

    /// What is said of the service `shop/web`, which these clusters export; `-`: others serve it.
    fn said(
        exporters: &[&str],
        slices: Vec<EndpointSlice>,
        ips: &[&str],
        silent: &[&str],
    ) -> String {
        let exporters: Vec<_> = exporters.iter().map(|id| json!({"cluster": id})).collect();
        let port = json!({"name": "http", "port": 80, "protocol": "TCP"});
        let import = json!({
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"type": "ClusterSetIP", "ips": ips, "ports": [port]},
            "status": {"clusters": exporters},
        });
        let import = from_value(import).unwrap();
        let known = Importer {
            drained: "west",
            traffic: Traffic::parse(r#"{"south":{"drain":true}}"#).unwrap(),
            doubtful: silent
                .iter()
                .map(|one| ((*one).to_owned(), format!("cluster {one} is silent")))
                .collect(),
            slices: [(("shop".to_owned(), "web".to_owned()), slices)].into(),
        };
        known.alone(&import).map_or_else(|| "-".to_owned(), |alone| alone.to_string())
    }

    #[test]
    fn who_serves_is_told_by_ready_endpoints_of_the_port() {
        let west = || slice("west", "IPv4", "http", &[READY]);
        let four = &["241.0.0.1"];
        for (other, expected) in [
            (slice("east", "IPv4", "http", &[UNREADY, READY]), "-"),
            // Its export is there, its pods are not.
            (slice("east", "IPv4", "http", &[]), "shop/web"),
            (slice("east", "IPv4", "http", &[UNREADY, TERMINATING]), "shop/web"),
            (slice("east", "IPv4", "web", &[READY]), "shop/web"),
            (slice("south", "IPv4", "http", &[READY]), "shop/web"),
        ] {
            let exporters = ["west", &source(&other)];
            assert_eq!(said(&exporters, vec![west(), other], four, &[]), expected);
        }
        let east = || slice("east", "IPv4", "http", &[READY]);
        assert_eq!(said(&["east"], vec![east()], four, &[]), "-", "west does not export it");
        let none = slice("west", "IPv4", "http", &[UNREADY]);
        assert_eq!(said(&["west"], vec![none], four, &[]), "-", "nobody serves it");
        let last = slice("west", "IPv4", "http", &[TERMINATING]);
        assert_eq!(said(&["west"], vec![last], four, &[]), "shop/web");
    }

    #[test]
    fn each_family_counts_by_itself() {
        let of = |cluster, family| slice(cluster, family, "http", &[READY]);
        let slices = || vec![of("west", "IPv4"), of("west", "IPv6"), of("east", "IPv4")];
        let both = &["241.0.0.1", "fd00::1"];
        let exporters = &["west", "east"];
        assert_eq!(said(exporters, slices(), both, &[]), "shop/web (80/TCP by IPv6)");
        assert_eq!(said(exporters, slices(), &both[..1], &[]), "-", "nobody asks by IPv6");
    }

    #[test]
    fn what_is_not_known_counts_as_alone() {
        let of = |cluster| slice(cluster, "IPv4", "http", &[READY]);
        let four = &["241.0.0.1"];
        let exporters = &["west", "east"];
        assert_eq!(
            said(exporters, vec![of("west"), of("east")], four, &["east"]),
            "shop/web (not known: cluster east is silent)"
        );
        assert_eq!(
            said(exporters, vec![of("west")], four, &[]),
            "shop/web (not known: there is no EndpointSlice of cluster east)"
        );
        assert_eq!(
            said(exporters, vec![], four, &[]),
            "shop/web (not known: there is no EndpointSlice of cluster east)"
        );
        assert_eq!(said(exporters, vec![of("east")], four, &[]), "-", "east serves it in any case");
        assert_eq!(said(exporters, vec![of("west"), of("east")], four, &["west"]), "-");
        let peer = |fresh: &str, reason: &str| {
            json!({
                "spec": {"clusterId": "east"},
                "status": {"conditions": [
                    {"type": "Fresh", "status": fresh},
                    {"type": "PodsReachable", "status": "?", "reason": reason},
                ]},
            })
        };
        for (fresh, reason, expected) in [
            ("True", "Reached", ""),
            ("True", "PartlyReached", ""),
            ("True", "NotReached", "pods of cluster east are not reached"),
            ("False", "Reached", "cluster east is silent"),
            ("Unknown", "Pending", "cluster east is silent"),
        ] {
            let found = doubt(&peer(fresh, reason)).map(|(_, why)| why).unwrap_or_default();
            assert_eq!(found, expected);
        }
    }
}
