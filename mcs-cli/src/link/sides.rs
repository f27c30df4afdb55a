//! The clusters of a link that `mcs unlink` separates, and the pairs of them.

use mcs_controller::core::clusterset::ClusterId;

use crate::cluster::Cluster;

/// A cluster of a link.
pub(super) struct Side {
    pub(super) id: ClusterId,
    /// Absent if it does not answer.
    pub(super) cluster: Option<Cluster>,
    /// Whether it is gone for good, and needs no cleaning.
    pub(super) is_gone: bool,
}

/// Which pairs of clusters are unlinked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pairs {
    /// Every cluster and each of the others.
    All,
    /// Pairs with a cluster that is gone.
    OfGone,
}

impl Pairs {
    pub(super) const fn have(self, one: &Side, other: &Side) -> bool {
        matches!(self, Self::All) || one.is_gone || other.is_gone
    }
}
