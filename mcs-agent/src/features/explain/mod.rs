//! Explains why a name or an address is served, or not: by the rules with a recorder on that import, by the maps, by the
//! hooks that run for a client, and by a probe. It changes nothing.

mod cli;
mod client;
mod dns;
mod fates;
mod frontends;
mod judge;
mod objects;
mod probe;
mod rules;
mod target;
mod tree;

use std::{
    collections::BTreeSet,
    fmt::Display,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use clap::{Args as _, Command, FromArgMatches as _};
use mcs_kube::{
    program::finding::Finding,
    reasons::{Code, Severity},
};
use serde::Serialize;

pub(crate) use self::{client::ClientOptions, target::Target};
use self::{
    client::ClientView,
    dns::DnsView,
    fates::PortFate,
    frontends::{FrontendView, some},
    judge::{Judge, Knowledge},
    objects::Objects,
    probe::ProbeView,
    rules::{ExplainedSlice, Explanation},
    target::What,
};
use crate::core::{
    control::{self, Report, SocketLb, age},
    feature::{Definition, Verb},
    kernel::{
        dataplane::SignOfLife,
        loader::{Pins, is_held},
    },
    model::{
        Backend, DesiredState, Frontend, FrontendId, ImportReport, ImportState, NodeContext,
        NodeFacts, ObjectKey, Sections, Slots,
    },
    tables::{self, MapView},
};

/// The command in the list of features.
pub const FEATURE: Definition = Definition {
    verbs: &[Verb {
        command: || cli::ExplainArgs::augment_args(Command::new("explain")),
        run: |features, matches| {
            Ok(cli::run(&cli::ExplainArgs::from_arg_matches(matches)?, features))
        },
    }],
    ..Definition::named("explain")
};

/// A question.
pub(crate) struct Question {
    /// What it is about.
    pub(crate) target: Target,
    /// The client from whose point of view it is explained.
    pub(crate) client: ClientOptions,
    /// Whether to connect.
    pub(crate) probes: bool,
    /// The features of the agent.
    pub(crate) features: &'static [Definition],
    /// The DNS server to ask for the name where that of the client's process is not known.
    pub(crate) dns_server: Option<IpAddr>,
}

/// What an agent has left.
#[derive(Debug)]
pub(crate) struct KernelAndReport {
    /// The pinned maps.
    pub(crate) maps: MapView,
    /// The status file.
    pub(crate) report: Option<Report>,
    /// Whether an agent before the latest one wrote it.
    pub(crate) is_former: bool,
}

/// The most problems of the agent with its source in a finding.
const PROBLEMS: usize = 3;
/// How many imports that claim one address are explained.
const CLAIMANTS: usize = 8;

/// What is explained. `explain -o json`: fields are added, never renamed.
#[derive(Debug, Serialize)]
pub(crate) struct Explained {
    /// As it was understood.
    target: String,
    /// Whether it is; null if that could not be found out.
    served: Option<bool>,
    /// What was found, the worst first.
    findings: Vec<Finding>,
    /// Where objects were read; absent if they were not, and the last report is used instead.
    source: Option<String>,
    /// The import that is asked about, or the imports that claim the address, the serving one first.
    imports: Vec<ImportView>,
    /// The frontends that are asked about.
    frontends: Vec<FrontendView>,
    /// What runs for the client.
    client: ClientView,
    /// What the probe found; absent without `--probe`.
    probe: Option<ProbeView>,
    /// What the name resolves to; absent if no DNS server was asked.
    dns: Option<DnsView>,
}

/// An import.
#[derive(Debug, Serialize)]
pub(super) struct ImportView {
    #[serde(flatten)]
    import: ObjectKey,
    /// Absent if there is no such import, or if that is not known, as `message` says.
    state: Option<ImportState>,
    /// Why.
    message: String,
    /// `spec.ips`.
    ips: Vec<String>,
    /// `spec.ports`: `http 80/TCP`.
    ports: Vec<String>,
    /// What features say of it in the report.
    #[serde(flatten)]
    sections: Sections,
    /// Its slices. The fates of their endpoints are those for the ports that are asked about.
    slices: Vec<ExplainedSlice>,
}

impl Explained {
    /// Explains it, as far as the maps, the report and the source can be read.
    pub(crate) fn read(pins: &Pins, question: &Question, left: &KernelAndReport) -> Self {
        let Question { target, client: options, probes, dns_server, features } = question;
        let (view, report) = (&left.maps, left.report.as_ref());
        let mut findings = about_agent(pins, left);
        let known: BTreeSet<ObjectKey> = match target.what {
            What::Import(_) => BTreeSet::new(),
            What::Vip(ip) => view
                .frontends
                .iter()
                .filter(|(id, _)| id.ip == ip)
                .map(|(_, one)| one.import.clone())
                .collect(),
        };
        let known: Vec<_> = known.into_iter().collect();
        let objects = report
            .and_then(|report| report.reads.as_ref())
            .map(|reads| Objects::read(features, reads, &target.what, &known));
        let (objects, unread) = match objects {
            Some(Ok(objects)) => (Some(objects), None),
            Some(Err(error)) => (None, Some(format!("{error:#}{}", of_when(report)))),
            None => (None, Some("no report of an agent says where it reads".to_owned())),
        };
        findings.extend(unread.map(|why| Finding::new(Code::SourceUnread, why)));
        let mut explained = match (&objects, report) {
            (Some(objects), _) => by_rules(objects, left, features),
            (None, report) => by_report(target, report, &known, view),
        };
        put_first(&mut explained, target);
        let frontends = frontends::compare(pins, target, &explained, view, objects.is_some());
        let known = match (&objects, report) {
            (Some(_), _) => Knowledge::Rules,
            // An agent that has read nothing lists nothing.
            (None, Some(report)) if report.synced => Knowledge::Report,
            (None, _) => Knowledge::Maps,
        };
        let imports: Vec<_> = match (&objects, report) {
            (Some(objects), _) => objects.imports(),
            (None, Some(report)) => report.imports.iter().map(|one| one.import.clone()).collect(),
            (None, None) => Vec::new(),
        };
        let judge =
            Judge { target, frontends: &frontends, maps: view, report, known, imports: &imports };
        findings.extend(judge.judge(&mut explained));
        let client = ClientView::read(pins, report, options, &mut findings);
        if let (Some(first), Some(report)) = (&client.translates_first, report) {
            let backends = frontends.iter().flat_map(|frontend| &frontend.backends);
            let addresses = backends.map(|backend| backend.address);
            findings.extend(untranslated(first, &report.common.node, addresses));
        }
        let own_server = || options.process(client.cgroup.as_deref()).and_then(dns::server_of);
        let server = dns::server_to_ask(own_server, *dns_server, target.is_dns_name);
        let dns = server
            .zip(explained.first())
            .map(|(server, (import, one))| DnsView::ask(server, import, &one.ips, &mut findings));
        let probe = probes.then(|| ProbeView::run(&frontends, &client, options, &mut findings));
        findings.sort_by_key(|finding| finding.severity);
        findings.dedup();
        Self {
            target: target.to_string(),
            served: verdict(findings.iter().map(|finding| finding.severity)),
            findings,
            source: objects.map(|objects| objects.source),
            imports: explained
                .into_iter()
                .map(|(key, one)| ImportView::of(key, one, target, known))
                .collect(),
            frontends,
            client,
            probe,
            dns,
        }
    }

    /// Whether the agent may be about to write the missing entries.
    pub(crate) fn may_lag(&self) -> bool {
        let has = |code: Code| self.findings.iter().any(|finding| finding.is(code));
        (has(Code::NotWritten) || has(Code::StaleBackend)) && !has(Code::AgentDown)
    }

    /// 0: it is served. 1: something is wrong. 3: something could not be found out.
    pub(crate) fn exit_status(&self) -> u8 {
        self.findings.first().map_or(0, |worst| worst.severity.exit_status())
    }

    /// The tree, with lines of at most `width` columns.
    pub(crate) fn tree(&self, width: usize, all: bool, features: &[Definition]) -> String {
        tree::of(self, width, all, features)
    }
}

type ExplainedImports = Vec<(ObjectKey, Explanation)>;

/// Backends that a program of others may have to translate, which runs before ours.
fn untranslated(
    first: &str,
    facts: &NodeFacts,
    backends: impl Iterator<Item = SocketAddr>,
) -> Option<Finding> {
    let services: Vec<_> = backends.filter(|backend| facts.is_service(backend.ip())).collect();
    let what = format!("{first} runs before ours, and these are Services: {}", some(&services));
    (!services.is_empty()).then(|| Finding::new(Code::UntranslatedBackend, what))
}

/// Whether it is served, by what was found.
fn verdict(found: impl Iterator<Item = Severity>) -> Option<bool> {
    match found.min().unwrap_or(Severity::Note) {
        Severity::Wrong => Some(false),
        Severity::Unknown => None,
        Severity::Note => Some(true),
    }
}

/// How old what the report says is.
fn of_when(report: Option<&Report>) -> String {
    let Some(report) = report else { return String::new() };
    let lost = control::unfollowed(&report.common.source).map(|lost| format!(": {lost}"));
    format!(
        "; the last report is {} old{}",
        age(report.common.agent.updated),
        lost.unwrap_or_default()
    )
}

/// Whether an agent keeps the maps up to date.
fn about_agent(pins: &Pins, left: &KernelAndReport) -> Vec<Finding> {
    let mut findings = Vec::new();
    let report = left.report.as_ref();
    let runs = is_held(pins.root()).unwrap_or(false);
    let alive = SignOfLife::read(&pins.alive()).ok();
    if !runs {
        let since = report
            .map(|report| format!("; its last report is {} old", age(report.common.agent.updated)));
        let what =
            format!("no agent runs on {}{}", pins.root().display(), since.unwrap_or_default());
        findings.push(Finding::new(Code::AgentDown, what));
    }
    if alive.is_some_and(|alive| alive.release_in.is_some_and(|left| left.is_zero())) {
        let what =
            "the programs leave every ClusterSetIP alone, since no agent gives a sign of life";
        findings.push(Finding::new(Code::Released, what));
    }
    match report {
        None => findings.push(Finding::new(Code::NoReport, "there is no report of an agent")),
        Some(report) => {
            let problems = report.common.source.problems.iter().take(PROBLEMS);
            let problems = problems.map(|one| format!("; {}: {}", one.place, one.message));
            let behind = [
                (runs && left.is_former, "the agent has not reported yet"),
                (!report.synced, "the agent has not read its source"),
                (report.outdated, "the programs of the agent are not attached yet"),
            ];
            if let Some((_, what)) = behind.into_iter().find(|(is_so, _)| *is_so) {
                let what = format!("{what}{}", problems.collect::<String>());
                findings.push(Finding::new(Code::AgentBehind, what));
            }
            // An agent that has just started prepares its maps first.
            let stuck = alive.filter(|_| runs && !left.is_former).and_then(SignOfLife::missed);
            findings.extend(stuck.map(|what| Finding::new(Code::AgentStuck, what)));
        }
    }
    findings
}

/// What the rules make of the imports, with the facts about the node that the agent has.
fn by_rules(
    objects: &Objects,
    left: &KernelAndReport,
    features: &[Definition],
) -> ExplainedImports {
    let report = left.report.as_ref();
    let node = NodeContext {
        facts: report.map(|report| report.common.node.clone()).unwrap_or_default(),
        node_name: report.and_then(|report| report.node_name.clone()),
        vip_cidrs: report.map(|report| report.vip_cidrs.clone()).unwrap_or_default(),
        node_addresses: control::node_addresses().unwrap_or_default(),
        ejections: report.into_iter().flat_map(|report| &report.ejections).collect(),
        ..NodeContext::default()
    };
    let in_force = in_force(&left.maps, report);
    let keys = objects.keys.iter().take(CLAIMANTS);
    let explain =
        |key: &ObjectKey| rules::explain(&objects.snapshot, &node, &in_force, key, features);
    keys.map(|key| (key.clone(), explain(key))).collect()
}

/// What the report and the maps say of the imports.
fn by_report(
    target: &Target,
    report: Option<&Report>,
    known: &[ObjectKey],
    view: &MapView,
) -> ExplainedImports {
    let keys = match &target.what {
        What::Import(key) => std::slice::from_ref(key),
        What::Vip(_) => known,
    };
    let explain = |key: &ObjectKey| {
        let reported = report.into_iter().flat_map(|report| report.imports.iter());
        let has = |frontend: &&tables::FrontendView| frontend.import == *key;
        let frontends: Vec<_> = view.frontends.values().filter(has).map(wanted).collect();
        let served = (!frontends.is_empty()).then(|| ImportReport {
            import: key.clone(),
            state: ImportState::Ready,
            message: String::new(),
            left_alone: None,
            tiers: None,
            sections: Sections::default(),
        });
        let rejections = report.into_iter().flat_map(|report| report.common.rejections.iter());
        let ips: BTreeSet<IpAddr> = frontends.iter().map(|(id, _)| id.ip).collect();
        Explanation {
            report: reported
                .filter(|one| one.import == *key)
                .map(|one| (**one).clone())
                .next()
                .or(served),
            rejections: rejections.filter(|one| one.object.key == *key).cloned().collect(),
            ips: ips.iter().map(ToString::to_string).collect(),
            ports: Vec::new(),
            frontends,
            slices: Vec::new(),
            fallbacks: Vec::new(),
        }
    };
    keys.iter().take(CLAIMANTS).map(|key| (key.clone(), explain(key))).collect()
}

/// What the maps hold and the agent has reported, for the rules.
fn in_force(view: &MapView, report: Option<&Report>) -> DesiredState {
    DesiredState {
        vips: view.vips.clone(),
        frontends: view.frontends.values().map(wanted).collect(),
        imports: report.map(|report| Arc::clone(&report.imports)).unwrap_or_default(),
        ..DesiredState::default()
    }
}

fn wanted(frontend: &tables::FrontendView) -> (FrontendId, Frontend) {
    let backends = |list: &[tables::BackendView]| {
        let backend = |one: &tables::BackendView| Backend {
            address: one.address,
            cluster: one.cluster.as_str().into(),
        };
        list.iter().map(backend).collect()
    };
    let value = Frontend {
        affinity_seconds: frontend.affinity_seconds,
        slots: Slots::new(frontend.backends.iter().map(|backend| backend.slots)),
        also_serving: backends(&frontend.kept),
        ..Frontend::plain(frontend.import.clone(), backends(&frontend.backends))
    };
    (frontend.frontend, value)
}

/// Moves the import that holds a frontend that is asked about to the front.
fn put_first(explained: &mut ExplainedImports, target: &Target) {
    let rank = |one: &Explanation| {
        let holds = one.frontends.iter().any(|(id, _)| target.has(id));
        (!holds, one.frontends.is_empty())
    };
    explained.sort_by_key(|(_, one)| rank(one));
}

impl ImportView {
    fn of(import: ObjectKey, explanation: Explanation, target: &Target, known: Knowledge) -> Self {
        let Explanation { report, ips, ports, mut slices, .. } = explanation;
        let nobody = || "neither the source nor a report of the agent says".to_owned();
        let sections = report.as_ref().map(|report| report.sections.clone()).unwrap_or_default();
        let (state, message) = report.map(|report| (report.state, report.message)).unzip();
        let named =
            |name: &str| if name.is_empty() { "unnamed".to_owned() } else { name.to_owned() };
        let asked: BTreeSet<String> = ports
            .iter()
            .filter(|port| target.port.is_none_or(|asked| i32::from(asked) == port.port))
            .map(|port| port.name.clone())
            .collect();
        let is_asked = |one: &PortFate| one.port.as_ref().is_none_or(|port| asked.contains(port));
        for endpoint in slices.iter_mut().flat_map(|slice| &mut slice.endpoints) {
            endpoint.fates.retain(is_asked);
        }
        Self {
            import,
            state,
            message: message
                .or_else(|| (known == Knowledge::Maps).then(nobody))
                .unwrap_or_default(),
            ips,
            ports: ports
                .iter()
                .map(|port| {
                    let protocol = port.protocol.as_deref().unwrap_or("TCP");
                    format!("{} {}/{protocol}", named(&port.name), port.port)
                })
                .collect(),
            sections,
            slices,
        }
    }
}

/// Whether the hooks skip clients in other network namespaces than the agent's.
fn hooks_only_host(report: Option<&Report>) -> bool {
    report.is_some_and(|report| report.socket_lb == SocketLb::Host)
}

/// `a, b and 3 more`.
fn first(all: &[impl Display], most: usize) -> String {
    let more = all.len().saturating_sub(most);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    list(all.iter().take(most)) + &more
}

/// `a, b, c`.
fn list(all: impl IntoIterator<Item: Display>) -> String {
    all.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::control::report_fixture;

    #[test]
    fn a_service_as_a_backend_is_told_of() {
        let facts = NodeFacts {
            service_ranges: Some(["10.96.0.0/16".parse().unwrap()].into()),
            ..NodeFacts::default()
        };
        let told = |backends: &[&str]| {
            let backends = backends.iter().map(|backend| backend.parse().unwrap());
            let found = untranslated("program 7", &facts, backends)?;
            assert_eq!(found.code, "untranslated-backend");
            Some(found.message)
        };
        assert_eq!(told(&["10.1.0.1:80"]), None);
        let said = told(&["10.1.0.1:80", "10.96.0.1:80"]).unwrap();
        assert!(said.ends_with("Services: 10.96.0.1:80"), "{said}");
    }

    #[test]
    fn only_what_is_known_is_served() {
        let (wrong, unknown, note) = (Severity::Wrong, Severity::Unknown, Severity::Note);
        for (found, expected) in [
            (&[][..], Some(true)),
            (&[note], Some(true)),
            (&[note, unknown], None),
            (&[unknown, wrong], Some(false)),
        ] {
            assert_eq!(verdict(found.iter().copied()), expected, "{found:?}");
        }
    }

    #[test]
    fn an_import_that_nobody_knows_is_not_called_absent() {
        let target: Target = "shop/typo".parse().unwrap();
        let maps = MapView::default();
        let view = |known| {
            let mut all = by_report(&target, None, &[], &maps);
            let (key, explanation) = all.pop().unwrap();
            ImportView::of(key, explanation, &target, known).message
        };
        assert!(view(Knowledge::Maps).starts_with("neither the source nor a report"));
        assert_eq!(view(Knowledge::Report), "");
    }

    #[test]
    fn a_report_that_stands_in_for_the_source_says_its_age() {
        assert_eq!(of_when(None), "");
        assert!(of_when(Some(&report_fixture())).starts_with("; the last report is "));
    }
}
