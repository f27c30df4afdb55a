//! The types that `mcs up` installs: those of the API where a cluster lacks them, and those of the chart, never backwards.

use std::{cmp::Ordering, collections::BTreeSet, time::Duration};

use anyhow::Context as _;
use mcs_controller::core::clusterset::well_known;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::chart::{Chart, ChartArgs};
use crate::{
    check::{self, API_TYPES, TypeNeeded},
    cluster::{Cluster, Kind, PROPERTIES},
    draft::Draft,
    fleet,
    kubeconfig::KubeconfigArg,
    tool::{output, tool},
    wait,
};

/// The time limit for an installed type to be served.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
/// The types of KEP-1645 and KEP-2149, by plural. about-api has no releases: this is a commit.
const SOURCES: [(&str, &str); 3] = [
    (
        "serviceimports",
        "https://raw.githubusercontent.com/kubernetes-sigs/mcs-api/v0.5.2/config/crd/multicluster.x-k8s.io_serviceimports.yaml",
    ),
    (
        "serviceexports",
        "https://raw.githubusercontent.com/kubernetes-sigs/mcs-api/v0.5.2/config/crd/multicluster.x-k8s.io_serviceexports.yaml",
    ),
    (
        "clusterproperties",
        "https://raw.githubusercontent.com/kubernetes-sigs/about-api/970300d6be14f7d5509f7cfdbc1a306f095bb666/config/crd/about.k8s.io_clusterproperties.yaml",
    ),
];
/// The types that the chart, the controller and CoreDNS need.
const NEEDED: [TypeNeeded; 4] = {
    let [exports, imports, of_dns] = API_TYPES;
    [exports, imports, of_dns, (PROPERTIES, "install the CRD of about-api")]
};
const DEFINITIONS: Kind =
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");

/// What becomes of the types of a cluster.
#[derive(Default)]
pub(super) struct Types {
    /// The types of the API that are not served, by plural and kind.
    missing: Vec<(&'static str, &'static str)>,
    /// The files with them.
    files: Vec<String>,
    /// The chart's types to apply.
    own: Vec<Value>,
    /// The kinds of the chart's types that are newer in the cluster, with their version if it is known.
    newer: Vec<(String, Option<String>)>,
}

/// What becomes of one type of the chart.
#[derive(Debug, PartialEq, Eq)]
enum Own {
    Apply,
    Keep,
    /// The one in the cluster is of a later chart, of this version if that is known.
    Newer(Option<String>),
}

impl Types {
    /// Looks at the types of a cluster. Changes nothing.
    ///
    /// # Errors
    /// The API server does not say whether it serves a type.
    pub(super) async fn missing(args: &ChartArgs, cluster: &Cluster) -> anyhow::Result<Self> {
        let served = fleet::each(NEEDED, async |(kind, advice)| {
            let served = cluster.is_served(kind).await;
            served.map(|served| (kind, served)).with_context(|| format!("{}: {advice}", kind.3))
        });
        let mut types = Self::default();
        for (kind, is_served) in fleet::all_of(served.await)? {
            if !is_served && !types.missing.contains(&(kind.3, kind.2)) {
                types.missing.push((kind.3, kind.2));
            }
        }
        types.files = files(&args.types, &types.missing);
        Ok(types)
    }

    /// Compares the chart's types with those of the cluster. `release`: the version of the release.
    pub(super) async fn compare(
        &mut self,
        chart: &Chart,
        cluster: &Cluster,
        release: Option<&str>,
    ) -> anyhow::Result<()> {
        let found = fleet::each(&chart.types, async |own: &Value| {
            let name = own["metadata"]["name"].as_str().unwrap_or_default();
            anyhow::Ok((own, cluster.get(DEFINITIONS, None, name).await?))
        });
        for (own, there) in fleet::all_of(found.await)? {
            match fate(there.as_ref(), own, &chart.version, release) {
                Own::Apply => self.own.push(own.clone()),
                Own::Keep => {}
                Own::Newer(version) => self.newer.push((kind(own), version)),
            }
        }
        Ok(())
    }

    pub(super) const fn are_served(&self) -> bool {
        self.missing.is_empty()
    }

    pub(super) const fn are_left(&self) -> bool {
        self.missing.is_empty() && self.own.is_empty()
    }

    pub(super) fn text(&self) -> String {
        let missing = self.missing.iter().map(|(_, kind)| (*kind).to_owned());
        let own: Vec<_> = missing.chain(self.own.iter().map(kind)).collect();
        let mut all = Vec::new();
        if !own.is_empty() {
            all.push(format!("apply {}", own.join(", ")));
        }
        let newer = self.newer.iter().map(|(kind, version)| match version {
            Some(version) => format!("{kind} ({version})"),
            None => kind.clone(),
        });
        let newer: Vec<_> = newer.collect();
        if !newer.is_empty() {
            let newer = newer.join(", ");
            all.push(format!("leave {newer}, which the cluster has of a later chart"));
        }
        if all.is_empty() { "left as they are".to_owned() } else { all.join("; ") }
    }

