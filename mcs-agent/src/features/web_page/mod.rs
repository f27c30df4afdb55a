//! The page of the agent: what `status` and `services` say, for a browser.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    path::Path,
    pin::Pin,
    sync::Arc,
};

use clap::{ArgMatches, Args, Command, FromArgMatches as _, builder::BoolishValueParser};
use hyper::Uri;
use mcs_kube::program::{
    http::{Answer, Serves},
    page::{self, Cell, Mark, Page, Query, Samples, Table, shown},
};

use crate::core::{
    control::{
        health::{Attachments, age},
        report::Report,
    },
    feature::{self, AgentView, ClusterLine, Definition, Route},
    kernel::{
        dataplane::{KernelMapsReader, Tally, read_counters},
        loader::Pins,
    },
    model::{ImportReport, ImportState, ObjectKey, Traffic},
    tables::{FrontendStatus, FrontendView, MapReader as _, frontends_of},
};

/// The page in the list of features.
pub const FEATURE: Definition = Definition { flags, route, ..Definition::named("web_page") };

/// What the plots show.
const TITLES: [&str; 2] = ["Connections and flows translated a second", "Refusals a second"];

/// The maps are not read with more endpoints: probes would wait meanwhile.
const MOST_READ: usize = 200_000;

/// What new clients find in the maps, by import. Absent if they were not read.
type Frontends = Option<BTreeMap<ObjectKey, Vec<FrontendView>>>;

/// What the plots show over time.
pub(crate) type PlotSamples = Samples<{ TITLES.len() }>;

/// What the programs have counted so far.
pub(crate) fn count(state: &Path) -> Option<[u64; TITLES.len()]> {
    let Tally { translated, refused } = Tally::of(&read_counters(state).ok()?);
    Some([translated, refused])
}

/// The page of an agent with this report; without one it has just started.
fn page_of(agent: &AgentView<'_>, samples: &PlotSamples, query: &Query) -> Page {
    let plots = samples.plots(TITLES);
    let AgentView { report, pins, features } = *agent;
    let Some(report) = report else {
        let state = (Mark::Unknown, "it starts: no maps and programs yet".to_owned());
        let title = "mcs-agent".to_owned();
        return Page { title, state, problems: vec![], facts: vec![], plots, tables: vec![] };
    };
    let problems = feature::failings(features, report, &Attachments::read(pins));
    let problems: Vec<_> = problems.into_iter().map(|(_, problem)| problem).collect();
    let (mark, word) =
        if problems.is_empty() { (Mark::Good, "healthy") } else { (Mark::Bad, "degraded") };
    let state = (mark, word.to_owned());
    let imports = imports(report, query);
    let frontends = read_frontends(report, pins, shown(&imports));
    let mut tables = vec![clusters(report, features), import_table(features, &imports, &frontends)];
    tables.extend(backends(query, &frontends));
    tables.extend([rejections(report, query), ejections(report, query)]);
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let node = or_none(&report.node_name);
    let facts = vec![
        ("Cluster", or_none(&report.common.node.cluster_id)),
        ("Zone", or_none(&report.common.node.zone)),
        ("Version", report.common.agent.version.clone()),
        ("Runs for", age(report.common.agent.started)),
        ("Last report", format!("{} ago", age(report.common.agent.updated))),
        (
            "Source",
            if report.common.source.is_directory() {
                "manifests"
            } else {
                &report.common.source.name
            }
            .to_owned(),
        ),
        ("Imports", counts(report)),
        ("Rejections", report.common.rejection_counts.values().sum::<usize>().to_string()),
    ];
    Page { title: format!("mcs-agent on node {node}"), state, problems, facts, plots, tables }
}

/// `3 Ready, 1 Rejected`.
fn counts(report: &Report) -> String {
    let of = |state| report.imports.iter().filter(|one| one.state == state).count();
    let counts = ImportState::ALL.map(|state| (state, of(state)));
    let counts = counts.iter().filter(|(_, count)| *count > 0);
    let counts: Vec<_> = counts.map(|(state, count)| format!("{count} {state}")).collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}

const fn mark(state: ImportState) -> Mark {
    match state {
        ImportState::Rejected | ImportState::Refusing => Mark::Bad,
        ImportState::Partial => Mark::Note,
        ImportState::LeftAlone => Mark::Unknown,
        ImportState::Ready => Mark::Good,
    }
}

/// The imports that are asked for: the one with exactly that name, and then the worst first.
fn imports<'a>(report: &'a Report, query: &Query) -> Vec<&'a Arc<ImportReport>> {
    let mut imports: Vec<_> =
        report.imports.iter().filter(|one| query.has(&one.import.to_string())).collect();
    imports.sort_by_cached_key(|one| {
        let is_other = one.import.to_string() != query.import;
        let is_left_alone = one.state == ImportState::LeftAlone;
        (is_other, is_left_alone, mark(one.state), one.message.is_empty())
    });
    imports
}

