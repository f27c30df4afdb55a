//! The conditions of a ServiceExport of this cluster.

use std::{collections::BTreeSet, fmt::Write as _};

use mcs_kube::{
    reasons::{Coded as _, Reason},
    wish,
};

use super::{
    Audience, ClusterId, Condition,
    ConditionStatus::{False, True, Unknown},
    ConditionType::{self, Conflict as ConflictCondition, ImportConflict, Imported, Ready, Valid},
    Conflict, Export, ExportSource, NamespaceRules,
    label::{is_valid_key, is_valid_label, usable_annotations, usable_labels},
    well_known,
};

/// Whether peers can read the export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Publication {
    /// It is not written yet.
    Pending,
    /// It is in the mailbox.
    Published,
    /// The API server refused the write, with this message.
    Failed(String),
    /// It is in the mailbox, but a part of it is not as it should be, for this reason.
    Partly(String),
    /// It is in the mailbox, but the Lease is not renewed, for this reason.
    Silent(String),
    /// What is exported cannot be read in this cluster, for this reason.
    Unread(String),
}

/// The conditions of an export. `Conflict` is absent if the export is not valid.
pub fn export_conditions(
    export: &Export,
    namespaces: &NamespaceRules,
    publication: &Publication,
    conflicts: &[Conflict],
) -> Vec<Condition> {
    match problem(export, namespaces) {
        Some((reason, message)) => invalid(reason, message),
        None => vec![
            annotation_problem(export).unwrap_or_else(|| {
                Condition::new(Valid, True, Reason::Valid, valid_message(export))
            }),
            ready(&export.audience, publication),
            conflict(conflicts),
        ],
    }
}

/// Agents of importing clusters ignore these annotations. The Service is exported nevertheless.
fn annotation_problem(export: &Export) -> Option<Condition> {
    let annotations = &export.spec()?.annotations;
    let problems = wish::problems(|key| annotations.get(key).map(AsRef::as_ref));
    let message = bounded(problems.join("; "));
    (!problems.is_empty()).then(|| Condition::new(Valid, False, Reason::InvalidAnnotation, message))
}

fn invalid(reason: Reason, message: impl Into<String>) -> Vec<Condition> {
    vec![
        Condition::new(Valid, False, reason, message),
        Condition::new(Ready, False, Reason::Pending, "nothing is exported: see condition Valid"),
    ]
}

/// The conditions of an export with a name that no Service can have.
pub fn misnamed_conditions(name: &str) -> Vec<Condition> {
    let message = format!(
        "no Service can have the name {name}, which is no DNS label: delete the ServiceExport"
    );
    invalid(Reason::NoService, message)
}

/// The conditions of an export that is more than its namespace may export. `limits`: what that is.
pub fn over_limit_conditions(namespace: &str, limits: impl std::fmt::Display) -> Vec<Condition> {
    let message = format!(
        "namespace {namespace} exports more than {limits}, and the youngest exports are left out: delete others, let their \
         labels and annotations be shorter, or ask who runs the controller for more (export.perNamespace of its chart)"
    );
    invalid(Reason::OverLimit, message)
}

/// The conditions of an export whose audience has names that no cluster can have.
#[must_use]
pub fn of_audience(mut conditions: Vec<Condition>, misnamed: &[String]) -> Vec<Condition> {
    let valid = conditions.iter_mut().find(|one| one.condition_type == Valid);
    if let Some(valid) = valid.filter(|_| !misnamed.is_empty()) {
        let (key, names) = (well_known::AUDIENCE, misnamed.join(", "));
        let message =
            format!("annotation {key} names {names:?}, which no cluster can have as its id");
        *valid = if valid.status == True {
            Condition::new(Valid, False, Reason::InvalidAnnotation, bounded(message))
        } else {
            let message = bounded(format!("{}; {message}", valid.message));
            Condition { message, ..valid.clone() }
        };
    }
    conditions
}

