//! The reasons why a reader cannot read a mailbox, or does not trust it.

use std::fmt;

use mcs_kube::one_line_of;

/// The bytes of what another cluster calls itself.
const LONGEST_ID: usize = 100;

/// Why a mailbox cannot be read, or is not believed.
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
        /// Which field of `spec.limits` is exceeded.
        limit: &'static str,
        /// What it allows.
        most: usize,
        /// The ExportedServices that are left out.
        services: usize,
        /// The slices that are left out.
        slices: usize,
    },
    /// No publisher has written its Lease.
    NoPublisher,
    /// The mailbox is another cluster's.
    OtherCluster(String),
    /// The mailbox belongs to another cluster with the same id.
    OtherUid(String),
    /// A later Lease was there before: a backup was restored, or a publisher that was replaced writes it.
    Past,
    /// The publisher has not published everything yet.
    Incomplete,
    /// The mailbox has another number of services than the publisher says.
    Count {
        /// As many as the reader sees.
        seen: usize,
        /// As many as the Lease says.
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
            Self::Incomplete => f.write_str("the publisher has not published everything yet"),
            Self::Count { seen, said } => {
                write!(f, "the mailbox has {seen} ExportedServices, and the publisher says {said}")
            }
        }
    }
}
