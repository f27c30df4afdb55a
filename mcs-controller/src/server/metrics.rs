//! The metrics of the controller.

mod peers;

use std::collections::BTreeSet;

use prometheus::{
    Encoder as _, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Registry, TextEncoder,
    register_histogram_vec_with_registry, register_int_counter_vec_with_registry,
    register_int_gauge_vec_with_registry, register_int_gauge_with_registry,
};

use jiff::Timestamp;

pub use self::peers::PeerBounds;
use self::peers::PeerMetrics;
use crate::{
    clusterset::{ExportState, ImportState, ServiceName},
    peers::token::TokenClaims,
};

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
    /// By service and state: since when its import has a problem.
    pub troubled: IntGaugeVec,
    /// By kind: objects of this controller that another one writes too.
    contested: IntGaugeVec,
    /// How many rights this controller needs and does not have.
    missing_rights: IntGaugeVec,
    /// Whether cluster DNS answers names.
    names: IntGaugeVec,
    /// By source cluster: from a change of endpoints to the slice of this cluster.
    pub propagation: HistogramVec,
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
            troubled: gauges(
                "mcs_controller_service_trouble_since_timestamp_seconds",
                "Since when this replica knows that the import is in that state, which is not ready: the first 20 services by name",
                &["namespace", "service", "state"],
            )?,
            names: gauges(
                "mcs_controller_names_answered",
                "1 while cluster DNS answers names in clusterset.local, 0 if it has and does not; absent before",
                &[],
            )?,
            missing_rights: gauges(
                "mcs_controller_missing_rights",
                "Rights in its own cluster that the controller needs and does not have",
                &[],
            )?,
            contested: gauges(
                "mcs_controller_contested_objects",
                "Objects of this controller, and ServiceExports whose conditions it writes, that somebody else rewrites again and \
                 again",
                &["kind"],
            )?,
            propagation: register_histogram_vec_with_registry!(
                "mcs_controller_propagation_seconds",
                "From the change of endpoints, by the source cluster's clock, to the written slice",
                &["source_cluster"],
                PROPAGATION.to_vec(),
                registry
            )?,
            registry,
        })
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
        set_states(&self.imports, counts.into_iter().map(|(state, count)| (state.name(), count)));
    }

    /// How many exports are in each state.
    pub fn set_exports(&self, counts: impl IntoIterator<Item = (ExportState, usize)>) {
        set_states(&self.exports, counts.into_iter().map(|(state, count)| (state.name(), count)));
    }

    /// Sets the imports with problems, and removes the former ones.
    pub fn set_troubled(
        &self,
        former: &BTreeSet<(ServiceName, ImportState)>,
        troubled: &BTreeSet<(ServiceName, ImportState)>,
        now: Timestamp,
    ) {
        fn labels((service, state): &(ServiceName, ImportState)) -> [&str; 3] {
            [service.namespace(), service.name(), state.name()]
        }
        for one in former.difference(troubled) {
            let _ = self.troubled.remove_label_values(&labels(one));
        }
        for one in troubled.difference(former) {
            self.troubled.with_label_values(&labels(one)).set(now.as_second());
        }
    }

    /// Whether cluster DNS answers names.
    pub fn set_names(&self, is_answered: Option<bool>) {
        self.names.reset();
        if let Some(is_answered) = is_answered {
            self.names.with_label_values::<&str>(&[]).set(is_answered.into());
        }
    }

    /// How many rights are missing.
    pub fn set_missing_rights(&self, count: usize) {
        let gauge = self.missing_rights.with_label_values::<&str>(&[]);
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets how many objects of each kind somebody else rewrites.
    pub fn set_contested(&self, counts: [(&str, usize); 4]) {
        for (kind, count) in counts {
            let gauge = self.contested.with_label_values(&[kind]);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Removes the metrics of a leader: another replica reports them now.
    pub fn stand_by(&self) {
        let [due, expires] = &self.token_times;
        let queues = [
            &self.waiting,
            &self.lease_age,
            &self.imports,
            &self.exports,
            &self.troubled,
            &self.contested,
            &self.names,
            &self.missing_rights,
        ];
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

fn set_states(gauges: &IntGaugeVec, counts: impl Iterator<Item = (&'static str, usize)>) {
    for (state, count) in counts {
        gauges.with_label_values(&[state]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, time::Duration};

    use mcs_kube::reach::{Attempt, Outcome, Way};

    use super::*;
    use crate::{
        clusterset::{IpFamily, fixture::name},
        objects::{ClusterPeerStatus, PeerCondition},
    };

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

    fn reached() -> Way<ServiceName> {
        let mut way = Way::default();
        let address = SocketAddr::from(([10, 2, 0, 1], 80));
        let took = Duration::from_millis(30);
        way.note(vec![(name("shop/web"), Attempt { address, outcome: Outcome::Answered, took })]);
        way
    }

    /// The metrics with a value each.
    fn full() -> Metrics {
        let metrics = Metrics::new().unwrap();
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
        metrics.peers.set_reach("west", &[(IpFamily::V4, &reached())]);
        metrics.set_names(Some(true));
        metrics.set_missing_rights(0);
        metrics.set_contested([
            ("ServiceExport", 1),
            ("ServiceImport", 0),
            ("EndpointSlice", 2),
            ("Service", 0),
        ]);
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
        let troubled = [(name("shop/web"), ImportState::Conflict)].into();
        metrics.set_troubled(&BTreeSet::new(), &troubled, Timestamp::UNIX_EPOCH);
        metrics.propagation.with_label_values(&["west"]).observe(0.1);
        metrics
    }

    /// The names of metrics in a text of them.
    fn served(metrics: &Metrics) -> BTreeSet<String> {
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
        assert_eq!(named(document), served(&full()));
    }

    #[test]
    fn alerts_ask_for_metrics_that_there_are() {
        let alerts = include_str!("../../../deploy/helm/mcs-controller/monitoring/alerts.yaml");
        let asked = named(alerts);
        assert!(asked.len() > 5);
        assert!(asked.is_subset(&served(&full())), "{asked:?}");
    }

    #[test]
    fn the_dashboard_asks_for_metrics_that_there_are() {
        let dashboard =
            include_str!("../../../deploy/helm/mcs-controller/monitoring/dashboard.json");
        let asked = named(dashboard);
        assert!(asked.len() > 10);
        assert!(asked.is_subset(&served(&full())), "{asked:?}");
        assert!(served(&full()).contains("mcs_controller_peer_condition_since_timestamp_seconds"));
    }

    #[test]
    fn a_service_is_named_since_its_trouble_began() {
        let metrics = Metrics::new().unwrap();
        let troubled = |state| [(name("shop/web"), state)].into();
        let (conflict, pending) = (troubled(ImportState::Conflict), troubled(ImportState::Pending));
        let at = |second| Timestamp::from_second(second).unwrap();
        let told = |metrics: &Metrics| {
            let text = metrics.text().unwrap();
            let mut lines =
                text.lines().filter(|line| line.starts_with("mcs_controller_service_trouble"));
            lines.next().map(|line| line.split_once('{').unwrap().1.to_owned())
        };
        metrics.set_troubled(&BTreeSet::new(), &conflict, at(10));
        metrics.set_troubled(&conflict, &conflict, at(20));
        let line = "namespace=\"shop\",service=\"web\",state=\"conflict\"} 10";
        assert_eq!(told(&metrics).as_deref(), Some(line));
        metrics.set_troubled(&conflict, &pending, at(30));
        assert!(told(&metrics).unwrap().ends_with("state=\"pending\"} 30"));
        metrics.set_troubled(&pending, &BTreeSet::new(), at(40));
        assert_eq!(told(&metrics), None);
    }

    /// An alert for 0 says that the peer is another cluster.
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
    fn a_standby_tells_of_itself_alone() {
        let metrics = full();
        metrics.stand_by();
        let text = metrics.text().unwrap();
        let gauges = text.lines().filter(|line| line.ends_with(" gauge"));
        let gauges: Vec<_> = gauges.filter_map(|line| line.split(' ').nth(2)).collect();
        assert_eq!(gauges, ["mcs_controller_leader"]);
    }

    #[test]
    fn a_token_that_nobody_uses_has_no_metrics() {
        let metrics = full();
        metrics.remove_token("peer-west");
        assert!(!metrics.text().unwrap().contains("peer-west"));
    }

    #[test]
    fn a_peer_that_is_gone_has_no_metrics() {
        let metrics = Metrics::new().unwrap();
        metrics.peers.set("west", &ClusterPeerStatus::default());
        metrics.peers.set_bounds("west", &PeerBounds::default());
        metrics.peers.set_reach("west", &[(IpFamily::V6, &reached())]);
        assert!(metrics.text().unwrap().contains("west"));
        metrics.peers.remove("west");
        assert!(!metrics.text().unwrap().contains("west"));
    }
}