    /// Installs what is missing.
    pub(super) async fn install(
        &self,
        cluster: &Cluster,
        kubeconfig: &KubeconfigArg,
    ) -> anyhow::Result<()> {
        self.each_file(kubeconfig, &["apply", "--server-side"]).await?;
        if !self.own.is_empty() {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": self.own});
            let mut kubectl = tool("kubectl", "--context", kubeconfig)?;
            kubectl.args(["apply", "--server-side", "--force-conflicts", "--filename", "-"]);
            output(kubectl, list.to_string().as_bytes()).await?;
        }
        let served = async || {
            let served = check::serves(cluster, &NEEDED).await;
            Ok(served
                .map_err(|error| format!("the types are installed, and not served: {error:#}")))
        };
        wait::until(Instant::now() + SERVED_WITHIN, served).await
    }

    /// Prints the files that [`Types::install`] would apply.
    pub(super) async fn draft_files(
        &self,
        draft: &Draft,
        kubeconfig: &KubeconfigArg,
    ) -> anyhow::Result<()> {
        let verb = ["create", "--dry-run=client", "--output", "yaml"];
        for text in self.each_file(kubeconfig, &verb).await? {
            draft.text_of(&text);
        }
        Ok(())
    }

    /// The chart's types for a dry run. Those that are newer in the cluster are not among them.
    pub(super) fn of_chart<'a>(&self, chart: &'a Chart) -> impl Iterator<Item = &'a Value> {
        let newer: Vec<_> = self.newer.iter().map(|(kind, _)| kind.clone()).collect();
        chart.types.iter().filter(move |own| !newer.contains(&kind(own)))
    }

    /// kubectl with a verb and each of the files, one after the other. Returns its outputs.
    async fn each_file(
        &self,
        kubeconfig: &KubeconfigArg,
        verb: &[&str],
    ) -> anyhow::Result<Vec<Vec<u8>>> {
        let mut outputs = Vec::new();
        for file in &self.files {
            let mut kubectl = tool("kubectl", "--context", kubeconfig)?;
            kubectl.args(verb).args(["--filename", file]);
            outputs.push(output(kubectl, &[]).await?);
        }
        Ok(outputs)
    }
}

/// The files with these types: one for each, or all that are given.
fn files(given: &[String], missing: &[(&str, &str)]) -> Vec<String> {
    if missing.is_empty() || !given.is_empty() {
        return if missing.is_empty() { vec![] } else { given.to_vec() };
    }
    let is_missing = |plural: &str| missing.iter().any(|(one, _)| *one == plural);
    let sources = SOURCES.iter().filter(|(plural, _)| is_missing(plural));
    sources.map(|(_, file)| (*file).to_owned()).collect()
}

fn kind(definition: &Value) -> String {
    definition["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned()
}

/// `chart`: the version of the chart with this type. `release`: that of the release, if there is one.
fn fate(there: Option<&Value>, own: &Value, chart: &str, release: Option<&str>) -> Own {
    let Some(there) = there else { return Own::Apply };
    let has_more = !fields(there).is_subset(&fields(own));
    let applied = there["metadata"]["annotations"][well_known::SOFTWARE].as_str();
    if has(&there["spec"], &own["spec"]) && !has_more {
        // Without the version a later chart could not tell that it may take a field away.
        return if applied.is_some() { Own::Keep } else { Own::Apply };
    }
    let known = applied.into_iter().chain(release).max_by(|one, other| order(one, other));
    match known.map(|known| order(chart, known)) {
        Some(Ordering::Less) => Own::Newer(known.map(str::to_owned)),
        Some(Ordering::Greater) if applied.is_some() => Own::Apply,
        // Somebody else may have applied a later chart's type: a release does not say of which version its types are.
        _ if has_more => Own::Newer(None),
        _ => Own::Apply,
    }
}

/// Whether everything of `own` is there. The API server adds defaults.
fn has(there: &Value, own: &Value) -> bool {
    match (there, own) {
        (Value::Object(there), Value::Object(own)) => {
            own.iter().all(|(name, own)| there.get(name).is_some_and(|there| has(there, own)))
        }
        (Value::Array(there), Value::Array(own)) => {
            there.len() == own.len() && there.iter().zip(own).all(|(there, own)| has(there, own))
        }
        _ => there == own,
    }
}

/// The path of each field that a definition declares.
fn fields(definition: &Value) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
        let name = version["name"].as_str().unwrap_or_default();
        add_fields(name, &version["schema"]["openAPIV3Schema"], &mut all);
    }
    all
}

fn add_fields(path: &str, schema: &Value, all: &mut BTreeSet<String>) {
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        add_fields(&path, schema, all);
        all.insert(path);
    }
    for part in ["items", "additionalProperties"] {
        if schema[part].is_object() {
            add_fields(&format!("{path}[]"), &schema[part], all);
        }
    }
}

