//! Follows each service from the ready pods of its source to the tables of the agents, and finds the first link that differs from
//! the one before. It knows no causes: a difference has the last refusal that anybody has told, or none.

#[cfg(test)]
mod drawn;
mod facts;
pub(super) mod gather;
mod importing;
mod pods;
mod seen;
mod source;
mod tables;
#[cfg(test)]
pub(super) mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use anyhow::{bail, ensure};
use mcs_kube::{ObjectKey, reasons::ClusterCheck};
use serde::Serialize;

pub(super) use self::facts::{Facts, Table, Unread, What};
use self::{
    facts::{End, View},
    source::Offer,
};
use super::{Unknown, Warning, listed};

/// The links, in their order: each is compared with the one before.
pub(super) const LINKS: [ClusterCheck; 6] = [
    ClusterCheck::Endpoints,
    ClusterCheck::Exports,
    ClusterCheck::Mailbox,
    ClusterCheck::Imports,
    ClusterCheck::Slices,
    ClusterCheck::Tables,
];

/// A link that differs from the one before. Part of `check -o json`: fields are added, never renamed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Difference {
    /// The cluster that has the link.
    pub(super) cluster: String,
    #[serde(skip)]
    pub(super) check: ClusterCheck,
    /// `NAMESPACE/NAME`.
    pub(super) service: String,
    /// The cluster that exports it, if the link is of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) port: Option<String>,
    /// The node whose agent has the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<String>,
    /// The link before, and this one.
    pub(super) what: String,
    /// The last refusal that anybody has told; null: nobody has.
    pub(super) refusal: Option<String>,
    /// It may be on purpose.
    #[serde(skip)]
    pub(super) is_doubt: bool,
}

impl Difference {
    fn new(view: &View<'_>, check: ClusterCheck, key: &ObjectKey, what: impl Into<String>) -> Self {
        Self {
            cluster: view.id.to_owned(),
            check,
            service: key.to_string(),
            source: None,
            port: None,
            node: None,
            what: what.into(),
            refusal: None,
            is_doubt: false,
        }
    }

    fn of(self, source: &str) -> Self {
        Self { source: Some(source.to_owned()), ..self }
    }

    fn told(self, refusal: Option<String>) -> Self {
        Self { refusal, ..self }
    }

    fn doubt(self) -> Self {
        Self { is_doubt: true, ..self }
    }

    /// What it is about. Its words can change from one reading to the next.
    fn subject(&self) -> (ClusterCheck, [Option<&str>; 5]) {
        let Self { cluster, check, service, source, port, node, .. } = self;
        let parts = [Some(cluster), Some(service), source.as_ref(), port.as_ref(), node.as_ref()];
        (*check, parts.map(|part| part.map(String::as_str)))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.service)?;
        if let Some(source) = self.source.as_ref().filter(|source| **source != self.cluster) {
            write!(f, " from {source}")?;
        }
        if let Some(node) = &self.node {
            write!(f, " on node {node}")?;
        }
        let what = &self.what;
        match &self.refusal {
            Some(refusal) if what.is_empty() => write!(f, ": {refusal}"),
            Some(refusal) => write!(f, ": {what}. Last refusal: {refusal}"),
            None => write!(f, ": {what}. Why is unknown: nobody has told a refusal"),
        }
    }
}

/// What a comparison of all links has found.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// The first link of each chain that differs.
    pub(super) differences: Vec<Difference>,
    /// The links that could not be read, by cluster, with the reason.
    pub(super) unread: BTreeSet<(String, ClusterCheck, Unread)>,
    /// How many links of a cluster were compared.
    pub(super) followed: BTreeMap<(String, ClusterCheck), usize>,
}

impl Compared {
    fn note(&mut self, view: &View<'_>, check: ClusterCheck) {
        *self.followed.entry((view.id.to_owned(), check)).or_default() += 1;
    }

    fn add(&mut self, difference: Difference) {
        self.differences.push(difference);
    }

