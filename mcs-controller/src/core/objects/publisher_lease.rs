//! The Lease `publisher` of a mailbox: whose mailbox it is, who publishes, and what was published.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use jiff::Timestamp;
use mcs_kube::{
    Decoder, Drain, ObjectKey,
    objects::{Lease, Object as _, Time},
};
use serde_json::{Value, json};

use crate::core::clusterset::{Properties, ServiceName, Stamp, read_published, well_known};

/// The version of the format. A reader of a lower version reads the fields that it knows.
pub const SCHEMA: u32 = 1;
/// The most bytes for names of refused services, and for names of namespaces. API servers accept 256 KiB of annotations.
const MOST_NAMES: usize = 64 * 1024;

/// The most addresses of a controller that are read: one of each IP family.
const MOST_CONTROLLERS: usize = 2;

/// The content of the Lease of a mailbox.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PublisherLease {
    /// The cluster that publishes in the mailbox; `spec.holderIdentity`.
    pub cluster: String,
    /// When it was written.
    pub stamp: Stamp,
    /// The run of the controller that publishes.
    pub run: String,
    /// The uid of the cluster: that of its namespace `kube-system`.
    pub uid: Option<String>,
    /// Whether every service that waited when this run began was published, or refused by the API server.
    pub complete: bool,
    /// The number of ExportedServices that the mailbox has or will have.
    pub services: usize,
    /// The number of services that the mailbox lacks because the API server refused them.
    pub failed: usize,
    /// The names of these services, within the bounds.
    pub refused: BTreeSet<ServiceName>,
    /// The namespaces of exports of peers that the cluster lacks, within the bounds.
    pub lacking: Arc<BTreeSet<Arc<str>>>,
    /// [`SCHEMA`] of the publisher.
    pub schema: u32,
    /// Whether readers should prefer other clusters.
    pub drain: Option<Drain>,
    /// The ClusterProperties of the cluster. None if unreadable.
    pub properties: Option<Arc<Properties>>,
    /// Whether the publisher has ended, and the next one need not wait.
    pub released: bool,
    /// When it was renewed, as text. The clocks of two clusters differ, so only a change counts.
    pub renewed: String,
    /// `metadata.resourceVersion`.
    pub version: Option<String>,
    /// The settings that all clusters of a clusterset share.
    pub membership: Option<Membership>,
}

/// The settings that all clusters of a clusterset should share, and where they find each other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Membership {
    /// The name of the clusterset.
    pub clusterset: String,
    /// The ranges of its VIPs, separated by a comma.
    pub vip_ranges: String,
    /// The version of the controller.
    pub software: String,
    /// Where the controller says which source address it sees, at most `MOST_CONTROLLERS`.
    pub controllers: Vec<SocketAddr>,
}

impl PublisherLease {
    /// Whether the publisher exports this service although the mailbox lacks it.
    pub fn refuses(&self, service: &ServiceName) -> bool {
        self.failed > self.refused.len() || self.refused.contains(service)
    }
}

/// Decodes the Lease.
#[derive(Clone, PartialEq, Debug)]
pub struct PublisherLeaseDecoder;

impl Decoder for PublisherLeaseDecoder {
    type Object = Lease;
    type Value = PublisherLease;

    fn convert(_: &ObjectKey, lease: Lease) -> Result<PublisherLease, String> {
        let (version, spec) = (lease.identity().1, lease.spec);
        let said = |name: &str| lease.metadata.annotation(name).map(str::to_owned);
        let text = |name: &str| said(name).unwrap_or_default();
        let is_true = |name: &str| text(name) == "true";
        let renewed = spec.renew_time.and_then(Time::timestamp);
        let refused = text(well_known::REFUSED);
        let refused = refused.split(',').filter_map(|name| name.parse().ok());
        let lacking = text(well_known::LACKING);
        let lacking = lacking.split(',').filter(|namespace| !namespace.is_empty());
        Ok(PublisherLease {
            cluster: spec.holder_identity.unwrap_or_default(),
            stamp: text(well_known::WRITTEN).parse().unwrap_or(Stamp::NONE),
            run: text(well_known::RUN),
            uid: said(well_known::CLUSTER_UID),
            complete: is_true(well_known::COMPLETE),
            services: text(well_known::PUBLISHED).parse().unwrap_or(usize::MAX),
            failed: text(well_known::FAILED).parse().unwrap_or_default(),
            refused: refused.collect(),
            lacking: Arc::new(lacking.map(Into::into).collect()),
            schema: text(well_known::SCHEMA).parse().unwrap_or_default(),
            drain: is_true(well_known::DRAIN)
                .then(|| Drain { deadline: text(well_known::DRAIN_DEADLINE).parse().ok() }),
            properties: said(well_known::PROPERTIES)
                .map_or_else(|| Some(Properties::new()), |text| read_published(&text))
                .map(Arc::new),
            released: is_true(well_known::RELEASED),
            renewed: renewed.map(|time| time.to_string()).unwrap_or_default(),
            version,
            membership: said(well_known::CLUSTERSET).map(|clusterset| Membership {
                clusterset,
                vip_ranges: text(well_known::VIP_RANGES),
                software: text(well_known::SOFTWARE),
                controllers: text(well_known::CONTROLLERS)
                    .split(',')
                    .filter_map(|address| address.parse().ok())
                    .take(MOST_CONTROLLERS)
                    .collect(),
            }),
        })
    }
}

