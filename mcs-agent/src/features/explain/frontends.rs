//! Compares the frontends in the maps with what the rules want.

use std::{collections::BTreeMap, net::SocketAddr};

use mcs_kube::{program::finding::Finding, reasons::Code};
use serde::Serialize;

use super::{
    ExplainedImports,
    fates::{EndpointFate, word},
    first, list,
    rules::ExplainedSlice,
    target::Target,
};
use crate::core::{
    kernel::{
        dataplane::count_affinity,
        flows::{FlowTable, FrontendFlows},
        loader::Pins,
    },
    model::{Frontend, FrontendId, ObjectKey},
    tables::{self, BackendView, FrontendStatus, MapView},
};

/// How many flows are listed.
const FLOWS: usize = 5;

/// A frontend.
#[derive(Debug, Serialize)]
pub(super) struct FrontendView {
    #[serde(flatten)]
    pub(super) frontend: FrontendId,
    /// The import that it belongs to in the maps, or else by the rules.
    pub(super) import: ObjectKey,
    /// Absent if the maps do not have it.
    pub(super) state: Option<FrontendStatus>,
    pub(super) affinity_seconds: Option<u32>,
    /// How many slots it has, each with one backend.
    pub(super) slots: u32,
    /// The backends in its slots.
    pub(super) backends: Vec<BackendView>,
    /// Backends that keep their UDP clients and get no new ones.
    pub(super) kept: Vec<BackendView>,
    /// What the rules want and the maps lack.
    pub(super) missing: Vec<SocketAddr>,
    /// What the maps have and the rules do not want.
    pub(super) stale: Vec<SocketAddr>,
    /// How many flows of the packet path it has.
    pub(super) flows: Option<usize>,
    /// Some of them.
    pub(super) some_flows: Vec<FlowView>,
    /// How many clients session affinity remembers.
    pub(super) affinity_clients: Option<usize>,
    /// Whether the rules want it.
    #[serde(skip)]
    is_wanted: bool,
    #[serde(skip)]
    wanted_import: Option<ObjectKey>,
}

/// A flow.
#[derive(Debug, Serialize)]
pub(super) struct FlowView {
    pub(super) client: SocketAddr,
    pub(super) backend: SocketAddr,
}

/// The frontends that are asked about, as the rules want them and as the maps have them. `by_rules`: objects were read, so
/// the rules say what they want.
pub(super) fn compare(
    pins: &Pins,
    target: &Target,
    explained: &ExplainedImports,
    view: &MapView,
    by_rules: bool,
) -> Vec<FrontendView> {
    let Some((key, first)) = explained.first() else { return Vec::new() };
    let mut all: BTreeMap<FrontendId, (Option<&Frontend>, Option<&tables::FrontendView>)> =
        BTreeMap::new();
    for (id, frontend) in first.frontends.iter().filter(|(id, _)| target.has(id)) {
        all.entry(*id).or_default().0 = Some(frontend);
    }
    for (id, frontend) in view.frontends.iter().filter(|(id, _)| target.has(id)) {
        if frontend.import == *key || all.contains_key(id) {
            all.entry(*id).or_default().1 = Some(frontend);
        }
    }
    let ids = all.keys().copied().collect();
    let flows = FlowTable::open(&pins.flows()).and_then(|table| table.of_frontends(&ids, FLOWS));
    let mut flows = flows.ok();
    let view = |(id, (wanted, found))| {
        let mut view = FrontendView::new(id, key, wanted, found, by_rules);
        let of_frontend = flows.as_mut().map(|flows| flows.remove(&id).unwrap_or_default());
        view.count(pins, of_frontend, found.map(|found| found.index));
        view
    };
    all.into_iter().map(view).collect()
}

impl FrontendView {
    fn new(
        frontend: FrontendId,
        key: &ObjectKey,
        wanted: Option<&Frontend>,
        found: Option<&tables::FrontendView>,
        by_rules: bool,
    ) -> Self {
        let backends = found.map(|found| found.backends.clone()).unwrap_or_default();
        let has = |address: SocketAddr| backends.iter().any(|one| one.address == address);
        let wants =
            |address: SocketAddr| wanted.is_some_and(|wanted| wanted.backend(address).is_some());
        let missing = wanted.into_iter().flat_map(|wanted| &wanted.backends);
        let missing = missing.map(|one| one.address).filter(|one| !has(*one)).collect();
        let stale = backends.iter().map(|one| one.address);
        let stale = stale.filter(|one| by_rules && !wants(*one)).collect();
        Self {
            frontend,
            import: found.map_or_else(|| key.clone(), |found| found.import.clone()),
            state: found.map(|found| found.state),
            affinity_seconds: found.and_then(|found| found.affinity_seconds),
            slots: found.map_or(0, |found| found.extent.count),
            kept: found.map(|found| found.kept.clone()).unwrap_or_default(),
            missing,
            stale,
            backends,
            flows: None,
            some_flows: Vec::new(),
            affinity_clients: None,
            is_wanted: wanted.is_some(),
            wanted_import: wanted.map(|wanted| wanted.import.clone()),
        }
    }