/// The conditions of an export while a cluster that contributes to its import is unread: what that one disagrees about is
/// not known. `former`: the present conditions.
#[must_use]
pub fn while_unread(mut conditions: Vec<Condition>, former: &[Condition]) -> Vec<Condition> {
    let is_conflict = |one: &&Condition| one.condition_type == ConflictCondition;
    let former = former.iter().find(is_conflict);
    for now in conditions.iter_mut().filter(|one| is_conflict(&&**one)) {
        let has_conflict = now.status == True;
        match former {
            Some(former) if former.status == True || !has_conflict => now.clone_from(former),
            None if !has_conflict => {
                let message = "a cluster that exports the service was not read yet";
                *now = Condition::new(ConflictCondition, Unknown, Reason::Pending, message);
            }
            _ => {}
        }
    }
    conditions
}

/// The conditions of an export of a Service that stands for an import. Its slices are of other clusters, and are not
/// exported again.
#[must_use]
pub fn of_derived(mut conditions: Vec<Condition>) -> Vec<Condition> {
    for valid in
        conditions.iter_mut().filter(|one| (one.condition_type, one.status) == (Valid, True))
    {
        valid.message.push_str(
            ", but it stands for a ServiceImport: its endpoints are those of other clusters and are not exported. \
             Export the Service that has the pods",
        );
        valid.message = bounded(std::mem::take(&mut valid.message));
    }
    conditions
}

fn valid_message(export: &Export) -> String {
    let message = "the Service can be exported";
    let Some(spec) = export.spec() else { return message.to_owned() };
    let labels = spec.labels.iter().filter(|(key, value)| !is_valid_label(key, value));
    let annotations = spec.annotations.iter().filter(|(key, _)| !is_valid_key(key));
    let invalid: BTreeSet<&str> = labels.chain(annotations).map(|(key, _)| &**key).collect();
    let published = [usable_labels(&spec.labels), usable_annotations(&spec.annotations)];
    let all = [&spec.labels, &spec.annotations];
    let left_out = all.into_iter().zip(&published).flat_map(|(all, published)| {
        all.keys().map(|key| &**key).filter(|key| !published.contains_key(*key))
    });
    let is_of_room = |key: &&str| !invalid.contains(key) && !well_known::is_reserved(key);
    let beyond: BTreeSet<&str> = left_out.filter(is_of_room).collect();
    let mut message = message.to_owned();
    for (what, keys) in [
        ("what no API server takes as label or annotation", invalid),
        ("what is more than an import has room for", beyond),
    ] {
        if !keys.is_empty() {
            let keys: Vec<_> = keys.into_iter().collect();
            let _ = write!(message, ", but not {what}: {}", keys.join(", "));
        }
    }
    bounded(message)
}

/// Whether peers get the export.
pub fn is_exportable(export: &Export, namespaces: &NamespaceRules) -> bool {
    problem(export, namespaces).is_none()
}

/// The reason and message of `Valid` if it is false.
fn problem(export: &Export, namespaces: &NamespaceRules) -> Option<(Reason, String)> {
    let name = &export.name;
    if !namespaces.allows(name.namespace()) {
        let message = format!(
            "the controller does not export from namespace {}: the cluster's operator decides which ones",
            name.namespace()
        );
        return Some((Reason::NamespaceNotExportable, message));
    }
    match export.source {
        ExportSource::Service(_) => None,
        ExportSource::Missing => Some(no_service(name)),
        ExportSource::ExternalName => Some((
            Reason::InvalidServiceType,
            format!("Service {name} has type ExternalName, which has no endpoints to export"),
        )),
    }
}

fn no_service(name: &impl std::fmt::Display) -> (Reason, String) {
    let reason = Reason::NoService;
    (reason, format!("there is no Service {name}: {}", reason.advice()))
}

fn ready(audience: &Audience, publication: &Publication) -> Condition {
    let (status, reason, message) = match publication {
        Publication::Pending => {
            (Unknown, Reason::Pending, "the export is being published".to_owned())
        }
        Publication::Published => (True, Reason::Exported, readers(audience)),
        Publication::Failed(error) => {
            (False, Reason::Failed, format!("the export cannot be published: {error}"))
        }
        Publication::Partly(error) => {
            let what =
                "other clusters have the export without what is refused, or as it was before";
            (False, Reason::Failed, format!("{what}: {error}"))
        }
        Publication::Silent(why) => {
            let what = "other clusters have had no sign of life of this one for more than a minute, and keep what they have imported";
            (Unknown, Reason::NotRenewed, format!("{what}: {why}"))
        }
        Publication::Unread(why) => {
            let what = "changes here have not reached other clusters for more than a minute";
            (Unknown, Reason::NotRead, format!("{what}: {why}"))
        }
    };
    Condition::new(Ready, status, reason, bounded(message))
}

