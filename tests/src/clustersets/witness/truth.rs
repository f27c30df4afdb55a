//! What has to be there once all has settled, by what people have written.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use ipnet::IpNet;
use mcs_agent::core::{
    model::{FrontendId, Protocol},
    tables::MapView,
};
use serde_json::Value;

use super::{Broken, Invariant, Name, OF_SERVICE, Part, SERVICE, SOURCE, clusters};
use crate::clustersets::{
    member::{Member, is_mailbox},
    store::Store,
};

const AUDIENCE: &str = "clusterset.mcs-agent.io/audience";
const SELECTORS: &str = "traffic.clusterset.mcs-agent.io/cluster-selectors";

/// The ready endpoints of each port, by its name and protocol.
type Ready = BTreeMap<(String, String), BTreeSet<SocketAddr>>;

/// What there is at the sources.
pub(super) struct Truth {
    /// What each importer sees of each exporter for certain.
    seen: BTreeMap<(String, Name), BTreeSet<String>>,
    /// The exporters that an importer cannot read because an operator has made it so: what it has of them stays.
    dark: BTreeSet<(String, String)>,
    /// The addresses that an importer has to have.
    endpoints: BTreeMap<Part, BTreeSet<String>>,
    /// Where the clients of an importer go.
    ready: BTreeMap<Part, Ready>,
    names: BTreeSet<Name>,
}

impl Truth {
    pub(super) fn of(members: &BTreeMap<String, Member>) -> Self {
        let mut truth = Self {
            seen: BTreeMap::new(),
            dark: BTreeSet::new(),
            endpoints: BTreeMap::new(),
            ready: BTreeMap::new(),
            names: BTreeSet::new(),
        };
        let exports: BTreeMap<_, _> =
            members.iter().map(|(id, member)| (id.clone(), member.server.look(exports))).collect();
        for (importer, member) in members {
            let namespaces: BTreeSet<_> = member.server.look(|store| {
                store.all("namespaces").map(|((_, _, name), _)| name.clone()).collect()
            });
            if !member.can_publish() {
                // Its controller does not start without.
                let all = exports.keys().map(|exporter| (importer.clone(), exporter.clone()));
                truth.dark.extend(all);
                continue;
            }
            for (exporter, all) in &exports {
                let of = members.get(exporter).map(|one| (one.place(), one.can_publish()));
                let Some((place, true)) = of else {
                    truth.dark.insert((importer.clone(), exporter.clone()));
                    continue;
                };
                let way =
                    member.server.look(|store| Way::between(store, importer, exporter, &place));
                if matches!(way, Way::Dark) {
                    truth.dark.insert((importer.clone(), exporter.clone()));
                }
                for (name, export) in all {
                    truth.names.insert(name.clone());
                    let Way::Open { ranges, namespaces: allowed } = &way else { continue };
                    if !namespaces.contains(&name.0)
                        || !allowed.has(&name.0)
                        || !(export.is_for(importer) || importer == exporter)
                    {
                        continue;
                    }
                    let key = (importer.clone(), name.clone());
                    truth.seen.entry(key).or_default().insert(exporter.clone());
                    let is_in = |ip: &IpAddr| {
                        ranges.is_empty() || ranges.iter().any(|range| range.contains(ip))
                    };
                    let is_allowed = |address: &&String| address.parse().is_ok_and(|ip| is_in(&ip));
                    let part = (importer.clone(), name.clone(), exporter.clone());
                    let there = export.endpoints.iter().filter(is_allowed).cloned().collect();
                    truth.endpoints.insert(part.clone(), there);
                    let of_port = |all: &BTreeSet<SocketAddr>| {
                        all.iter().filter(|one| is_in(&one.ip())).copied().collect()
                    };
                    let ready = export.ready.iter().map(|(port, all)| (port.clone(), of_port(all)));
                    truth.ready.insert(part, ready.collect());
                }
            }
        }
        truth
    }

