//! Mailboxes: a namespace on some API server in which one cluster publishes what it exports, and others read it.
//!
//! A mailbox holds an ExportedService for each exported Service, copies of its slices, and the Lease `publisher`. The
//! same objects and code serve a mailbox in the publisher's cluster and one on a hub.
//!
//! Silence is not emptiness. A reader takes away a service only when the publisher has withdrawn it, or when the
//! publisher's Lease says that the mailbox is complete and counts as many services as the reader sees. It takes away a
//! slice only when the ExportedService names it no longer.
//!
//! A backup is not the present. Each object has a [`Stamp`](crate::clusterset::Stamp), and no reader replaces an object by
//! one that was written before.

mod contents;
mod ignored;
mod limits;
mod publish;
#[cfg(test)]
mod tests;
mod view;

pub use self::{
    publish::{MailboxWrite, Outgoing, plan_publication, unknown_demands},
    view::{Believed, MailboxEvent, MailboxProblem, MailboxView},
};

use mcs_kube::WatchTarget;

use crate::{clusterset::well_known, objects::OWN_VERSION};

/// The ExportedServices of a mailbox. `most_bytes`: how much memory a list of them can take.
pub fn services_target(mailbox: &str, most_bytes: Option<usize>) -> WatchTarget {
    WatchTarget {
        namespace: Some(mailbox.to_owned()),
        most_bytes,
        ..WatchTarget::all(well_known::GROUP, &[OWN_VERSION], "ExportedService", "exportedservices")
    }
}

/// The copies of slices in a mailbox.
pub fn slices_target(mailbox: &str, most_bytes: Option<usize>) -> WatchTarget {
    WatchTarget {
        namespace: Some(mailbox.to_owned()),
        most_bytes,
        labels: Some(well_known::MAILBOX_SERVICE.to_owned()),
        ..WatchTarget::all("discovery.k8s.io", &["v1"], "EndpointSlice", "endpointslices")
    }
}

/// The Lease of a mailbox's publisher.
pub fn lease_target(mailbox: &str) -> WatchTarget {
    WatchTarget {
        namespace: Some(mailbox.to_owned()),
        fields: Some(format!("metadata.name={}", well_known::PUBLISHER_LEASE)),
        ..WatchTarget::all("coordination.k8s.io", &["v1"], "Lease", "leases")
    }
}
