//! What the controller says of itself: conditions of ClusterPeers.

mod peers;

pub use self::peers::{peer_status_request, peer_statuses};
