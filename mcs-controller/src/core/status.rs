//! Status for people: conditions of ClusterPeers, and events.

mod events;
mod failures;
mod peers;

pub(crate) use self::peers::{condition, former, plain};
pub use self::{
    events::{EventBudget, Notice, Regarding, event},
    failures::{Failures, Liveness, Turn},
    peers::{PeerNotes, has_turned, peer_notices, peer_status_request, peer_statuses},
};
