//! The metrics of the controller.

mod peers;

use jiff::Timestamp;
use mcs_kube::reasons::Coded;
use prometheus::{
    Encoder as _, IntCounterVec, IntGauge, IntGaugeVec, Registry, TextEncoder,
    register_int_counter_vec_with_registry, register_int_gauge_vec_with_registry,
    register_int_gauge_with_registry,
};

pub use self::peers::PeerBounds;
use self::peers::PeerMetrics;
use crate::core::{
    clusterset::{ExportState, ImportState},
    peers::token::TokenClaims,
};

/// The metrics of the controller.
#[derive(Debug)]
pub struct Metrics {
    pub(crate) registry: Registry,
    /// 1 while this replica writes.
    pub leader: IntGauge,
    /// Services that wait for a write, by target.
    pub waiting: IntGaugeVec,
    /// Writes by target and result.
    pub writes: IntCounterVec,
    /// The metrics of peers.
    pub peers: PeerMetrics,
    /// By Secret: when the token of its kubeconfig is due for renewal, and when it expires.
    pub token_times: [IntGaugeVec; 2],
    /// By Secret and result: renewals of its token.
    pub renewals: IntCounterVec,
    /// By mailbox: the seconds since the last renewal of the Lease of this cluster's own mailbox.
    pub lease_age: IntGaugeVec,
    /// By result: renewals of the Lease of this cluster's own mailbox.
    pub lease_writes: IntCounterVec,
    /// By state: services that peers or this cluster export to this cluster.
    pub imports: IntGaugeVec,
    /// By state: services that this cluster exports.
    pub exports: IntGaugeVec,
}

