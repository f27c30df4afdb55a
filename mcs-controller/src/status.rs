//! Status for people: conditions of ClusterPeers, and events.

mod events;
mod failures;
mod other_writer;
mod own_mailbox;
mod peers;

pub use self::{
    events::{EventBudget, Notice, Regarding, event},
    failures::{Failures, Turn},
    other_writer::other_writer,
    own_mailbox::OwnMailbox,
    peers::{
        MASQUERADED, NAMESPACES_MISSING, OwnRanges, PeerNotes, TOKEN_NOT_RENEWED, has_turned,
        peer_notices, peer_status_request, peer_statuses,
    },
};