/// The frontends of some imports.
fn read_frontends(report: &Report, pins: &Pins, imports: &[&Arc<ImportReport>]) -> Frontends {
    if report.usage.endpoints > MOST_READ {
        return None;
    }
    let wanted: BTreeSet<_> = imports.iter().map(|one| &one.import).collect();
    let contents = KernelMapsReader::open(&pins.config()).and_then(|maps| maps.read_all());
    contents.map(|contents| frontends_of(&contents, &wanted)).ok()
}

fn clusters(report: &Report, features: &[Definition]) -> Table {
    let lines: Vec<_> = features.iter().flat_map(|feature| (feature.clusters)(report)).collect();
    let named = report.backends.keys().map(String::as_str);
    let named = named.chain(lines.iter().map(|line| &*line.cluster));
    let named = named.chain(report.common.node.traffic.0.keys().map(|cluster| &**cluster));
    let named: BTreeSet<&str> = named.collect();
    let total = report.backends.values().sum::<usize>().max(1);
    let mut rows: Vec<_> =
        named.into_iter().map(|name| (health(report, &lines, name), name)).collect();
    rows.sort();
    let columns =
        &["Cluster", "Health", "Backends", "Share of backends", "Not answering", "Traffic"];
    Table::new("Source clusters", columns, "No cluster has a backend here.", &rows, |row| {
        let ((mark, word), name) = row;
        let backends = report.backends.get(*name).copied().unwrap_or_default();
        let ejected = report.ejections.iter().filter(|one| &*one.cluster == *name).count();
        let traffic = report.common.node.traffic.0.get_key_value(*name);
        let traffic = traffic.map(|(name, wanted)| {
            let text = Traffic([(Arc::clone(name), *wanted)].into()).to_string();
            text.strip_prefix(&**name).unwrap_or(&text).trim().to_owned()
        });
        let shown = if name.is_empty() { "unknown" } else { name };
        vec![
            Cell::Text(shown.to_owned()),
            Cell::Mark(*mark, word.clone()),
            Cell::Text(backends.to_string()),
            Cell::Shares(vec![(String::new(), ratio(backends, total))]),
            Cell::Text(ejected.to_string()),
            Cell::Text(traffic.unwrap_or_default()),
        ]
    })
}

/// What features say of a cluster, and the worst of it.
fn health(report: &Report, lines: &[ClusterLine], cluster: &str) -> (Mark, String) {
    if report.common.node.cluster_id.as_deref() == Some(cluster) {
        return (Mark::Good, "this cluster".to_owned());
    }
    let lines: Vec<_> = lines.iter().filter(|line| line.cluster == cluster).collect();
    let mark = match lines.iter().map(|line| line.is_good).min() {
        Some(Some(true)) => Mark::Good,
        _ if lines.iter().any(|line| line.is_good == Some(false)) => Mark::Bad,
        _ => Mark::Unknown,
    };
    let said: Vec<_> = lines.iter().map(|line| &*line.text).collect();
    (mark, if said.is_empty() { "not probed".to_owned() } else { said.join("; ") })
}

fn import_table(
    features: &[Definition],
    imports: &[&Arc<ImportReport>],
    frontends: &Frontends,
) -> Table {
    let columns = &["Import", "State", "New clients go to", "Tiers", "Why"];
    Table::new("Imports", columns, "No import, or none of this name.", imports, |one| {
        let found =
            frontends.as_ref().map(|all| all.get(&one.import).map_or(&[][..], Vec::as_slice));
        let not_read = || Cell::Text("not read: mcs-agent backends".to_owned());
        vec![
            Cell::Import(one.import.to_string()),
            Cell::Mark(mark(one.state), one.state.to_string()),
            found.map_or_else(not_read, |of_import| Cell::Shares(shares_of(of_import))),
            Cell::Text(tiers(features, one)),
            Cell::Text(one.message.clone()),
        ]
    })
}

/// The share of each source cluster in the new clients of an import, on average of its frontends with backends.
fn shares_of(frontends: &[FrontendView]) -> Vec<(String, f64)> {
    let serving: Vec<_> = frontends.iter().filter(|one| !one.backends.is_empty()).collect();
    let mut shares = BTreeMap::<&str, f64>::new();
    for frontend in &serving {
        for backend in &frontend.backends {
            let share = f64::from(backend.slots) / f64::from(frontend.extent.count.max(1));
            *shares.entry(backend.cluster()).or_default() += share / figure(serving.len());
        }
    }
    shares.into_iter().map(|(name, share)| (name.to_owned(), share)).collect()
}

/// `1 east; 2 west`, or what each tier gets.
fn tiers(features: &[Definition], import: &ImportReport) -> String {
    let made = feature::tier_lines(features, &import.sections);
    if made.is_empty() {
        return import.tiers.as_ref().map(ToString::to_string).unwrap_or_default();
    }
    made.into_iter().map(|line| line.text).collect::<Vec<_>>().join("; ")
}