impl Metrics {
    /// All of them, at 0.
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let gauge =
            |name: &str, help: &str| register_int_gauge_with_registry!(name, help, registry);
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            register_int_gauge_vec_with_registry!(name, help, labels, registry)
        };
        let counters = |name: &str, help: &str, labels: &[&str]| {
            register_int_counter_vec_with_registry!(name, help, labels, registry)
        };
        Ok(Self {
            peers: PeerMetrics::new(&registry)?,
            leader: gauge("mcs_controller_leader", "1 while this replica writes")?,
            waiting: gauges(
                "mcs_controller_waiting_services",
                "Services that wait to be written, by target: cluster or mailbox",
                &["target"],
            )?,
            writes: counters(
                "mcs_controller_service_writes_total",
                "Services that were written, by target (cluster, mailbox) and result (ok, error)",
                &["target", "result"],
            )?,
            token_times: [
                gauges(
                    "mcs_controller_token_renewal_due_timestamp_seconds",
                    "When a third of the token's life is over, by the Secret with its kubeconfig",
                    &["secret"],
                )?,
                gauges(
                    "mcs_controller_token_expiry_timestamp_seconds",
                    "When the token expires, by the Secret with its kubeconfig",
                    &["secret"],
                )?,
            ],
            renewals: counters(
                "mcs_controller_token_renewals_total",
                "Renewals of tokens, by Secret and result (ok, error)",
                &["secret", "result"],
            )?,
            lease_age: gauges(
                "mcs_controller_mailbox_lease_age_seconds",
                "For how long nobody has renewed the Lease of this cluster's own mailbox",
                &["mailbox"],
            )?,
            lease_writes: counters(
                "mcs_controller_mailbox_lease_writes_total",
                "Renewals of the Lease of this cluster's own mailbox, by result (ok, error)",
                &["result"],
            )?,
            imports: gauges(
                "mcs_controller_imports",
                "Services that are exported to this cluster, by what has become of the import",
                &["state"],
            )?,
            exports: gauges(
                "mcs_controller_exports",
                "ServiceExports of this cluster, by what has become of them",
                &["state"],
            )?,
            registry,
        })
    }

    /// Gauges of a feature.
    pub(crate) fn gauges(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> prometheus::Result<IntGaugeVec> {
        register_int_gauge_vec_with_registry!(name, help, labels, self.registry)
    }

    /// The times of the token in a Secret.
    pub fn set_token(&self, secret: &str, token: &TokenClaims) {
        let times = [token.due(), token.expires].map(Timestamp::as_second);
        for (gauges, time) in self.token_times.iter().zip(times) {
            gauges.with_label_values(&[secret]).set(time);
        }
    }

    /// Forgets a Secret that is not used any more.
    pub fn remove_token(&self, secret: &str) {
        for gauges in &self.token_times {
            let _ = gauges.remove_label_values(&[secret]);
        }
        for result in ["ok", "error"] {
            let _ = self.renewals.remove_label_values(&[secret, result]);
        }
    }

    /// How many services are in each state.
    pub fn set_imports(&self, counts: impl IntoIterator<Item = (ImportState, usize)>) {
        set_states(&self.imports, counts);
    }

    /// How many exports are in each state.
    pub fn set_exports(&self, counts: impl IntoIterator<Item = (ExportState, usize)>) {
        set_states(&self.exports, counts);
    }

    /// Removes the metrics of a leader: another replica reports them now.
    pub fn stand_by(&self) {
        let [due, expires] = &self.token_times;
        let queues = [&self.waiting, &self.lease_age, &self.imports, &self.exports];
        for gauges in [due, expires].into_iter().chain(queues) {
            gauges.reset();
        }
        self.peers.stand_by();
    }

    /// In the text format of Prometheus.
    pub fn text(&self) -> prometheus::Result<String> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

fn set_states(gauges: &IntGaugeVec, counts: impl IntoIterator<Item = (impl Coded, usize)>) {
    for (state, count) in counts {
        gauges.with_label_values(&[state.name()]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::objects::{ClusterPeerStatus, PeerCondition};

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

    impl Metrics {
        /// The metrics with a value each.
        pub(crate) fn full() -> Self {
            let metrics = Self::new().unwrap();
            let status = ClusterPeerStatus {
                conditions: vec![PeerCondition {
                    last_transition_time: "2026-01-02T03:04:05Z".to_owned(),
                    ..condition("Fresh", "True")
                }],
                services: Some(1),
                endpoints: Some(1),
                refused_endpoints: Some(0),
                token_expires: Some("2026-01-02T03:04:05Z".to_owned()),
                ..ClusterPeerStatus::default()
            };
            metrics.peers.set("west", &status);
            metrics.peers.set_since("west", &status);
            metrics.peers.set_bounds("west", &PeerBounds::default());
            metrics.waiting.with_label_values(&["cluster"]).set(1);
            metrics.writes.with_label_values(&["cluster", "ok"]).inc();
            let token = TokenClaims {
                namespace: "mcs-mailbox".to_owned(),
                account: "east".to_owned(),
                issued: Timestamp::from_second(1000).unwrap(),
                expires: Timestamp::from_second(4600).unwrap(),
            };
            metrics.set_token("peer-west", &token);
            metrics.renewals.with_label_values(&["peer-west", "error"]).inc();
            metrics.lease_age.with_label_values(&["mcs-mailbox"]).set(3);
            metrics.lease_writes.with_label_values(&["error"]).inc();
            metrics.peers.status_errors.with_label_values(&["west"]).inc();
            metrics.set_imports([(ImportState::Ready, 1)]);
            metrics.set_exports([(ExportState::Exported, 1)]);
            metrics
        }
    }

    /// The names of metrics in a text of them.
    #[test]
    fn a_condition_that_is_unknown_has_no_value() {
        let metrics = Metrics::new().unwrap();
        for (known, value) in [("True", "1"), ("False", "0")] {
            for (status, expected) in [(known, Some(value)), ("Unknown", None)] {
                let conditions = vec![condition("IdentityMatches", status)];
                metrics.peers.set("west", &ClusterPeerStatus { conditions, ..Default::default() });
                let text = metrics.text().unwrap();
                let served = text.lines().find_map(|line| {
                    line.strip_prefix("mcs_controller_peer_condition{")?.split("} ").nth(1)
                });
                assert_eq!(served, expected, "{status}: {text}");
            }
        }
        let counts = |metrics: &Metrics, number| {
            let status = ClusterPeerStatus { services: number, ..Default::default() };
            metrics.peers.set("west", &status);
            metrics.text().unwrap().contains("mcs_controller_peer_services{")
        };
        assert_eq!([Some(0), None].map(|number| counts(&metrics, number)), [true, false]);
    }

    /// Alerts of a replica that waits for its turn would fire for ever: nobody changes its gauges.
    #[test]
    fn a_token_that_nobody_uses_has_no_metrics() {
        let metrics = Metrics::full();
        metrics.remove_token("peer-west");
        assert!(!metrics.text().unwrap().contains("peer-west"));
    }

    #[test]
    fn a_peer_that_is_gone_has_no_metrics() {
        let metrics = Metrics::new().unwrap();
        metrics.peers.set("west", &ClusterPeerStatus::default());
        metrics.peers.set_bounds("west", &PeerBounds::default());
        assert!(metrics.text().unwrap().contains("west"));
        metrics.peers.remove("west");
        assert!(!metrics.text().unwrap().contains("west"));
    }
}