    /// Whether everything is as it has to be.
    pub(super) fn check(&self, members: &BTreeMap<String, Member>) -> Result<(), Broken> {
        let mut alike: BTreeMap<(Name, BTreeSet<String>), (String, Value)> = BTreeMap::new();
        for (importer, member) in members {
            let imports = imports(member);
            let names: BTreeSet<_> = self.names.iter().chain(imports.keys()).cloned().collect();
            for name in names {
                self.check_import(importer, &name, imports.get(&name))?;
                self.check_slices(importer, &name, member, imports.get(&name))?;
                let seen = self.seen.get(&(importer.clone(), name.clone()));
                let is_dark = self.dark.iter().any(|(to, _)| to == importer);
                let (Some(seen), Some(import), false) = (seen, imports.get(&name), is_dark) else {
                    continue;
                };
                let made = made(import);
                let (other, of_other) = alike
                    .entry((name.clone(), seen.clone()))
                    .or_insert_with(|| (importer.clone(), made.clone()));
                if *of_other != made {
                    return Err(Invariant::Alike.broken(format!(
                        "{}/{}: {other} has {of_other}, {importer} has {made}",
                        name.0, name.1
                    )));
                }
            }
        }
        members.iter().try_for_each(|(importer, member)| self.check_agent(importer, member))
    }

    /// Whether the agent of a cluster serves its imports as it has to.
    fn check_agent(&self, importer: &str, member: &Member) -> Result<(), Broken> {
        let (imports, view) = (imports(member), member.node.view());
        check_vips(importer, &imports, &view)?;
        let check = |(name, import)| self.check_served(importer, name, (import, &view));
        imports.iter().try_for_each(check)
    }

    fn check_import(
        &self,
        importer: &str,
        name: &Name,
        import: Option<&Value>,
    ) -> Result<(), Broken> {
        let none = BTreeSet::new();
        let key = (importer.to_owned(), name.clone());
        let seen = self.seen.get(&key).unwrap_or(&none);
        let there = import.map(clusters).unwrap_or_default();
        let is_dark = |from: &String| self.dark.contains(&(importer.to_owned(), from.clone()));
        let of = format!("import {}/{} of {importer}", name.0, name.1);
        if let Some(lacks) =
            seen.difference(&there).next().filter(|_| !import.is_some_and(has_conflict))
        {
            return Err(
                Invariant::Converged.broken(format!("the {of} lacks {lacks}, it has {there:?}"))
            );
        }
        if let Some(more) = there.difference(seen).find(|from| !is_dark(from)) {
            return Err(Invariant::Withdrawn.broken(format!("the {of} still has {more}")));
        }
        let may_stay = self.dark.iter().any(|(to, _)| to == importer);
        if seen.is_empty() && import.is_some() && !may_stay {
            return Err(Invariant::Withdrawn.broken(format!("nobody exports the {of}")));
        }
        Ok(())
    }

    fn check_slices(
        &self,
        importer: &str,
        name: &Name,
        member: &Member,
        import: Option<&Value>,
    ) -> Result<(), Broken> {
        let all = member.server.look(|store| imported(store, name));
        let has_conflict = import.is_some_and(has_conflict);
        let families = strings(import.map_or(&Value::Null, |import| &import["spec"]["ipFamilies"]));
        let seen = self.seen.get(&(importer.to_owned(), name.clone())).into_iter().flatten();
        let from: BTreeSet<_> = seen.chain(all.keys()).cloned().collect();
        for from in from {
            if self.dark.contains(&(importer.to_owned(), from.clone())) {
                continue;
            }
            let none = BTreeSet::new();
            let part = (importer.to_owned(), name.clone(), from.clone());
            // An import takes no slices of a family that it lacks.
            let is_of_import = |address: &&String| {
                let family = if address.contains(':') { "IPv6" } else { "IPv4" };
                families.is_empty() || families.contains(family)
            };
            let wanted = self.endpoints.get(&part).into_iter().flatten();
            let wanted: BTreeSet<_> = wanted.filter(is_of_import).cloned().collect();
            let there = all.get(&from).unwrap_or(&none);
            let of = format!("{}/{} of {from} in {importer}", name.0, name.1);
            if let Some(more) = there.difference(&wanted).next() {
                return Err(Invariant::Withdrawn.broken(format!("{more} is still there, {of}")));
            }
            if let Some(lacks) = wanted.difference(there).next().filter(|_| !has_conflict) {
                return Err(Invariant::Converged.broken(format!("{lacks} is missing, {of}")));
            }
        }
        Ok(())
    }

