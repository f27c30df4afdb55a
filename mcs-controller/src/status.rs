//! What the controller tells people: conditions of ClusterPeers, and events.

mod events;
mod membership;
mod peers;

pub use self::{
    events::{EventBudget, Notice, Regarding, event},
    peers::{OwnRanges, has_turned, peer_notices, peer_status_request, peer_statuses},
};
