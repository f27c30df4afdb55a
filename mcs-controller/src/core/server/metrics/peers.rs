//! The metrics of peers.

use jiff::Timestamp;
use prometheus::{
    IntCounterVec, IntGaugeVec, Registry, register_int_counter_vec_with_registry,
    register_int_gauge_vec_with_registry,
};

use crate::core::objects::{ClusterPeerStatus, PEER_CONDITIONS};

/// The resources of a mailbox that have limits.
const RESOURCES: [&str; 2] = ["exportedservices", "endpointslices"];

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Objects and services of a peer beyond its bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeerBounds {
    /// ExportedServices and slices beyond its limits.
    pub left_out: [usize; 2],
    /// How often an object could not be used.
    pub ignored: u64,
    /// Services that wait.
    pub waiting: usize,
}

/// The metrics of peers.
#[derive(Debug)]
pub struct PeerMetrics {
    /// By peer and condition: 1 if it holds, 0 if it does not, absent while unknown.
    conditions: IntGaugeVec,
    /// By peer and condition: the time of its last change.
    since: IntGaugeVec,
    /// By peer: the services that it exports.
    services: IntGaugeVec,
    /// By peer: their endpoints.
    endpoints: IntGaugeVec,
    /// By peer: its rejected endpoints.
    refused: IntGaugeVec,
    /// By peer and resource: objects of its mailbox beyond its limits.
    left_out: IntGaugeVec,
    /// By peer: objects of its mailbox that cannot be used.
    ignored: IntGaugeVec,
    /// By peer: services that wait because the peer has changed them.
    waiting: IntGaugeVec,
    /// By peer: when the token of its kubeconfig expires.
    token_expires: IntGaugeVec,
    /// By peer: writes of the status of its ClusterPeer that have failed.
    pub status_errors: IntCounterVec,
}

impl PeerMetrics {
    pub(crate) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            register_int_gauge_vec_with_registry!(name, help, labels, registry)
        };
        Ok(Self {
            conditions: gauges(
                "mcs_controller_peer_condition",
                "1 if the condition of the ClusterPeer holds, 0 if it does not; absent while unknown",
                &["peer", "condition"],
            )?,
            since: gauges(
                "mcs_controller_peer_condition_since_timestamp_seconds",
                "When the condition of the ClusterPeer last changed, as its status says",
                &["peer", "condition"],
            )?,
            services: gauges(
                "mcs_controller_peer_services",
                "Services that the peer exports to this cluster",
                &["peer"],
            )?,
            endpoints: gauges(
                "mcs_controller_peer_endpoints",
                "Endpoints of these services",
                &["peer"],
            )?,
            refused: gauges(
                "mcs_controller_peer_refused_endpoints",
                "Endpoints of the peer that this cluster refuses",
                &["peer"],
            )?,
            left_out: gauges(
                "mcs_controller_peer_left_out_objects",
                "Objects in the peer's mailbox beyond spec.limits, by resource",
                &["peer", "resource"],
            )?,
            ignored: gauges(
                "mcs_controller_peer_ignored_objects",
                "How often an object in the peer's mailbox could not be used since it is followed",
                &["peer"],
            )?,
            waiting: gauges(
                "mcs_controller_peer_waiting_services",
                "Services that wait because the peer changes more than --peer-writes allows",
                &["peer"],
            )?,
            token_expires: gauges(
                "mcs_controller_peer_token_expiry_timestamp_seconds",
                "When the token of the peer's kubeconfig expires",
                &["peer"],
            )?,
            status_errors: register_int_counter_vec_with_registry!(
                "mcs_controller_peer_status_errors_total",
                "Writes of the status of a ClusterPeer that have failed, by peer",
                &["peer"],
                registry
            )?,
        })
    }

    /// The status of a peer.
    pub fn set(&self, peer: &str, status: &ClusterPeerStatus) {
        for condition in &status.conditions {
            let labels = [peer, &condition.condition_type];
            let holds = match condition.status.as_str() {
                "True" => 1,
                "False" => 0,
                _ => {
                    let _ = self.conditions.remove_label_values(&labels);
                    continue;
                }
            };
            self.conditions.with_label_values(&labels).set(holds);
        }
        let expires =
            status.token_expires.as_deref().and_then(|time| time.parse::<Timestamp>().ok());
        for (gauge, value) in [
            (&self.services, status.services.map(i64::from)),
            (&self.endpoints, status.endpoints.map(i64::from)),
            (&self.refused, status.refused_endpoints.map(i64::from)),
            (&self.token_expires, expires.map(Timestamp::as_second)),
        ] {
            match value {
                Some(value) => gauge.with_label_values(&[peer]).set(value),
                // An error means that the peer never had the metric.
                None => drop(gauge.remove_label_values(&[peer])),
            }
        }
    }

    /// Sets when the conditions of a peer last changed.
    pub fn set_since(&self, peer: &str, written: &ClusterPeerStatus) {
        for condition in &written.conditions {
            if let Ok(time) = condition.last_transition_time.parse::<Timestamp>()
                && PEER_CONDITIONS.contains(&&*condition.condition_type)
            {
                let labels = [peer, &*condition.condition_type];
                self.since.with_label_values(&labels).set(time.as_second());
            }
        }
    }

    /// Objects and services of a peer beyond its bounds.
    pub fn set_bounds(&self, peer: &str, bounds: &PeerBounds) {
        for (resource, left_out) in RESOURCES.into_iter().zip(bounds.left_out) {
            self.left_out.with_label_values(&[peer, resource]).set(count(left_out));
        }
        let ignored = i64::try_from(bounds.ignored).unwrap_or(i64::MAX);
        self.ignored.with_label_values(&[peer]).set(ignored);
        self.waiting.with_label_values(&[peer]).set(count(bounds.waiting));
    }

    /// Removes the metrics of a leader about peers.
    pub(super) fn stand_by(&self) {
        for gauges in [
            &self.conditions,
            &self.since,
            &self.services,
            &self.endpoints,
            &self.refused,
            &self.left_out,
            &self.ignored,
            &self.waiting,
            &self.token_expires,
        ] {
            gauges.reset();
        }
    }

    /// Forgets a deleted peer.
    pub fn remove(&self, peer: &str) {
        // An error means that the peer never had the metric.
        let _ = self.status_errors.remove_label_values(&[peer]);
        for condition in PEER_CONDITIONS {
            let _ = self.conditions.remove_label_values(&[peer, condition]);
            let _ = self.since.remove_label_values(&[peer, condition]);
        }
        for resource in RESOURCES {
            let _ = self.left_out.remove_label_values(&[peer, resource]);
        }
        for gauges in [
            &self.services,
            &self.endpoints,
            &self.refused,
            &self.ignored,
            &self.waiting,
            &self.token_expires,
        ] {
            let _ = gauges.remove_label_values(&[peer]);
        }
    }
}
