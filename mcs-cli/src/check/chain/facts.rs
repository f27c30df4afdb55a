//! What was read of a cluster, and its objects in the order of the chain.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use mcs_controller::core::clusterset::well_known;
use mcs_kube::{
    ObjectKey,
    objects::{self, EndpointSlice},
    report::{Rejection, ServiceTables},
};
use serde_json::Value;

use crate::{services::key_of, status::text};

/// A kind of objects that is read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::check) enum What {
    Namespaces,
    Pods,
    Services,
    Slices,
    Exports,
    /// ExportedServices of the cluster's own mailbox.
    Published,
    Peers,
    Imports,
    Properties,
    /// Warnings.
    Events,
}

/// What an agent has.
#[derive(Clone, Debug)]
pub(in crate::check) struct Table {
    pub(in crate::check) services: ServiceTables,
    pub(in crate::check) rejections: Vec<Rejection>,
}

/// Why something was not read.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::check) struct Unread {
    pub(in crate::check) why: String,
    /// Whether that is a fault by itself, and no lack of a right.
    pub(in crate::check) is_wrong: bool,
}

impl Unread {
    pub(in crate::check) fn unknown(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_wrong: false }
    }

    pub(super) fn within(&self, place: &str) -> Self {
        Self { why: format!("{place}: {}", self.why), ..self.clone() }
    }
}

/// What was read of a cluster.
#[derive(Clone, Debug, Default)]
pub(in crate::check) struct Facts {
    pub(in crate::check) cluster: String,
    /// The objects of each kind, or why they could not be read. A kind that was not asked for is absent.
    pub(in crate::check) objects: BTreeMap<What, Result<Vec<Value>, Unread>>,
    /// By node.
    pub(in crate::check) tables: BTreeMap<String, Result<Table, Unread>>,
}

/// What was read, or why it could not be.
pub(super) type Read<T> = Result<T, Unread>;
/// The objects of a kind by their keys.
pub(super) type ByKey<'a> = BTreeMap<ObjectKey, &'a Value>;
/// The name and the protocol of a port.
pub(super) type PortKey = (String, String);
/// An address and the port of the pod, if the slice says one.
pub(super) type End = (IpAddr, Option<i32>);

/// The endpoints of some slices.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Ends {
    /// The ready ones by port.
    pub(super) ready: BTreeMap<PortKey, BTreeSet<End>>,
    /// The ready ones, whatever ports they have.
    pub(super) any_port: BTreeSet<End>,
    /// All of them.
    pub(super) all: BTreeSet<IpAddr>,
}

impl Ends {
    fn add(&mut self, slice: &EndpointSlice) {
        for endpoint in &slice.endpoints {
            let Some(ip) = endpoint.address().and_then(|text| text.parse().ok()) else { continue };
            self.all.insert(ip);
            if !endpoint.is_ready() {
                continue;
            }
            self.any_port.insert((ip, None));
            for port in &slice.ports {
                let (name, protocol) = port.key();
                let key = (name.to_owned(), protocol.to_owned());
                self.ready.entry(key).or_default().insert((ip, port.port));
            }
        }
    }

    pub(super) fn of_port(&self, port: &PortKey) -> BTreeSet<End> {
        self.ready.get(port).cloned().unwrap_or_default()
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (port, ends) in &other.ready {
            self.ready.entry(port.clone()).or_default().extend(ends);
        }
        self.any_port.extend(&other.any_port);
        self.all.extend(&other.all);
    }
}

/// The objects of a cluster, in the order of the chain.
pub(super) struct View<'a> {
    pub(super) facts: &'a Facts,
    pub(super) id: &'a str,
    pub(super) namespaces: Read<ByKey<'a>>,
    pub(super) pods: Read<ByKey<'a>>,
    pub(super) services: Read<ByKey<'a>>,
    pub(super) exports: Read<ByKey<'a>>,
    /// By what is exported.
    pub(super) published: Read<ByKey<'a>>,
    /// By the id of the cluster.
    pub(super) peers: Read<BTreeMap<String, &'a Value>>,
    pub(super) imports: Read<ByKey<'a>>,
    /// The slices of the cluster's own Services.
    pub(super) source: Read<BTreeMap<ObjectKey, Ends>>,
    /// Their copies in its mailbox.
    pub(super) copies: Read<BTreeMap<ObjectKey, Ends>>,
    /// The slices of imports, by source cluster.
    pub(super) imported: Read<BTreeMap<(ObjectKey, String), Ends>>,
}