/// The Lease as the publisher writes it. With `version`, it only replaces that version.
pub fn publisher_lease(mailbox: &str, lease: &PublisherLease, now: Timestamp) -> Value {
    let mut annotations = json!({
        well_known::WRITTEN: lease.stamp.to_string(),
        well_known::RUN: lease.run,
        well_known::COMPLETE: lease.complete.to_string(),
        well_known::PUBLISHED: lease.services.to_string(),
        well_known::SCHEMA: lease.schema.to_string(),
    });
    let mut say = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            annotations[name] = json!(value);
        }
    };
    say(well_known::CLUSTER_UID, lease.uid.clone());
    say(well_known::DRAIN, lease.drain.map(|_| "true".to_owned()));
    let deadline = lease.drain.and_then(|drain| drain.deadline);
    say(well_known::DRAIN_DEADLINE, deadline.map(|deadline| deadline.to_string()));
    let properties = lease.properties.as_deref().filter(|properties| !properties.is_empty());
    say(well_known::PROPERTIES, properties.and_then(|all| serde_json::to_string(all).ok()));
    say(well_known::RELEASED, lease.released.then(|| "true".to_owned()));
    if lease.failed > 0 {
        say(well_known::FAILED, Some(lease.failed.to_string()));
        say(well_known::REFUSED, Some(names(lease.refused.iter())));
    }
    if !lease.lacking.is_empty() {
        say(well_known::LACKING, Some(names(lease.lacking.iter())));
    }
    if let Some(one) = lease.membership.clone() {
        let Membership { clusterset, vip_ranges, software, controllers } = one;
        say(well_known::CLUSTERSET, Some(clusterset));
        say(well_known::VIP_RANGES, Some(vip_ranges));
        say(well_known::SOFTWARE, Some(software));
        say(well_known::CONTROLLERS, (!controllers.is_empty()).then(|| names(controllers.iter())));
    }
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "namespace": mailbox,
            "name": well_known::PUBLISHER_LEASE,
            "resourceVersion": lease.version,
            "annotations": annotations,
        },
        "spec": {
            "holderIdentity": lease.cluster,
            "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
        },
    })
}

/// The first names, within the bounds.
fn names(names: impl Iterator<Item = impl ToString>) -> String {
    let mut text = String::new();
    for name in names.map(|name| name.to_string()) {
        if text.len() + name.len() >= MOST_NAMES {
            break;
        }
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&name);
    }
    text
}

/// The Lease of a publisher that has published everything: `services` services.
#[cfg(test)]
pub(crate) fn complete_lease(cluster: &str, services: usize, sequence: u64) -> PublisherLease {
    PublisherLease {
        cluster: cluster.to_owned(),
        stamp: Stamp { mailbox: 0, epoch: 1, sequence },
        run: "run".to_owned(),
        complete: true,
        services,
        properties: Some(Arc::default()),
        ..PublisherLease::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::objects::decoded;

    fn read(object: &Value) -> PublisherLease {
        decoded::<PublisherLeaseDecoder>(object).unwrap()
    }

    #[test]
    fn a_lease_is_read_as_it_was_written() {
        let shop = |name: &str| ServiceName::new("shop", name).unwrap();
        let lease = PublisherLease {
            uid: Some("u".to_owned()),
            failed: 2,
            refused: [shop("a"), shop("b")].into(),
            lacking: Arc::new(["cart".into(), "shop".into()].into()),
            schema: SCHEMA,
            properties: Some(Arc::new([("region.example".into(), "eu".into())].into())),
            released: true,
            renewed: "1970-01-01T00:00:07Z".to_owned(),
            version: Some("9".to_owned()),
            membership: Some(Membership {
                clusterset: "set".to_owned(),
                vip_ranges: "241.0.0.0/8".to_owned(),
                software: "0.1.0".to_owned(),
                controllers: ["10.1.0.7:16460", "[fd01::7]:16460"]
                    .map(|address| address.parse().unwrap())
                    .into(),
            }),
            ..complete_lease("east", 3, 5)
        };
        let now = Timestamp::from_second(7).unwrap();
        let mut object = publisher_lease("mcs-mailbox", &lease, now);
        assert_eq!(read(&object), lease);
        object["metadata"]["annotations"][well_known::PROPERTIES] = json!("[");
        assert_eq!(read(&object).properties, None, "missing input is not empty input");
    }

    #[test]
    fn names_of_refused_services_are_bounded() {
        let name = |number| ServiceName::new("shop", &format!("{number:060}")).unwrap();
        let refused: BTreeSet<_> = (0..3000).map(name).collect();
        let lease = PublisherLease { failed: 3000, refused, ..complete_lease("east", 1, 1) };
        let lease = read(&publisher_lease("m", &lease, Timestamp::UNIX_EPOCH));
        assert!((900..1100).contains(&lease.refused.len()), "{}", lease.refused.len());
        assert!(lease.refuses(&ServiceName::new("shop", "any").unwrap()), "it may be one of them");
    }
}
