//! Mailboxes: a namespace on some API server in which one cluster publishes what it exports, and others read it.
//!
//! A mailbox holds an ExportedService for each exported Service, copies of its slices, and the Lease `publisher`. A mailbox
//! in the publisher's cluster and a mailbox on a hub have the same objects and code.
//!
//! Silence is not emptiness. A reader deletes a service only if the publisher has withdrawn it, or if the publisher's Lease
//! says that the mailbox is complete and counts as many services as the reader sees. It deletes a slice only if the
//! ExportedService no longer names it.
//!
//! A backup is not the present. Each object has a [`Stamp`](crate::core::clusterset::Stamp), and no reader replaces an object by
//! an older one.

mod contents;
mod ignored;
mod limits;
mod problem;
mod publish;
mod split;
#[cfg(test)]
mod tests;
mod view;

pub use self::{
    problem::MailboxProblem,
    publish::{MailboxObject, MailboxWrite, Outgoing, Withheld, plan_publication, unknown_demands},
    view::{Believed, MailboxEvent, MailboxView},
};

use std::{collections::BTreeMap, sync::Arc};

use mcs_kube::{Room, WatchTarget};

use crate::core::{clusterset::well_known, objects::OWN_VERSION};

/// Which mailboxes a connection reads.
#[derive(Clone, Debug)]
pub enum Scope {
    /// The mailbox in this namespace. The room applies to the list of services and to the list of slices.
    One(String, Room),
    /// The mailboxes in these namespaces of a hub, each with the bytes that one of its lists can take.
    Hub(BTreeMap<String, usize>),
}

impl Scope {
    /// The ExportedServices.
    pub fn services(&self) -> WatchTarget {
        let target = WatchTarget::all(
            well_known::GROUP,
            &[OWN_VERSION],
            "ExportedService",
            "exportedservices",
        );
        self.of(target)
    }

    /// The copies of slices.
    pub fn slices(&self) -> WatchTarget {
        self.of(WatchTarget {
            labels: Some(well_known::MAILBOX_SERVICE.to_owned()),
            ..WatchTarget::all("discovery.k8s.io", &["v1"], "EndpointSlice", "endpointslices")
        })
    }

    /// The Leases of the publishers, without limits. Their watches are short, so that a deleted account is noticed soon.
    pub fn leases(&self) -> WatchTarget {
        let target = WatchTarget {
            // An account that may read all mailboxes may read Leases of this name alone.
            fields: Some(format!("metadata.name={}", well_known::PUBLISHER_LEASE)),
            seconds: 20..=30,
            ..WatchTarget::all("coordination.k8s.io", &["v1"], "Lease", "leases")
        };
        match self {
            Self::One(namespace, _) => Self::One(namespace.clone(), Room::Endless).of(target),
            Self::Hub(rooms) => {
                let endless = rooms.keys().map(|namespace| (namespace.clone(), usize::MAX));
                Self::Hub(endless.collect()).of(target)
            }
        }
    }

    fn of(&self, target: WatchTarget) -> WatchTarget {
        match self {
            Self::One(namespace, room) => {
                WatchTarget { namespace: Some(namespace.clone()), room: room.clone(), ..target }
            }
            Self::Hub(rooms) => WatchTarget { room: Room::Each(Arc::new(rooms.clone())), ..target },
        }
    }
}