/// The backends of the import with exactly that name.
fn backends(query: &Query, frontends: &Frontends) -> Option<Table> {
    let mut frontends = frontends.as_ref()?.iter();
    let (_, found) = frontends.find(|(key, _)| key.to_string() == query.import)?;
    let rows: Vec<_> = found
        .iter()
        .flat_map(|one| {
            let lines = one.backend_lines().into_iter();
            lines.map(move |[address, cluster, share, ..]| (one, address, cluster, share))
        })
        .collect();
    let columns = &["Frontend", "State", "Backend", "Cluster", "Share"];
    Some(Table::new("Backends", columns, "The maps have none.", &rows, |row| {
        let (frontend, address, cluster, share) = row;
        let (mark, word) = match frontend.state {
            FrontendStatus::Ready => (Mark::Good, "ready"),
            FrontendStatus::Refusing => (Mark::Bad, "refusing"),
            FrontendStatus::Inactive => (Mark::Unknown, "inactive"),
        };
        let texts = [address, cluster, share].map(|text| Cell::Text(text.clone()));
        let first = [Cell::Text(frontend.frontend.to_string()), Cell::Mark(mark, word.to_owned())];
        first.into_iter().chain(texts).collect()
    }))
}

fn rejections(report: &Report, query: &Query) -> Table {
    let is_meant = |key: &ObjectKey| query.has(&key.to_string());
    let listed: Vec<_> =
        report.common.rejections.iter().filter(|one| is_meant(&one.object.key)).collect();
    let omitted = if query.import.is_empty() { report.rejections_omitted } else { 0 };
    let columns = &["Object", "Reason", "Why"];
    let table = Table::new("Rejected", columns, "Nothing is rejected.", &listed, |one| {
        vec![
            Cell::Text(one.object.to_string()),
            Cell::Mark(Mark::Bad, one.reason.to_string()),
            Cell::Text(one.message.clone()),
        ]
    });
    table.without(omitted)
}

fn ejections(report: &Report, query: &Query) -> Table {
    let listed = report.ejections.iter().filter(|one| query.has(&one.import.to_string()));
    let mut listed: Vec<_> = listed.collect();
    listed.sort_by_key(|one| !one.is_out());
    let columns = &["Import", "Backend"];
    let none = "Every backend answers, as far as passive health is on.";
    Table::new("Backends that do not answer", columns, none, &listed, |one| {
        let mark = if one.is_out() { Mark::Bad } else { Mark::Note };
        vec![Cell::Import(one.import.to_string()), Cell::Mark(mark, one.to_string())]
    })
}

fn ratio(part: usize, whole: usize) -> f64 {
    figure(part) / figure(whole)
}

#[expect(clippy::cast_precision_loss, reason = "a share for people")]
const fn figure(count: usize) -> f64 {
    count as f64
}

#[derive(Debug, Args)]
struct PageArgs {
    /// Serve a page for people at /page of these addresses too, to browsers on this node alone
    #[arg(long, env = "MCS_PAGE", value_parser = BoolishValueParser::new())]
    page: bool,
}

fn flags(command: Command) -> Command {
    PageArgs::augment_args(command)
}

fn route(matches: &ArgMatches) -> Option<Box<dyn Route>> {
    let is_on = PageArgs::from_arg_matches(matches).is_ok_and(|args| args.page);
    is_on.then(|| -> Box<dyn Route> { Box::new(PlotSamples::default()) })
}

impl Route for PlotSamples {
    fn answer(&self, agent: &AgentView<'_>, serves: Serves, uri: &Uri) -> Option<Answer> {
        page::answer(serves, uri, |query: &_| page_of(agent, self, query))
    }

    fn beside<'a>(&'a self, pins: &'a Pins) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async { self.follow(|| count(&pins.state())).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::control::report::fixture;

    #[test]
    fn the_worst_import_comes_first_and_a_name_finds_its_own() {
        let mut report = fixture::report();
        let import = |name: &str, state| {
            let text = serde_json::json!({"import": {"namespace": "shop", "name": name}, "state": state, "message": ""});
            Arc::new(serde_json::from_value::<ImportReport>(text).unwrap())
        };
        report.imports = Arc::new(vec![
            import("a", "Ready"),
            import("b", "LeftAlone"),
            import("a2", "Rejected"),
            import("c", "Partial"),
        ]);
        let names = |query: Query| {
            imports(&report, &query)
                .iter()
                .map(|one| one.import.name.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(Query::default()), ["a2", "c", "a", "b"]);
        let of = |import: &str| Query { import: import.to_owned(), ..Query::default() };
        assert_eq!(names(of("shop/a")), ["a", "a2"]);
        assert_eq!(names(of("shop/none")), [] as [&str; 0]);
        assert_eq!(counts(&report), "1 Ready, 1 Partial, 1 LeftAlone, 1 Rejected");
    }
}
