//! Whether a node reaches the pods of other clusters.

use std::{fmt, net::SocketAddr};

use serde::{Deserialize, Serialize};

/// The way to the pods of a source cluster in one IP family. Part of `status -o json`: fields are added, never renamed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReachReport {
    /// The source cluster.
    pub cluster: String,
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// Whether its pods are reached, but for some that this node has never reached; absent while too few connections say so.
    pub reachable: Option<bool>,
    /// How many pods were reached in the last round.
    pub reached: usize,
    /// How many pods were silent in the last round.
    pub silent: usize,
    /// The shortest round trip of the last round, in microseconds; absent if no pod was reached.
    pub round_trip_micros: Option<u64>,
    /// While the pods are not reachable: those that were lost in the last round with one.
    pub silent_endpoints: Vec<SocketAddr>,
}

impl ReachReport {
    /// The name of this part of an agent's report: a list.
    pub const SECTION: &str = "reach";

    /// Why the pods are not reachable; none if they are, or may be.
    pub fn problem(&self) -> Option<String> {
        let silent: Vec<_> = self.silent_endpoints.iter().map(ToString::to_string).collect();
        (self.reachable == Some(false)).then(|| {
            format!(
                "this node does not reach pods of cluster {} by {}, such as {}: look at its routes to the pod ranges of that \
                 cluster, and at firewalls that let pods pass and not nodes (--probe-peers=off ends this check)",
                self.cluster,
                self.family,
                silent.join(", ")
            )
        })
    }
}

impl fmt::Display for ReachReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let silent = self.silent;
        write!(f, "{} {} ", self.cluster, self.family)?;
        match (self.reachable, self.round_trip_micros) {
            (None, _) => f.write_str("not known yet"),
            (Some(false), _) => f.write_str("NOT REACHED"),
            (Some(true), None) => f.write_str("reached"),
            (Some(true), Some(micros)) => {
                let (millis, tenths) = (micros / 1000, micros % 1000 / 100);
                write!(f, "reached in {millis}.{tenths} ms")
            }
        }?;
        match self.reachable {
            Some(true) if silent > 0 => write!(f, " ({silent} silent)"),
            _ => Ok(()),
        }
    }
}