/// Compares two versions by their numbers. What follows a `-` does not count.
fn order(one: &str, other: &str) -> Ordering {
    let numbers = |text: &str| -> Vec<u64> {
        let text = text.split(['-', '+']).next().unwrap_or_default();
        text.trim_start_matches('v').split('.').map(|part| part.parse().unwrap_or(0)).collect()
    };
    numbers(one).cmp(&numbers(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A definition with these fields in its spec.
    fn definition(fields: &[&str]) -> Value {
        let fields: serde_json::Map<_, _> =
            fields.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
        let spec = json!({"type": "object", "properties": fields});
        let schema = json!({"openAPIV3Schema": {"properties": {"spec": spec}}});
        let versions = json!([{"name": "v1", "served": true, "schema": schema}]);
        json!({"spec": {"names": {"kind": "ClusterPeer"}, "versions": versions}})
    }

    #[test]
    fn types_do_not_go_backwards() {
        let (few, more) = (definition(&["a"]), definition(&["a", "b"]));
        let of = |version: &str, definition: &Value| {
            let mut there = definition.clone();
            there["metadata"]["annotations"] = json!({(well_known::SOFTWARE): version});
            there
        };
        let fate = |there: Option<&Value>, own, release| fate(there, own, "0.5.0", release);
        let newer = |version: &str| Own::Newer(Some(version.to_owned()));
        assert_eq!(fate(None, &few, None), Own::Apply);
        assert_eq!(fate(Some(&few), &more, None), Own::Apply);
        // Nobody has noted of which version the type is.
        for release in [None, Some("0.4.0"), Some("0.5.0")] {
            assert_eq!(fate(Some(&more), &few, release), Own::Newer(None), "{release:?}");
        }
        assert_eq!(fate(Some(&more), &few, Some("0.6.0")), newer("0.6.0"));
        // A later one can also have fewer fields, or other rules alone.
        assert_eq!(fate(Some(&of("0.10.0", &few)), &more, Some("0.4.0")), newer("0.10.0"));
        assert_eq!(fate(Some(&of("0.4.0", &few)), &more, Some("0.6.0")), newer("0.6.0"));
        assert_eq!(
            fate(Some(&of("0.4.0", &more)), &few, Some("0.4.0")),
            Own::Apply,
            "b is no more"
        );
        assert_eq!(fate(Some(&of("0.5.0", &more)), &few, None), Own::Newer(None));
        let mut stored = of("0.6.0", &more);
        stored["spec"]["conversion"] = json!({"strategy": "None"});
        assert_eq!(fate(Some(&stored), &more, None), Own::Keep, "the API server adds defaults");
    }

    #[test]
    fn newer_types_are_told_and_no_part_of_a_dry_run() {
        let own = |kind: &str| json!({"spec": {"names": {"kind": kind}}});
        let newer = vec![("ClusterPeer".to_owned(), Some("0.6.0".to_owned()))];
        let types = Types { own: vec![own("ExportRule")], newer, ..Types::default() };
        let expected =
            "apply ExportRule; leave ClusterPeer (0.6.0), which the cluster has of a later chart";
        assert_eq!(types.text(), expected);
        let chart = Chart::with_types(vec![own("ClusterPeer"), own("ExportRule")]);
        assert_eq!(types.of_chart(&chart).map(kind).collect::<Vec<_>>(), ["ExportRule"]);
    }

    #[test]
    fn the_types_of_the_chart_are_read() {
        let text = include_str!("../../../deploy/helm/mcs-controller/crds/clusterpeers.yaml");
        let all: Vec<Value> = serde_saphyr::from_multiple(&format!("---\n{text}")).unwrap();
        let own = all.iter().find(|one| one.is_object()).unwrap();
        assert_eq!(kind(own), "ClusterPeer");
        assert!(fields(own).contains("v1alpha1.spec.namespaces.allow"), "{:?}", fields(own));
        assert_eq!(fate(Some(own), own, "0.5.0", None), Own::Keep);
        let version = &own["metadata"]["annotations"][well_known::SOFTWARE];
        assert_eq!(
            version,
            env!("CARGO_PKG_VERSION"),
            "a test of the annotation that `mcs up` reads"
        );
    }

    #[test]
    fn versions_are_compared_by_numbers() {
        assert_eq!(order("0.10.0", "0.9.1"), Ordering::Greater);
        assert_eq!(order("v0.5.0-rc.1", "0.5.0"), Ordering::Equal);
        assert_eq!(order("0.4.1", "0.5.0"), Ordering::Less);
    }

    #[test]
    fn types_that_are_there_are_not_applied() {
        let [imports, _, properties] = SOURCES.map(|(_, file)| file.to_owned());
        let missing =
            [("serviceimports", "ServiceImport"), ("clusterproperties", "ClusterProperty")];
        assert_eq!(files(&[], &missing), [imports, properties]);
        assert_eq!(files(&["own.yaml".to_owned()], &missing), ["own.yaml"]);
        assert!(files(&["own.yaml".to_owned()], &[]).is_empty());
        assert!(
            SOURCES.iter().all(|(_, file)| !file.contains("/master/") && !file.contains("/main/"))
        );
    }
}
