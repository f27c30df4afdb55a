//! The reasons why a reader cannot read a mailbox, or does not trust it.

use std::fmt;

use mcs_kube::one_line_of;

/// The most bytes of another cluster's id in a message.
const LONGEST_ID: usize = 100;

/// Why a mailbox is unreadable, or is not trusted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MailboxProblem {
    /// A resource cannot be read now.
    Unreadable {
        /// Its plural.
        resource: &'static str,
        /// What the API server answered.
        reason: String,
    },
    /// The mailbox has more than the ClusterPeer allows.
    OverLimit {
        /// The exceeded field of `spec.limits`.
        limit: &'static str,
        /// The value of the field.
        most: usize,
        /// The ExportedServices that are left out.
        services: usize,
        /// The slices that are left out.
        slices: usize,
    },
    /// No publisher has written its Lease.
    NoPublisher,
    /// The mailbox belongs to another cluster.
    OtherCluster(String),
    /// The mailbox belongs to another cluster with the same id.
    OtherUid(String),
    /// A later Lease was there before: a backup was restored, or a publisher that was replaced writes it.
    Past,
    /// The publisher has not published everything yet, or not everything was read yet.
    Incomplete,
    /// The mailbox has another number of services than the publisher says.
    Count {
        /// The number that the reader sees.
        seen: usize,
        /// The number in the Lease.
        said: usize,
    },
}

impl fmt::Display for MailboxProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { resource, reason } => write!(f, "cannot read {resource}: {reason}"),
            Self::NoPublisher => f.write_str(
                "the mailbox has no Lease publisher: is a controller running in that cluster?",
            ),
            Self::OtherCluster(other) => {
                write!(f, "the mailbox belongs to cluster \"{}\"", one_line_of(other, LONGEST_ID))
            }
            Self::OtherUid(other) => write!(
                f,
                "the mailbox belongs to another cluster of this id, with uid {}. If the cluster was made anew, link it with \
                 --replace",
                one_line_of(other, LONGEST_ID)
            ),
            Self::Past => f.write_str(
                "the Lease is older than one that was there before: a backup of the mailbox was restored, or a publisher \
                 that was replaced writes it",
            ),
            Self::OverLimit { limit, most, services, slices } => write!(
                f,
                "spec.limits.{limit} is {most}: {services} ExportedServices and {slices} slices are left out"
            ),
            Self::Incomplete => f.write_str(
                "the publisher says that it has not published everything: it has just begun, or cannot read its own cluster",
            ),
            Self::Count { seen, said } => {
                write!(f, "the mailbox has {seen} ExportedServices, and the publisher says {said}")
            }
        }
    }
}
