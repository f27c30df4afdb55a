//! Status for people: conditions of ClusterPeers, and events.

mod events;
mod failures;
mod liveness;
mod other_writer;
mod peers;

pub use self::{
    events::{EventBudget, Notice, Regarding, event},
    failures::{Failures, Turn},
    liveness::Liveness,
    other_writer::other_writer,
    peers::{
        MASQUERADED, NAMESPACES_MISSING, OwnRanges, PeerNotes, TOKEN_NOT_RENEWED, has_turned,
        peer_notices, peer_status_request, peer_statuses,
    },
};