    fn count(&mut self, pins: &Pins, flows: Option<FrontendFlows>, index: Option<u32>) {
        if let Some(FrontendFlows { count, some }) = flows {
            self.flows = Some(count);
            self.some_flows =
                some.into_iter().map(|(client, backend)| FlowView { client, backend }).collect();
        }
        if let Some((index, seconds)) = index.zip(self.affinity_seconds) {
            self.affinity_clients = count_affinity(&pins.state(), index, seconds).ok();
        }
    }

    /// Finds what is wrong with it.
    pub(super) fn judge(
        &self,
        no_room: bool,
        slices: &[ExplainedSlice],
        findings: &mut Vec<Finding>,
    ) {
        let id = self.frontend;
        let mut find = |code, what: String| findings.push(Finding::new(code, what));
        if let Some(wanted) = self
            .wanted_import
            .as_ref()
            .filter(|wanted| self.state.is_some() && **wanted != self.import)
        {
            find(
                Code::OtherImport,
                format!(
                    "{id} belongs to {} in the maps, and to {wanted} by the rules",
                    self.import
                ),
            );
        }
        if self.is_wanted && self.state.is_none() && !no_room {
            find(Code::NotWritten, format!("the maps have no frontend {id}"));
        }
        if !self.missing.is_empty() && self.state.is_some() && !no_room {
            find(Code::NotWritten, format!("{id} lacks {}", some(&self.missing)));
        }
        if !self.stale.is_empty() {
            find(Code::StaleBackend, format!("{id} still leads to {}", some(&self.stale)));
        }
        if self.backends.is_empty() && self.missing.is_empty() {
            find(
                Code::NoUsableEndpoint,
                format!("{id} has no usable endpoint{}: clients are refused", counts(slices)),
            );
        }
    }
}

/// `: 2 not-ready, 1 no-such-port`.
fn counts(slices: &[ExplainedSlice]) -> String {
    let mut counts = BTreeMap::<EndpointFate, usize>::new();
    let fates = slices.iter().flat_map(|slice| &slice.endpoints).flat_map(|one| &one.fates);
    fates.for_each(|one| *counts.entry(one.fate).or_default() += 1);
    let counts = list(counts.iter().map(|(fate, count)| format!("{count} {}", word(*fate))));
    if counts.is_empty() { String::new() } else { format!(" ({counts})") }
}

/// The first of some addresses, and how many more there are.
pub(super) fn some(addresses: &[SocketAddr]) -> String {
    const NAMED: usize = 3;
    first(addresses, NAMED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::{Protocol, fixture::key};

    impl FrontendView {
        /// A frontend of an import, as the rules want it, without backends.
        pub(in crate::features::explain) fn fixture(port: u16, protocol: Protocol) -> Self {
            let frontend = FrontendId { ip: "10.0.0.1".parse().unwrap(), port, protocol };
            let wanted_import = Some(key("shop/web"));
            let view = Self::new(frontend, &key("shop/web"), None, None, true);
            Self { is_wanted: true, wanted_import, ..view }
        }
    }

    #[test]
    fn a_frontend_says_how_the_maps_differ_from_the_rules() {
        let codes = |view: &FrontendView| {
            let mut findings = vec![];
            view.judge(false, &[], &mut findings);
            findings.into_iter().map(|one| one.code).collect::<Vec<_>>()
        };
        let mut view = FrontendView::fixture(80, Protocol::Tcp);
        assert_eq!(codes(&view), ["not-written", "no-usable-endpoint"]);
        view.state = Some(FrontendStatus::Ready);
        view.import = key("shop/other");
        view.missing = vec!["10.1.0.1:80".parse().unwrap()];
        view.stale = vec!["10.1.0.2:80".parse().unwrap()];
        assert_eq!(codes(&view), ["other-import", "not-written", "stale-backend"]);
    }
}