impl Facts {
    /// The imports, if they could be read.
    pub(in crate::check) fn imports(&self) -> &[Value] {
        self.read(What::Imports).unwrap_or_default()
    }

    pub(in crate::check) fn read(&self, what: What) -> Read<&[Value]> {
        match self.objects.get(&what) {
            Some(Ok(objects)) => Ok(objects),
            Some(Err(why)) => Err(why.clone()),
            None => Err(Unread::unknown("they were not read")),
        }
    }

    fn by_key(&self, what: What) -> Read<ByKey<'_>> {
        Ok(self.read(what)?.iter().map(|one| (key_of(one), one)).collect())
    }
}

impl<'a> View<'a> {
    pub(super) fn of(facts: &'a Facts) -> Self {
        let published = facts.read(What::Published).map(|all| {
            let exported = all.iter().filter(|one| {
                let annotations = &one["metadata"]["annotations"];
                one["spec"]["clusterId"] == *facts.cluster
                    && annotations[well_known::WITHDRAWN] != "true"
            });
            exported.map(|one| (named(&one["spec"], "namespace", "name"), one)).collect()
        });
        let peers = facts
            .read(What::Peers)
            .map(|all| all.iter().map(|peer| (text(&peer["spec"]["clusterId"]), peer)).collect());
        let slices = slices(facts);
        let (source, copies, imported) = match &slices {
            Ok(slices) => (
                Ok(of_services(slices)),
                Ok(of_mailbox(slices, &facts.cluster)),
                Ok(of_imports(slices)),
            ),
            Err(why) => (Err(why.clone()), Err(why.clone()), Err(why.clone())),
        };
        Self {
            facts,
            id: &facts.cluster,
            namespaces: facts.by_key(What::Namespaces),
            pods: facts.by_key(What::Pods),
            services: facts.by_key(What::Services),
            exports: facts.by_key(What::Exports),
            imports: facts.by_key(What::Imports),
            published,
            peers,
            source,
            copies,
            imported,
        }
    }

    /// The last warning about a service.
    pub(super) fn event(&self, key: &ObjectKey) -> Option<String> {
        let events = self.facts.read(What::Events).unwrap_or_default().iter();
        let is_about = |event: &&Value| {
            let object = &event["involvedObject"];
            object["namespace"] == *key.namespace && object["name"] == *key.name
        };
        let last = events.filter(is_about).max_by_key(|event| text(&event["lastTimestamp"]))?;
        Some(format!(
            "{}: {} (Event in {})",
            text(&last["reason"]),
            text(&last["message"]),
            self.id
        ))
    }
}

fn named(object: &Value, namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(text(&object[namespace]), text(&object[name]))
}

fn slices(facts: &Facts) -> Read<Vec<EndpointSlice>> {
    let all = facts.read(What::Slices)?;
    Ok(all.iter().filter_map(|slice| objects::read(slice).ok()).collect())
}

fn of_services(slices: &[EndpointSlice]) -> BTreeMap<ObjectKey, Ends> {
    let mut all = BTreeMap::<_, Ends>::new();
    for slice in slices.iter().filter(|one| one.metadata.label(well_known::SERVICE_NAME).is_none())
    {
        if let Some(service) = slice.metadata.label(well_known::SLICE_SERVICE) {
            all.entry(ObjectKey::new(&*slice.metadata.namespace, service)).or_default().add(slice);
        }
    }
    all
}

fn of_mailbox(slices: &[EndpointSlice], cluster: &str) -> BTreeMap<ObjectKey, Ends> {
    let mut all = BTreeMap::<_, Ends>::new();
    for slice in slices {
        let label = |name| slice.metadata.label(name);
        let of = (label(well_known::MAILBOX_NAMESPACE), label(well_known::MAILBOX_SERVICE));
        if let (Some(namespace), Some(name)) = of
            && label(well_known::MAILBOX_CLUSTER) == Some(cluster)
        {
            all.entry(ObjectKey::new(namespace, name)).or_default().add(slice);
        }
    }
    all
}

fn of_imports(slices: &[EndpointSlice]) -> BTreeMap<(ObjectKey, String), Ends> {
    let mut all = BTreeMap::<_, Ends>::new();
    for slice in slices {
        let label = |name| slice.metadata.label(name);
        if let Some(service) = label(well_known::SERVICE_NAME) {
            let key = ObjectKey::new(&*slice.metadata.namespace, service);
            let cluster = label(well_known::SOURCE_CLUSTER).unwrap_or_default().to_owned();
            all.entry((key, cluster)).or_default().add(slice);
        }
    }
    all
}
