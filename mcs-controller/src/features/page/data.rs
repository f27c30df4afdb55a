//! The clusterset as the control task last saw it, and the page that shows it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use jiff::Timestamp;
use mcs_kube::{
    Tiers,
    program::page::{Cell, Mark, Page, Query, Samples, Table},
    reasons::{Coded as _, Reason, Rejection, Severity},
};
use prometheus::IntCounterVec;

use crate::core::{
    clusterset::{ClusterId, ExportState, ImportState, ServiceName},
    objects::{ClusterPeerStatus, PeerCondition},
    peers::PeerName,
};

/// The plots, and the result of the writes that each counts.
const FIGURES: [(&str, &str); 2] =
    [("Services written a second", "ok"), ("Failed writes a second", "error")];

/// The data of the page.
#[derive(Debug, Default)]
pub(super) struct PageData {
    pub(super) figures: Samples<{ FIGURES.len() }>,
    view: Mutex<Option<Arc<View>>>,
    is_asked: AtomicBool,
}

/// The clusterset as this cluster sees it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct View {
    /// This cluster.
    pub(super) cluster: ClusterId,
    /// The name of the clusterset.
    pub(super) clusterset: String,
    /// Whether this replica writes. The others judge nothing.
    pub(super) leads: bool,
    /// When this was seen.
    pub(super) seen: Timestamp,
    /// Every peer, with its cluster.
    pub(super) peers: Vec<(PeerName, Option<ClusterId>, ClusterPeerStatus)>,
    /// Every import.
    pub(super) imports: Vec<ImportView>,
    /// The exports with problems, and the reasons.
    pub(super) exports: Vec<(ServiceName, ExportState, String)>,
    /// The number of rejected endpoints.
    pub(super) rejected: Vec<(ClusterId, Rejection, usize)>,
}

/// An import.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ImportView {
    /// Its name.
    pub(super) name: ServiceName,
    /// Its state.
    pub(super) state: ImportState,
    /// The number of its endpoints in this cluster's slices, by source cluster.
    pub(super) endpoints: BTreeMap<ClusterId, usize>,
    /// The results of its cluster selectors, if it has any.
    pub(super) tiers: Option<Tiers>,
    /// The problem of the import.
    pub(super) message: String,
}

impl PageData {
    /// Replaces the view of the page.
    pub(super) fn set(&self, view: View) {
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(view));
    }

    /// Whether somebody has asked for the page since the last call.
    pub(super) fn was_asked(&self) -> bool {
        self.is_asked.swap(false, Ordering::Relaxed)
    }

    /// The page.
    pub(super) fn page(&self, query: &Query) -> Page {
        self.is_asked.store(true, Ordering::Relaxed);
        let plots = self.figures.plots(FIGURES.map(|(title, _)| title));
        let view = self.view.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let page = |title, state| Page {
            title,
            state,
            problems: vec![],
            facts: vec![],
            plots,
            tables: vec![],
        };
        let Some(view) = view else {
            let starting = "it starts: not everything of this cluster was read yet".to_owned();
            return page("mcs-controller".to_owned(), (Mark::Unknown, starting));
        };
        let mut page = page(format!("mcs-controller of cluster {}", view.cluster), view.state());
        let count = |count: usize| count.to_string();
        page.facts = vec![
            ("Clusterset", view.clusterset.clone()),
            ("Version", env!("CARGO_PKG_VERSION").to_owned()),
            ("Peers", count(view.peers.len())),
            ("Imports", count(view.imports.len())),
            ("Seen", view.seen.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()),
        ];
        if view.leads {
            let tables = [View::peers, View::imports, View::exports, View::rejected];
            page.tables = tables.map(|table| table(&view, query)).into();
        }
        page
    }
}

/// The number of writes by result so far.
pub(super) fn count(writes: &IntCounterVec) -> [u64; FIGURES.len()] {
    let of = |target, result| writes.with_label_values(&[target, result]).get();
    FIGURES.map(|(_, result)| of("cluster", result) + of("mailbox", result))
}

