//! The metrics of the controller.

use prometheus::{
    Encoder as _, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

use jiff::Timestamp;

use crate::objects::{ClusterPeerStatus, PEER_CONDITIONS};

/// Bounds in seconds: from one write to an outage.
const PROPAGATION: [f64; 12] =
    [0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

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
    /// By peer and condition: 1 if it holds, 0 if it does not, absent while that is unknown.
    pub peer_conditions: IntGaugeVec,
    /// By peer: the services that it exports.
    pub peer_services: IntGaugeVec,
    /// By peer: their endpoints.
    pub peer_endpoints: IntGaugeVec,
    /// By peer: endpoints of it that are refused.
    pub peer_refused: IntGaugeVec,
    /// By peer: when the token of its kubeconfig expires.
    pub token_expires: IntGaugeVec,
    /// By source cluster: from a change of endpoints to the slice of this cluster.
    pub propagation: HistogramVec,
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
                "1 if the condition of the ClusterPeer holds, 0 if it does not; absent while unknown",
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
            peer_refused: gauges(
                "mcs_controller_peer_refused_endpoints",
                "Endpoints of the peer that this cluster refuses",
                &["peer"],
            )?,
            token_expires: gauges(
                "mcs_controller_peer_token_expiry_timestamp_seconds",
                "When the token of the peer's kubeconfig expires",
                &["peer"],
            )?,
            propagation: HistogramVec::new(
                HistogramOpts::new(
                    "mcs_controller_propagation_seconds",
                    "From the change of endpoints, by the source cluster's clock, to the written slice",
                )
                .buckets(PROPAGATION.to_vec()),
                &["source_cluster"],
            )?,
        };
        let registry = &metrics.registry;
        registry.register(Box::new(metrics.leader.clone()))?;
        registry.register(Box::new(metrics.waiting.clone()))?;
        registry.register(Box::new(metrics.writes.clone()))?;
        registry.register(Box::new(metrics.peer_conditions.clone()))?;
        registry.register(Box::new(metrics.peer_services.clone()))?;
        registry.register(Box::new(metrics.peer_endpoints.clone()))?;
        registry.register(Box::new(metrics.peer_refused.clone()))?;
        registry.register(Box::new(metrics.token_expires.clone()))?;
        registry.register(Box::new(metrics.propagation.clone()))?;
        Ok(metrics)
    }

    /// The status of a peer.
    pub fn set_peer(&self, peer: &str, status: &ClusterPeerStatus) {
        for condition in &status.conditions {
            let labels = [peer, &condition.condition_type];
            let holds = match condition.status.as_str() {
                "True" => 1,
                "False" => 0,
                _ => {
                    let _ = self.peer_conditions.remove_label_values(&labels);
                    continue;
                }
            };
            self.peer_conditions.with_label_values(&labels).set(holds);
        }
        let count = |number: Option<u32>| i64::from(number.unwrap_or_default());
        self.peer_services.with_label_values(&[peer]).set(count(status.services));
        self.peer_endpoints.with_label_values(&[peer]).set(count(status.endpoints));
        self.peer_refused.with_label_values(&[peer]).set(count(status.refused_endpoints));
        let expires =
            status.token_expires.as_deref().and_then(|time| time.parse::<Timestamp>().ok());
        match expires {
            Some(time) => self.token_expires.with_label_values(&[peer]).set(time.as_second()),
            None => {
                let _ = self.token_expires.remove_label_values(&[peer]);
            }
        }
    }

    /// Another replica writes now, and tells of peers.
    pub fn forget_peers(&self) {
        for gauges in [
            &self.peer_conditions,
            &self.peer_services,
            &self.peer_endpoints,
            &self.peer_refused,
            &self.token_expires,
        ] {
            gauges.reset();
        }
    }

    /// Forgets a peer that is gone.
    pub fn remove_peer(&self, peer: &str) {
        // An error means that the peer never had the metric.
        for condition in PEER_CONDITIONS {
            let _ = self.peer_conditions.remove_label_values(&[peer, condition]);
        }
        for gauges in
            [&self.peer_services, &self.peer_endpoints, &self.peer_refused, &self.token_expires]
        {
            let _ = gauges.remove_label_values(&[peer]);
        }
    }

    /// In the text format of Prometheus.
    pub fn text(&self) -> prometheus::Result<String> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::objects::PeerCondition;

    fn condition(kind: &str, status: &str) -> PeerCondition {
        PeerCondition {
            condition_type: kind.to_owned(),
            status: status.to_owned(),
            reason: String::new(),
            message: String::new(),
            last_transition_time: String::new(),
            observed_generation: None,
        }
    }

    /// The metrics with a value each, as the text names them.
    fn served() -> BTreeSet<String> {
        let metrics = Metrics::new().unwrap();
        let status = ClusterPeerStatus {
            conditions: vec![condition("Fresh", "True")],
            token_expires: Some("2026-01-02T03:04:05Z".to_owned()),
            ..ClusterPeerStatus::default()
        };
        metrics.set_peer("west", &status);
        metrics.waiting.with_label_values(&["cluster"]).set(1);
        metrics.writes.with_label_values(&["cluster", "ok"]).inc();
        metrics.propagation.with_label_values(&["west"]).observe(0.1);
        let text = metrics.text().unwrap();
        let typed = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        typed.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
    }

    /// The words of a text that are names of the controller's metrics.
    fn named(text: &str) -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named = words.filter(|word| word.starts_with("mcs_controller_"));
        let plain = |word: &str| word.strip_suffix("_bucket").unwrap_or(word).to_owned();
        named.map(plain).collect()
    }

    #[test]
    fn every_metric_is_documented() {
        let document = include_str!("../../README.md");
        assert_eq!(named(document), served());
    }

    #[test]
    fn alerts_ask_for_metrics_that_there_are() {
        let alerts = include_str!("../../../deploy/helm/mcs-controller/monitoring/alerts.yaml");
        let expressions: Vec<_> =
            alerts.lines().filter(|line| line.trim_start().starts_with("expr:")).collect();
        assert!(expressions.len() > 5);
        let asked = named(&expressions.join("\n"));
        assert!(asked.is_subset(&served()), "{asked:?}");
    }

    /// An alert for 0 says that the peer is another cluster.
    #[test]
    fn a_condition_that_is_unknown_has_no_value() {
        let metrics = Metrics::new().unwrap();
        for (known, value) in [("True", "1"), ("False", "0")] {
            for (status, expected) in [(known, Some(value)), ("Unknown", None)] {
                let conditions = vec![condition("IdentityMatches", status)];
                metrics.set_peer("west", &ClusterPeerStatus { conditions, ..Default::default() });
                let text = metrics.text().unwrap();
                let served = text.lines().find_map(|line| {
                    line.strip_prefix("mcs_controller_peer_condition{")?.split("} ").nth(1)
                });
                assert_eq!(served, expected, "{status}: {text}");
            }
        }
    }

    #[test]
    fn a_peer_that_is_gone_has_no_metrics() {
        let metrics = Metrics::new().unwrap();
        metrics.set_peer("west", &ClusterPeerStatus::default());
        assert!(metrics.text().unwrap().contains("west"));
        metrics.remove_peer("west");
        assert!(!metrics.text().unwrap().contains("west"));
    }
}
