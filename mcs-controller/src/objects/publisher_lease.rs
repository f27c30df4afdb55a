//! The Lease `publisher` of a mailbox: whose mailbox it is, and whether what is there is complete.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use mcs_kube::{Decoder, ObjectKey};
use serde_json::{Value, json};

use super::typed;
use crate::clusterset::{ClusterId, well_known};

/// What the publisher of a mailbox says about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublisherLease {
    /// The cluster whose exports are there; `spec.holderIdentity`.
    pub cluster: String,
    /// The publisher's run.
    pub epoch: String,
    /// Whether this run has published everything once.
    pub complete: bool,
    /// The number of ExportedServices that the mailbox has.
    pub services: usize,
    /// When it was renewed, as written. Clocks of two clusters differ: only a change means something.
    pub renewed: String,
}

/// Decodes the Lease.
#[derive(Clone, PartialEq, Debug)]
pub struct PublisherLeaseDecoder;

impl Decoder for PublisherLeaseDecoder {
    type Value = PublisherLease;

    fn decode(_: ObjectKey, object: &Value) -> Result<PublisherLease, String> {
        let lease: Lease = typed(object)?;
        let annotations = lease.metadata.annotations.unwrap_or_default();
        let text = |name: &str| annotations.get(name).cloned().unwrap_or_default();
        let spec = lease.spec.unwrap_or_default();
        Ok(PublisherLease {
            cluster: spec.holder_identity.unwrap_or_default(),
            epoch: text(well_known::EPOCH),
            complete: text(well_known::COMPLETE) == "true",
            services: text(well_known::PUBLISHED).parse().unwrap_or(usize::MAX),
            renewed: spec.renew_time.map(|time| time.0.to_string()).unwrap_or_default(),
        })
    }
}

/// The Lease as the publisher applies it.
pub fn publisher_lease(
    mailbox: &str,
    cluster: &ClusterId,
    epoch: &str,
    complete: bool,
    services: usize,
    now: Timestamp,
) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "namespace": mailbox,
            "name": well_known::PUBLISHER_LEASE,
            "annotations": {
                well_known::EPOCH: epoch,
                well_known::COMPLETE: complete.to_string(),
                well_known::PUBLISHED: services.to_string(),
            },
        },
        "spec": {
            "holderIdentity": cluster,
            "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
        },
    })
}