/// Whether the export is in the mailbox.
fn readers(audience: &Audience) -> String {
    match audience {
        Audience::All => "every cluster of the clusterset can read it".to_owned(),
        Audience::Only(clusters) if clusters.is_empty() => {
            "no other cluster imports it: its audience names none".to_owned()
        }
        Audience::Only(clusters) => {
            let clusters: Vec<_> = clusters.iter().map(ToString::to_string).collect();
            format!(
                "of the other clusters, those of its audience import it: {}",
                clusters.join(", ")
            )
        }
    }
}

/// The text before and after the clusters in the message of [`not_imported`].
const WHERE: [&str; 2] = [" is missing: ", ". Create it there"];

/// The condition of an export whose namespace these clusters lack. None if no cluster is known to lack it.
pub fn not_imported(namespace: &str, clusters: &[&ClusterId]) -> Option<Condition> {
    let named: Vec<_> = clusters.iter().map(ToString::to_string).collect();
    let [before, after] = WHERE;
    let message = format!(
        "it is not imported where namespace {namespace}{before}{}{after}, or name the clusters that the export is for in \
         annotation {}",
        named.join(", "),
        well_known::AUDIENCE
    );
    (!clusters.is_empty())
        .then(|| Condition::new(Imported, False, Reason::NamespaceMissing, bounded(message)))
}

/// Whether these conditions of an export say that a cluster lacks its namespace.
pub fn is_named_as_lacking(conditions: &[Condition], cluster: &ClusterId) -> bool {
    let [before, after] = WHERE;
    let said = conditions.iter().filter(|one| one.condition_type == Imported);
    let named = said.filter_map(|one| {
        let (_, named) = one.message.split_once(before)?;
        Some(named.split_once(after)?.0)
    });
    named.flat_map(|named| named.split(", ")).any(|named| named == cluster.as_str())
}

fn conflict(conflicts: &[Conflict]) -> Condition {
    let agree =
        || Condition::new(ConflictCondition, False, Reason::NoConflicts, "the clusters agree");
    disagreement(ConflictCondition, conflicts, LONGEST).unwrap_or_else(agree)
}

/// The condition `Conflict` of a ServiceImport. Most have none: every node of the cluster reads it.
pub(super) fn import_conflict(conflicts: &[Conflict]) -> Option<Condition> {
    disagreement(ImportConflict, conflicts, LONGEST_OF_IMPORT)
}

/// The reasons of all conflicts with commas between, as the API allows. The message begins with what they cost.
fn disagreement(
    condition_type: ConditionType,
    conflicts: &[Conflict],
    longest: usize,
) -> Option<Condition> {
    let reasons: Vec<_> = conflicts.iter().map(|conflict| conflict.reason.to_string()).collect();
    let losses = conflicts.iter().flat_map(|conflict| &conflict.losses).map(ToString::to_string);
    let messages: Vec<_> = losses.chain(conflicts.iter().map(ToString::to_string)).collect();
    let message = cut(messages.join(". "), longest);
    (!conflicts.is_empty())
        .then(|| Condition::new(condition_type, True, reasons.join(","), message))
}

/// The API allows messages of this many characters. Labels can be longer.
const LONGEST: usize = 32_768;
/// Every node of the cluster reads imports, so their messages are shorter.
const LONGEST_OF_IMPORT: usize = 1024;

pub(crate) fn bounded(message: String) -> String {
    cut(message, LONGEST)
}

/// Cuts a message to the length for imports.
pub(crate) fn in_import(message: String) -> String {
    cut(message, LONGEST_OF_IMPORT)
}