    /// Notes why a link could not be read.
    fn known<'a, T>(
        &mut self,
        view: &View<'_>,
        check: ClusterCheck,
        read: &'a Result<T, Unread>,
    ) -> Option<&'a T> {
        let unread = |error: &Unread| (view.id.to_owned(), check, error.clone());
        read.as_ref().map_err(|error| self.unread.insert(unread(error))).ok()
    }

    /// Whether a difference was found since there were so many.
    fn has_more_than(&self, before: usize) -> bool {
        self.differences.len() > before
    }

    /// What is so in a later reading too: objects change, and the links follow within seconds.
    pub(super) fn persisting(self, mut later: Vec<Difference>) -> Self {
        let known: BTreeSet<_> = self.differences.iter().map(Difference::subject).collect();
        later.retain(|one| known.contains(&one.subject()));
        Self { differences: later, ..self }
    }

    /// What is said of a link of a cluster.
    pub(super) fn result(&self, cluster: &str, check: ClusterCheck) -> anyhow::Result<String> {
        let found = self.of(cluster, check);
        let services: BTreeSet<_> = found.iter().map(|one| (&one.service, &one.source)).collect();
        let followed = self.followed.get(&(cluster.to_owned(), check)).copied().unwrap_or_default();
        let link = link(check);
        let unread = self.unread.iter().filter(|(of, other, _)| of == cluster && *other == check);
        let unread: Vec<_> = unread.map(|(_, _, unread)| unread).collect();
        let is_wrong = unread.iter().any(|one| one.is_wrong);
        let unread = listed(&unread.iter().map(|one| one.why.clone()).collect::<Vec<_>>());
        if !found.is_empty() {
            let mut texts: Vec<_> =
                found.iter().map(|one| (one.is_doubt, one.to_string())).collect();
            texts.sort();
            texts.dedup();
            let texts: Vec<_> = texts.into_iter().map(|(_, text)| text).collect();
            let of = followed.max(services.len());
            let mut text = format!("{} of {of} {link}: {}", services.len(), listed(&texts));
            if !unread.is_empty() {
                text = format!("{text}. Not all could be read: {unread}");
            }
            ensure!(is_wrong || !found.iter().all(|one| one.is_doubt), Warning(text));
            bail!(text);
        }
        if !unread.is_empty() {
            ensure!(is_wrong, Unknown(unread));
            bail!(unread);
        }
        Ok(match followed {
            0 => format!("there are no {link}"),
            followed => format!("{followed} {link}, each as the link before it"),
        })
    }

    /// The differences of a link of a cluster.
    pub(super) fn of(&self, cluster: &str, check: ClusterCheck) -> Vec<Difference> {
        let found =
            self.differences.iter().filter(|one| one.cluster == cluster && one.check == check);
        found.cloned().collect()
    }
}

/// What a link has, in the plural.
const fn link(check: ClusterCheck) -> &'static str {
    match check {
        ClusterCheck::Endpoints => "exported Services",
        ClusterCheck::Exports => "ServiceExports",
        ClusterCheck::Mailbox => "services in the mailbox",
        ClusterCheck::Imports => "ServiceImports",
        ClusterCheck::Slices => "sets of imported slices",
        ClusterCheck::Tables => "imports in tables of agents",
        _ => "services",
    }
}

/// Compares each link with the one before.
pub(super) fn compare(all: &[Facts]) -> Compared {
    let mut compared = Compared::default();
    let views: Vec<_> = all.iter().map(View::of).collect();
    let offers: Vec<Vec<Offer>> =
        views.iter().map(|view| source::follow(view, &mut compared)).collect();
    for view in &views {
        importing::follow(view, &views, &offers, &mut compared);
    }
    compared
}

/// How two sets of endpoints differ. `None`: they do not.
fn unlike(
    before: &BTreeSet<End>,
    before_is: &str,
    here: &BTreeSet<End>,
    here_is: &str,
) -> Option<String> {
    let lacking: Vec<_> = before.difference(here).collect();
    let extra: Vec<_> = here.difference(before).collect();
    if lacking.is_empty() && extra.is_empty() {
        return None;
    }
    let named = |what: &str, ends: &[&End]| {
        ends.first().map(|(ip, port)| {
            let port = port.map(|port| format!(" port {port}")).unwrap_or_default();
            format!("; {} {what}, such as {ip}{port}", ends.len())
        })
    };
    let lacking = named("lack", &lacking).unwrap_or_default();
    let extra = named("are here alone", &extra).unwrap_or_default();
    let counts = format!("{} ready {before_is}, {} {here_is}", before.len(), here.len());
    Some(format!("{counts}{lacking}{extra}"))
}
