//! The metrics of the controller.

use prometheus::{Encoder as _, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};

use crate::objects::ClusterPeerStatus;

/// The metrics of the controller.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// 1 while this replica writes.
    pub leader: IntGauge,
    /// Services that wait for a write, by target.
    pub waiting: IntGaugeVec,
    /// Writes by target and result.
    pub writes: IntCounterVec,
    /// By peer and condition: 1 if it holds, else 0.
    pub peer_conditions: IntGaugeVec,
    /// By peer: the services that it exports.
    pub peer_services: IntGaugeVec,
    /// By peer: their endpoints.
    pub peer_endpoints: IntGaugeVec,
}

impl Metrics {
    /// All of them, at 0.
    pub fn new() -> prometheus::Result<Self> {
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            IntGaugeVec::new(Opts::new(name, help), labels)
        };
        let metrics = Self {
            registry: Registry::new(),
            leader: IntGauge::new("mcs_controller_leader", "1 while this replica writes")?,
            waiting: gauges(
                "mcs_controller_waiting_services",
                "Services that wait to be written, by target: cluster or mailbox",
                &["target"],
            )?,
            writes: IntCounterVec::new(
                Opts::new(
                    "mcs_controller_service_writes_total",
                    "Services that were written, by target (cluster, mailbox) and result (ok, error)",
                ),
                &["target", "result"],
            )?,
            peer_conditions: gauges(
                "mcs_controller_peer_condition",
                "1 if the condition of the ClusterPeer holds, else 0",
                &["peer", "condition"],
            )?,
            peer_services: gauges(
                "mcs_controller_peer_services",
                "Services that the peer exports to this cluster",
                &["peer"],
            )?,
            peer_endpoints: gauges(
                "mcs_controller_peer_endpoints",
                "Endpoints of these services",
                &["peer"],
            )?,
        };
        let registry = &metrics.registry;
        registry.register(Box::new(metrics.leader.clone()))?;
        registry.register(Box::new(metrics.waiting.clone()))?;
        registry.register(Box::new(metrics.writes.clone()))?;
        registry.register(Box::new(metrics.peer_conditions.clone()))?;
        registry.register(Box::new(metrics.peer_services.clone()))?;
        registry.register(Box::new(metrics.peer_endpoints.clone()))?;
        Ok(metrics)
    }

    /// The status of a peer.
    pub fn set_peer(&self, peer: &str, status: &ClusterPeerStatus) {
        for condition in &status.conditions {
            let holds = i64::from(condition.status == "True");
            let labels = [peer, &condition.condition_type];
            self.peer_conditions.with_label_values(&labels).set(holds);
        }
        let count = |number: Option<u32>| i64::from(number.unwrap_or_default());
        self.peer_services.with_label_values(&[peer]).set(count(status.services));
        self.peer_endpoints.with_label_values(&[peer]).set(count(status.endpoints));
    }

    /// In the text format of Prometheus.
    pub fn text(&self) -> prometheus::Result<String> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}