fn cut(mut message: String, longest: usize) -> String {
    if message.len() > longest {
        message.truncate(message.floor_char_boundary(longest - 3));
        message.push_str("...");
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::clusterset::{
        ServiceSpec,
        fixture::{cluster, export, map, name, port, spec},
        merge,
    };

    /// `type=status/reason` of each condition.
    fn told(export: &Export, publication: &Publication, conflicts: &[Conflict]) -> Vec<String> {
        let rules = NamespaceRules::default();
        let conditions = export_conditions(export, &rules, publication, conflicts);
        assert_eq!(is_exportable(export, &rules), conditions.len() > 2);
        let told =
            |one: &Condition| format!("{}={}/{}", one.condition_type, one.status, one.reason);
        conditions.iter().map(told).collect()
    }

    #[test]
    fn an_export_is_valid_published_and_without_conflict() {
        let export = export("c1", 1, spec());
        for (publication, ready) in [
            (Publication::Published, "Ready=True/Exported"),
            (Publication::Pending, "Ready=Unknown/Pending"),
            (Publication::Failed("403".to_owned()), "Ready=False/Failed"),
            (Publication::Partly("403".to_owned()), "Ready=False/Failed"),
            (Publication::Silent("403".to_owned()), "Ready=Unknown/NotRenewed"),
        ] {
            let expected = ["Valid=True/Valid", ready, "Conflict=False/NoConflicts"];
            assert_eq!(told(&export, &publication, &[]), expected);
        }
    }

    #[test]
    fn an_export_says_which_clusters_get_it() {
        let mut export = export("c1", 1, spec());
        let mut message = |audience| {
            export.audience = audience;
            let rules = NamespaceRules::default();
            export_conditions(&export, &rules, &Publication::Published, &[])[1].message.clone()
        };
        assert_eq!(message(Audience::All), "every cluster of the clusterset can read it");
        let only = |ids: &[&str]| Audience::Only(ids.iter().map(|id| cluster(id)).collect());
        assert!(message(only(&["c3", "c2"])).ends_with(": c2, c3"));
        assert!(message(only(&[])).contains("no other cluster"));
    }

    #[test]
    fn an_export_says_which_clusters_lack_its_namespace() {
        assert_eq!(not_imported("shop", &[]), None);
        let ids = [cluster("c2"), cluster("c3")];
        let told = not_imported("shop", &ids.each_ref()).expect("a condition");
        let expected = (Imported, False, "NamespaceMissing");
        assert_eq!((told.condition_type, told.status, &*told.reason), expected);
        assert!(told.message.contains("namespace shop is missing: c2, c3."), "{}", told.message);
        let named = |id: &str| is_named_as_lacking(std::slice::from_ref(&told), &cluster(id));
        assert_eq!(["c2", "c3", "c", "it", "shop"].map(named), [true, true, false, false, false]);
    }

    #[test]
    fn an_export_has_a_state_that_monitoring_counts() {
        use crate::core::clusterset::export_state;
        let mut export = export("c1", 1, spec());
        let state = |export: &Export, publication: Publication, lacking: &[&ClusterId]| {
            let rules = NamespaceRules::default();
            let mut conditions = export_conditions(export, &rules, &publication, &[]);
            conditions.extend(not_imported("shop", lacking));
            export_state(&conditions).name()
        };
        assert_eq!(state(&export, Publication::Published, &[]), "exported");
        assert_eq!(state(&export, Publication::Published, &[&cluster("c2")]), "not_imported");
        assert_eq!(state(&export, Publication::Pending, &[&cluster("c2")]), "unpublished");
        export.source = ExportSource::Missing;
        assert_eq!(state(&export, Publication::Published, &[]), "invalid");
    }

    #[test]
    fn an_export_that_is_not_valid_has_no_conflict_condition() {
        let mut export = export("c1", 1, spec());
        let mut check = |source: Option<ExportSource>, namespace: &str, reason: &str| {
            export.source = source.unwrap_or_else(|| export.source.clone());
            export.name = name(&format!("{namespace}/web"));
            let expected = [format!("Valid=False/{reason}"), "Ready=False/Pending".to_owned()];
            assert_eq!(told(&export, &Publication::Published, &[]), expected);
        };
        check(None, "kube-system", "NamespaceNotExportable");
        check(Some(ExportSource::Missing), "shop", "NoService");
        check(Some(ExportSource::ExternalName), "shop", "InvalidServiceType");
    }

    #[test]
    fn an_export_says_which_annotations_agents_ignore() {
        let with = |pairs: &[(&str, &str)]| {
            let export = export("c1", 1, ServiceSpec { annotations: map(pairs), ..spec() });
            let rules = NamespaceRules::default();
            assert!(is_exportable(&export, &rules));
            let [valid, ready, _] =
                export_conditions(&export, &rules, &Publication::Published, &[])
                    .try_into()
                    .unwrap();
            assert_eq!(ready.status, True);
            (valid.status, valid.reason, valid.message)
        };
        let spill = wish::SPILL;
        assert_eq!(with(&[(spill, "70%"), (wish::PASSIVE_HEALTH, "on")]).0, True);
        let (status, reason, message) = with(&[(spill, "70"), (wish::PASSIVE_HEALTH, "yes")]);
        assert_eq!((status, &*reason), (False, "InvalidAnnotation"));
        assert!(message.contains(spill) && message.contains(wish::PASSIVE_HEALTH), "{message}");
    }

    #[test]
    fn an_export_says_which_names_of_its_audience_no_cluster_can_have() {
        let rules = NamespaceRules::default();
        let valid = |source: ExportSource, misnamed: &[&str]| {
            let export = Export { source, ..export("c1", 1, spec()) };
            let plain = export_conditions(&export, &rules, &Publication::Published, &[]);
            let misnamed: Vec<_> = misnamed.iter().map(|one| (*one).to_owned()).collect();
            let found = of_audience(plain.clone(), &misnamed);
            assert_eq!(found[1..], plain[1..]);
            (found[0].status, found[0].reason.clone(), found[0].message.contains("C3"))
        };
        let said = |status, reason: &str, is_named| (status, reason.to_owned(), is_named);
        let service = || ExportSource::Service(spec());
        assert_eq!(valid(service(), &[]), said(True, "Valid", false));
        assert_eq!(valid(service(), &["C3"]), said(False, "InvalidAnnotation", true));
        assert_eq!(valid(ExportSource::Missing, &["C3"]), said(False, "NoService", true));
    }

    #[test]
    fn an_export_says_which_labels_and_annotations_are_left_out() {
        let valid = |spec| valid_message(&export("c1", 1, spec));
        assert_eq!(valid(spec()), "the Service can be exported");
        let mut given = spec();
        given.labels = map(&[("a b", "c"), ("team", "shop")]);
        given.annotations = map(&[("large", &"x".repeat(200 * 1024)), ("small", "x")]);
        let message = valid(given);
        assert!(message.contains("takes as label or annotation: a b, but"), "{message}");
        assert!(message.ends_with("has room for: large"), "{message}");
        let mut given = spec();
        let keys = (0..1000).map(|key| (format!("{key} {}", "x".repeat(60)).into(), "v".into()));
        given.labels = keys.collect();
        assert_eq!(valid(given).len(), 32_768);
    }

    #[test]
    fn an_export_of_a_derived_service_says_that_it_leads_nowhere() {
        let rules = NamespaceRules::default();
        let export = export("c1", 1, spec());
        let plain = export_conditions(&export, &rules, &Publication::Published, &[]);
        let told = of_derived(plain.clone());
        assert!(told[0].message.contains("stands for a ServiceImport"), "{}", told[0].message);
        assert_eq!(told[1..], plain[1..]);
    }

    #[test]
    fn all_reasons_of_conflicts_are_joined() {
        let mut other = spec();
        other.ports = vec![port("http", 81)];
        other.labels = map(&[("text", &"ä".repeat(20_000))]);
        let mut oldest = spec();
        oldest.labels = map(&[("text", &"ö".repeat(20_000))]);
        let exports = [export("c1", 1, oldest), export("c2", 2, other)];
        let merged = merge(&exports, None, &[]).expect("a merge");
        let told = told(&exports[0], &Publication::Published, &merged.conflicts);
        assert_eq!(told[2], "Conflict=True/PortConflict,LabelsConflict");
        let message = &conflict(&merged.conflicts).message;
        assert!(message.len() <= 32_768 && message.ends_with("..."), "{}", message.len());
    }
}