    /// Clients of an address go to the ready endpoints of the exports.
    fn check_served(
        &self,
        importer: &str,
        name: &Name,
        (import, view): (&Value, &MapView),
    ) -> Result<(), Broken> {
        let of = |said: String| {
            Invariant::Served.broken(format!("{}/{} in {importer}: {said}", name.0, name.1))
        };
        let is_partial = has_conflict(import) || prefers(import);
        for id in frontends(import) {
            let ((port, protocol), id) = id;
            let Some(frontend) = view.frontends.get(&id) else {
                return Err(of(format!("no agent serves {id}")));
            };
            let seen = self.seen.get(&(importer.to_owned(), name.clone())).into_iter().flatten();
            let there = frontend.backends.iter().map(|backend| &backend.cluster);
            for from in seen.chain(there).collect::<BTreeSet<_>>() {
                if self.dark.contains(&(importer.to_owned(), from.clone())) {
                    continue;
                }
                let ready = self.ready.get(&(importer.to_owned(), name.clone(), from.clone()));
                let key = (port.clone(), protocol.clone());
                let of_family = |one: &&SocketAddr| one.is_ipv4() == id.ip.is_ipv4();
                let wanted = ready.and_then(|ready| ready.get(&key)).into_iter().flatten();
                let wanted: BTreeSet<_> = wanted.filter(of_family).copied().collect();
                let backends = frontend.backends.iter().filter(|one| one.cluster == *from);
                let there: BTreeSet<_> = backends.map(|backend| backend.address).collect();
                let is_right = if is_partial { there.is_subset(&wanted) } else { there == wanted };
                if !is_right {
                    return Err(of(format!(
                        "{id} leads to {there:?} of {from}, not to {wanted:?}"
                    )));
                }
            }
            if let Some(kept) = frontend.kept.iter().find(|kept| {
                let all = self.ready.values().flat_map(Ready::values).flatten();
                !all.copied().any(|ready| ready == kept.address)
            }) {
                return Err(of(format!("clients of {id} stay with {}", kept.address)));
            }
        }
        Ok(())
    }

    /// What importers have of what they see.
    pub(super) fn firm(
        &self,
        members: &BTreeMap<String, Member>,
    ) -> BTreeMap<Part, BTreeSet<String>> {
        let mut firm = BTreeMap::new();
        for ((importer, name), seen) in &self.seen {
            let Some(member) = members.get(importer) else { continue };
            let imported = member.server.look(|store| imported(store, name));
            for from in seen {
                let there = imported.get(from).cloned().unwrap_or_default();
                firm.insert((importer.clone(), name.clone(), from.clone()), there);
            }
        }
        firm
    }
}

/// Agents serve the addresses of imports alone.
fn check_vips(
    importer: &str,
    imports: &BTreeMap<Name, Value>,
    view: &MapView,
) -> Result<(), Broken> {
    let broken = |said| Invariant::Served.broken(format!("in {importer} {said}"));
    if let Some(fault) = view.faults.first() {
        return Err(broken(format!("the maps contradict each other: {fault}")));
    }
    let of_imports: BTreeSet<_> =
        imports.values().flat_map(|import| strings(&import["spec"]["ips"])).collect();
    let is_other = |vip: &&IpAddr| !of_imports.contains(&vip.to_string());
    view.vips
        .iter()
        .find(is_other)
        .map_or(Ok(()), |vip| Err(broken(format!("an agent serves {vip}, which no import has"))))
}