impl View {
    fn state(&self) -> (Mark, String) {
        if !self.leads {
            let standby =
                "standby: another replica leads, and its page says what becomes of imports";
            return (Mark::Unknown, standby.to_owned());
        }
        let peers =
            self.peers.iter().filter(|(_, _, status)| health(status).0 == Mark::Bad).count();
        let imports = self.imports.iter().filter(|one| mark(one.state) == Mark::Bad).count();
        if peers + imports == 0 {
            return (Mark::Good, "healthy".to_owned());
        }
        let (all_peers, all_imports) = (self.peers.len(), self.imports.len());
        let state = format!(
            "{peers} of {all_peers} peers and {imports} of {all_imports} imports have a problem"
        );
        (Mark::Bad, state)
    }

    fn peers(&self, _: &Query) -> Table {
        let mut peers: Vec<_> = self
            .peers
            .iter()
            .map(|(name, cluster, status)| (health(status), name, cluster, status))
            .collect();
        peers.sort_by_key(|((mark, _), ..)| *mark);
        let columns =
            &["Cluster", "Health", "Services", "Endpoints", "Refused", "Last contact", "Why"];
        let none = "No other cluster is linked: `mcs link` does it.";
        Table::new("Clusters", columns, none, &peers, |((mark, word), name, cluster, status)| {
            let number = |number: Option<u32>| {
                Cell::Text(number.map_or_else(|| "-".to_owned(), |number| number.to_string()))
            };
            let cluster = cluster.as_ref().map_or_else(|| name.to_string(), ToString::to_string);
            let failing =
                failing(status).map(|one| format!("{}: {}", one.condition_type, one.message));
            vec![
                Cell::Text(cluster),
                Cell::Mark(*mark, word.clone()),
                number(status.services),
                number(status.endpoints),
                number(status.refused_endpoints),
                Cell::Text(status.last_contact.as_deref().unwrap_or("-").replace('T', " ")),
                Cell::Text(failing.collect::<Vec<_>>().join("; ")),
            ]
        })
    }

    fn imports(&self, query: &Query) -> Table {
        let meant = self.imports.iter().filter(|one| query.has(&one.name.to_string()));
        let mut meant: Vec<_> = meant.collect();
        meant.sort_by_cached_key(|one| (one.name.to_string() != query.import, mark(one.state)));
        let columns = &["Import", "State", "Endpoints", "Tiers", "Why"];
        Table::new("Imports", columns, "No import, or none of this name.", &meant, |one| {
            let total = figure(one.endpoints.values().sum::<usize>().max(1));
            let shares = one
                .endpoints
                .iter()
                .map(|(cluster, count)| (format!("{cluster}: {count}"), figure(*count) / total));
            vec![
                Cell::Import(one.name.to_string()),
                Cell::Mark(mark(one.state), one.state.name().to_owned()),
                Cell::Shares(shares.collect()),
                Cell::Text(one.tiers.as_ref().map(ToString::to_string).unwrap_or_default()),
                Cell::Text(one.message.clone()),
            ]
        })
    }

    fn exports(&self, query: &Query) -> Table {
        let meant = self.exports.iter().filter(|(name, ..)| query.has(&name.to_string()));
        let meant: Vec<_> = meant.collect();
        let none = "Every export of this cluster is as it should be.";
        let columns = &["Export", "State", "Why"];
        Table::new("Exports of this cluster with a problem", columns, none, &meant, |one| {
            let (name, state, why) = one;
            let mark = if *state == ExportState::NotImported { Mark::Note } else { Mark::Bad };
            vec![
                Cell::Text(name.to_string()),
                Cell::Mark(mark, state.name().to_owned()),
                Cell::Text(why.clone()),
            ]
        })
    }

    fn rejected(&self, _: &Query) -> Table {
        let columns = &["Cluster", "Reason", "Endpoints"];
        let none = "No endpoint of a peer is refused.";
        Table::new(
            "Refused endpoints",
            columns,
            none,
            &self.rejected,
            |(cluster, reason, count)| {
                vec![
                    Cell::Text(cluster.to_string()),
                    Cell::Mark(Mark::Bad, reason.to_string()),
                    Cell::Text(count.to_string()),
                ]
            },
        )
    }
}

fn mark(state: ImportState) -> Mark {
    match state.severity() {
        Severity::Note if state == ImportState::Ready => Mark::Good,
        Severity::Note => Mark::Note,
        Severity::Unknown => Mark::Unknown,
        Severity::Wrong => Mark::Bad,
    }
}

fn failing(status: &ClusterPeerStatus) -> impl Iterator<Item = &PeerCondition> {
    status.conditions.iter().filter(|one| one.status == "False")
}

