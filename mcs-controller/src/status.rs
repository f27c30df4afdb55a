//! What the controller says of itself: conditions of ClusterPeers.

mod peers;

pub use self::peers::{has_turned, peer_status_request, peer_statuses};