/// The frontends of an import, each with the name and the protocol of its port.
fn frontends(import: &Value) -> impl Iterator<Item = ((String, String), FrontendId)> {
    let ips = strings(&import["spec"]["ips"]).into_iter().filter_map(|ip| ip.parse().ok());
    let ports = import["spec"]["ports"].as_array().cloned().unwrap_or_default();
    ips.flat_map(move |ip| {
        let of = |port: &Value| {
            let [name, protocol] = ["name", "protocol"].map(|field| port[field].as_str());
            let number = port["port"].as_u64()?.try_into().ok()?;
            let of = if protocol == Some("UDP") { Protocol::Udp } else { Protocol::Tcp };
            let key = (name.unwrap_or_default().to_owned(), protocol.unwrap_or("TCP").to_owned());
            Some((key, FrontendId { ip, port: number, protocol: of }))
        };
        ports.iter().filter_map(of).collect::<Vec<_>>()
    })
}

/// Whether exporters disagree, which may cost some of them their endpoints.
fn has_conflict(import: &Value) -> bool {
    let mut conditions = import["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .any(|one| one["type"] == "clusterset.mcs-agent.io/Conflict" && one["status"] == "True")
}

/// Whether an import lets agents choose among its endpoints.
fn prefers(import: &Value) -> bool {
    import["spec"]["internalTrafficPolicy"] == "Local"
        || import["metadata"]["annotations"][SELECTORS].is_string()
}

/// What an import has from its exports alone.
fn made(import: &Value) -> Value {
    let spec = &import["spec"];
    let of = ["type", "ports", "sessionAffinity", "sessionAffinityConfig"];
    of.iter().map(|field| ((*field).to_owned(), spec[*field].clone())).collect()
}

struct Export {
    /// Empty: all.
    audience: Vec<String>,
    endpoints: BTreeSet<String>,
    ready: Ready,
}

impl Export {
    fn is_for(&self, cluster: &str) -> bool {
        self.audience.is_empty() || self.audience.iter().any(|one| one == cluster)
    }
}

/// What a cluster exports.
fn exports(store: &Store) -> BTreeMap<Name, Export> {
    let mut exports = BTreeMap::new();
    for ((_, namespace, name), object) in store.all("serviceexports") {
        let service = store.get(&("services", namespace.clone(), name.clone()));
        let is_exported = !namespace.starts_with("kube-")
            && service.is_some_and(|service| service["spec"]["type"] != "ExternalName");
        if !is_exported {
            continue;
        }
        let audience = object["metadata"]["annotations"][AUDIENCE].as_str().unwrap_or_default();
        let audience = audience.split(',').filter(|one| !one.is_empty()).map(str::to_owned);
        let slices = store.all("endpointslices").filter(|((_, of, _), slice)| {
            of == namespace && slice["metadata"]["labels"][OF_SERVICE] == **name
        });
        let slices: Vec<_> = slices.map(|(_, slice)| slice).collect();
        let endpoints = slices.iter().flat_map(|slice| addresses(slice)).collect();
        let mut ready = Ready::new();
        for slice in slices {
            for (port, all) in ready_of(slice) {
                ready.entry(port).or_default().extend(all);
            }
        }
        let export = Export { audience: audience.collect(), endpoints, ready };
        exports.insert((namespace.clone(), name.clone()), export);
    }
    exports
}

/// How an importer sees an exporter.
enum Way {
    Open {
        ranges: Vec<IpNet>,
        namespaces: Allowed,
    },
    /// There is no peer.
    None,
    /// There is one that cannot be read.
    Dark,
}

/// The namespaces that are imported.
struct Allowed {
    allow: Vec<String>,
    deny: Vec<String>,
}

impl Allowed {
    fn has(&self, namespace: &str) -> bool {
        let is = |patterns: &[String]| {
            patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(start) => namespace.starts_with(start),
                None => pattern == namespace,
            })
        };
        (self.allow.is_empty() || is(&self.allow)) && !is(&self.deny)
    }
}

