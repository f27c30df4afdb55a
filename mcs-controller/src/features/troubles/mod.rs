//! A metric that names the services whose imports have a problem, the first by name, so that an alert can name them.

use std::{collections::BTreeSet, time::Instant};

use jiff::Timestamp;
use mcs_kube::reasons::Coded as _;
use prometheus::IntGaugeVec;

use crate::core::{
    clock,
    clusterset::{ImportState, ServiceName},
    control::State,
    feature::{Core, Entry, Feature},
    server::Metrics,
};

/// How many services are named.
const NAMED: usize = 20;

/// The feature in the list.
pub(crate) const ENTRY: Entry = Entry {
    start: |_, wiring| Ok(Some(Box::new(Troubles::new(&wiring.published.metrics)?))),
    ..Entry::NONE
};

type Troubled = BTreeSet<(ServiceName, ImportState)>;

struct Troubles {
    named: Troubled,
    /// By service and state: since when its import has a problem.
    gauge: IntGaugeVec,
}

impl Troubles {
    fn new(metrics: &Metrics) -> prometheus::Result<Self> {
        let gauge = metrics.gauges(
            "mcs_controller_service_trouble_since_timestamp_seconds",
            "Since when this replica knows that the import is in that state, which is not ready: the first 20 services by name",
            &["namespace", "service", "state"],
        )?;
        Ok(Self { named: Troubled::new(), gauge })
    }

    /// Names these imports, and no others.
    fn set(&mut self, troubled: Troubled, now: Timestamp) {
        fn labels((service, state): &(ServiceName, ImportState)) -> [&str; 3] {
            [service.namespace(), service.name(), state.name()]
        }
        for one in self.named.difference(&troubled) {
            let _ = self.gauge.remove_label_values(&labels(one));
        }
        for one in troubled.difference(&self.named) {
            self.gauge.with_label_values(&labels(one)).set(now.as_second());
        }
        self.named = troubled;
    }
}

impl Feature for Troubles {
    fn act(&mut self, core: &mut Core, _: Instant) {
        if core.is_leader {
            self.set(core.state.import_states().troubled(NAMED), clock::time_of_day());
        }
    }

    fn lead(&mut self, _: bool, _: &mut State, _: Instant) {
        self.named.clear();
        self.gauge.reset();
    }

    #[cfg(test)]
    fn fill_metrics(&self) {
        self.gauge.with_label_values(&["shop", "web", "conflict"]).set(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::clusterset::fixture::name;

    #[test]
    fn a_service_is_named_since_its_trouble_began() {
        let metrics = Metrics::new().unwrap();
        let mut troubles = Troubles::new(&metrics).unwrap();
        let mut told = |state: Option<ImportState>, second| {
            let named = state.map(|state| (name("shop/web"), state)).into_iter().collect();
            troubles.set(named, Timestamp::from_second(second).unwrap());
            let text = metrics.text().unwrap();
            let mut lines =
                text.lines().filter(|line| line.starts_with("mcs_controller_service_trouble"));
            lines.next().map(|line| line.split_once('{').unwrap().1.to_owned())
        };
        let line = "namespace=\"shop\",service=\"web\",state=\"conflict\"} 10";
        assert_eq!(told(Some(ImportState::Conflict), 10).as_deref(), Some(line));
        assert_eq!(told(Some(ImportState::Conflict), 20).as_deref(), Some(line));
        assert!(told(Some(ImportState::Pending), 30).unwrap().ends_with("state=\"pending\"} 30"));
        assert_eq!(told(None, 40), None);
    }
}