/// The health of a peer, and the reasons of the conditions behind it.
fn health(status: &ClusterPeerStatus) -> (Mark, String) {
    let failing: Vec<_> = failing(status).map(|one| &*one.reason).collect();
    // Other conditions are unknown on purpose.
    let is_pending =
        |one: &&PeerCondition| one.status == "Unknown" && one.reason == Reason::Pending;
    let pending = status.conditions.iter().filter(is_pending);
    let pending: Vec<_> = pending.map(|one| &*one.condition_type).collect();
    match (failing.is_empty(), pending.is_empty()) {
        (false, _) => (Mark::Bad, failing.join(", ")),
        (true, true) => (Mark::Good, "healthy".to_owned()),
        (true, false) => (Mark::Unknown, format!("not known yet: {}", pending.join(", "))),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share for people")]
const fn figure(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use mcs_kube::program::{http::Serves, page};

    use super::*;

    fn body(data: &PageData) -> String {
        let serves = Serves { health: true, metrics: true, local: true, client: None };
        page::answer(serves, &"/page".parse().unwrap(), |query| data.page(query)).unwrap().body
    }

    #[test]
    fn the_page_says_what_is_wrong_and_hides_it_on_a_standby() {
        let data = PageData::default();
        assert!(body(&data).contains("○&nbsp;it starts"));
        let silent = PeerCondition {
            condition_type: "Fresh".to_owned(),
            status: "False".to_owned(),
            reason: "Stale".to_owned(),
            message: "no sign of life for 60 s".to_owned(),
            last_transition_time: String::new(),
            observed_generation: None,
        };
        let status = ClusterPeerStatus { conditions: vec![silent], ..ClusterPeerStatus::default() };
        let import = ImportView {
            name: "shop/cart".parse().unwrap(),
            state: ImportState::AddressShared,
            endpoints: [("east".parse().unwrap(), 1), ("west".parse().unwrap(), 3)].into(),
            tiers: None,
            message: "shop/other has its address".to_owned(),
        };
        let view = View {
            cluster: "east".parse().unwrap(),
            clusterset: "shop".to_owned(),
            leads: true,
            seen: Timestamp::UNIX_EPOCH,
            peers: vec![("west".into(), Some("west".parse().unwrap()), status)],
            imports: vec![import],
            exports: vec![],
            rejected: vec![("west".parse().unwrap(), Rejection::OwnPods, 4)],
        };
        data.set(view.clone());
        let page = body(&data);
        for words in [
            "✕&nbsp;1 of 1 peers and 1 of 1 imports have a problem",
            "✕&nbsp;Stale",
            "no sign of life for 60 s",
            "✕&nbsp;address_shared",
            "75.0&nbsp;% west: 3",
            "✕&nbsp;own_pods",
        ] {
            assert!(page.contains(words), "no {words} in {page}");
        }
        data.set(View { leads: false, ..view });
        assert!(body(&data).contains("○&nbsp;standby") && !body(&data).contains("shop/cart"));
    }

    /// A peer says why it is as it is, and what its cluster is called.
    #[test]
    fn what_others_say_is_no_markup() {
        let said = || "<script>alert('x')</script>&amp;".to_owned();
        let condition = PeerCondition {
            condition_type: said(),
            status: "False".to_owned(),
            reason: said(),
            message: said(),
            last_transition_time: said(),
            observed_generation: None,
        };
        let data = PageData::default();
        data.set(View {
            cluster: "east".parse().unwrap(),
            clusterset: said(),
            leads: true,
            seen: Timestamp::UNIX_EPOCH,
            peers: vec![(
                said().as_str().into(),
                None,
                ClusterPeerStatus {
                    conditions: vec![condition],
                    last_contact: Some(said()),
                    ..ClusterPeerStatus::default()
                },
            )],
            imports: vec![ImportView {
                name: "shop/cart".parse().unwrap(),
                state: ImportState::Conflict,
                endpoints: BTreeMap::new(),
                tiers: None,
                message: said(),
            }],
            exports: vec![("shop/cart".parse().unwrap(), ExportState::Invalid, said())],
            rejected: vec![],
        });
        let page = body(&data);
        assert!(!page.contains("<script"), "{page}");
        let escaped = "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;amp;";
        // The clusterset; of the peer its name, reason, contact, and condition twice; an import, and an export.
        assert_eq!(page.matches(escaped).count(), 8, "{page}");
    }
}