impl Way {
    /// `place`: the Secret and the namespace by which others read what the exporter publishes.
    fn between(
        store: &Store,
        importer: &str,
        exporter: &str,
        (secret, mailbox): &(String, String),
    ) -> Self {
        let list = |value: &Value| strings(value).into_iter().collect::<Vec<_>>();
        if importer == exporter {
            let namespaces = Allowed { allow: vec![], deny: vec![] };
            return Self::Open { ranges: vec![], namespaces };
        }
        let peers = store.all("clusterpeers").map(|(_, object)| object);
        let mut peers = peers.filter(|peer| peer["spec"]["clusterId"] == *exporter);
        let Some(peer) = peers.next() else { return Self::None };
        let is_accepted = peer["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|one| one["type"] == "Accepted" && one["status"] == "True");
        let spec = &peer["spec"];
        let is_limited = !spec["limits"].is_null();
        let is_there =
            spec["mailbox"] == **mailbox && spec["kubeconfigSecretRef"]["name"] == **secret;
        if !is_accepted || is_limited || !is_there || peers.next().is_some() {
            return Self::Dark;
        }
        let ranges =
            list(&spec["podCIDRs"]).iter().filter_map(|range| range.parse().ok()).collect();
        let (allow, deny) = (&spec["namespaces"]["allow"], &spec["namespaces"]["deny"]);
        Self::Open { ranges, namespaces: Allowed { allow: list(allow), deny: list(deny) } }
    }
}

/// The addresses of imported slices of a service, by source.
fn imported(store: &Store, (namespace, name): &Name) -> BTreeMap<String, BTreeSet<String>> {
    let mut imported: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for ((_, of, _), slice) in store.all("endpointslices") {
        let labels = &slice["metadata"]["labels"];
        if of == namespace && !is_mailbox(of) && labels[SERVICE] == **name {
            let from = labels[SOURCE].as_str().unwrap_or_default().to_owned();
            imported.entry(from).or_default().extend(addresses(slice));
        }
    }
    imported
}

/// The ready endpoints of a slice.
fn ready_of(slice: &Value) -> Ready {
    let is_ready = |endpoint: &&Value| endpoint["conditions"]["ready"] != false;
    let endpoints = slice["endpoints"].as_array().into_iter().flatten().filter(is_ready);
    let ips: Vec<IpAddr> = endpoints
        .flat_map(|endpoint| strings(&endpoint["addresses"]))
        .filter_map(|ip| ip.parse().ok())
        .collect();
    let of = |port: &Value| {
        let number = port["port"].as_u64()?.try_into().ok()?;
        let [name, protocol] =
            ["name", "protocol"].map(|field| port[field].as_str().unwrap_or_default().to_owned());
        Some(((name, protocol), ips.iter().map(|ip| SocketAddr::new(*ip, number)).collect()))
    };
    slice["ports"].as_array().into_iter().flatten().filter_map(of).collect()
}

/// The addresses of a slice.
pub(super) fn addresses(slice: &Value) -> BTreeSet<String> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    endpoints.flat_map(|endpoint| strings(&endpoint["addresses"])).collect()
}

/// The texts of a list.
pub(super) fn strings(list: &Value) -> BTreeSet<String> {
    let all = list.as_array().into_iter().flatten();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The ServiceImports of a cluster.
fn imports(member: &Member) -> BTreeMap<Name, Value> {
    member.server.look(|store| {
        let all = store.all("serviceimports");
        all.map(|((_, namespace, name), object)| {
            ((namespace.clone(), name.clone()), object.clone())
        })
        .collect()
    })
}
