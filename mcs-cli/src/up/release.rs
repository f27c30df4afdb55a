//! The release of a cluster: what it is, what becomes of it, and helm that does so.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use serde_json::Value;
use tokio::process::Command;

use super::{
    chart::Chart,
    pending::{self, Pending},
};
use crate::{
    agent_pod::{is_ready, obstacle},
    check,
    cluster::{Cluster, PODS},
    kubeconfig::KubeconfigArg,
    tool::{output, run, tool},
    wait::Waiting,
};

/// The release, and the namespace of the agents.
pub(super) const RELEASE: &str = "mcs";
pub(super) const NAMESPACE: &str = "mcs-system";
/// The time limit for the release's pods to be ready.
const READY_WITHIN: &str = "5m";
/// The pods of the release.
const PODS_OF_RELEASE: &str = "app.kubernetes.io/name in (mcs-agent,mcs-controller)";
/// The changed values of a plan that are shown.
const SHOWN: usize = 12;

/// The release as it is.
#[derive(Debug, PartialEq, Eq)]
struct PresentRelease {
    version: String,
    status: String,
}

/// What becomes of a release.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReleaseChange {
    Install { to: String, values: Vec<String> },
    Upgrade { from: String, to: String, why: String },
    Keep { version: String },
}

impl ReleaseChange {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Install { to, values } if values.is_empty() => format!("install {to}"),
            Self::Install { to, values } => format!("install {to} with {}", values.join(", ")),
            Self::Upgrade { from, to, why } => format!("{from} -> {to}; {why}"),
            Self::Keep { version } => format!("left as it is: {version}, with these values"),
        }
    }

    /// The version of a release that is there.
    pub(super) fn former(&self) -> Option<&str> {
        match self {
            Self::Install { .. } => None,
            Self::Upgrade { from, .. } => Some(from),
            Self::Keep { version } => Some(version),
        }
    }
}

/// A release, and what helm is to do with it.
pub(super) struct Release {
    /// What is set beside the values of an earlier release, as helm takes it.
    values: Vec<String>,
    pub(super) change: ReleaseChange,
    /// The record of a helm that is dead.
    dead: Option<Pending>,
}

impl Release {
    /// Compares the release of a cluster with what it would be. Changes nothing.
    ///
    /// # Errors
    /// A helm may work on it.
    pub(super) async fn plan(
        chart: &Chart,
        cluster: &Cluster,
        kubeconfig: &KubeconfigArg,
        values: Vec<String>,
        can_render: bool,
    ) -> anyhow::Result<Self> {
        let dead = pending::dead(cluster, kubeconfig, NAMESPACE, RELEASE).await?;
        let found = found(chart, kubeconfig).await?;
        let to = chart.version.clone();
        let upgrade = |from, why: &str| {
            let (to, why) = (chart.version.clone(), why.to_owned());
            ReleaseChange::Upgrade { from, to, why }
        };
        let change = match found {
            None => ReleaseChange::Install { to, values: values.clone() },
            Some(PresentRelease { version, .. }) if dead.is_some() => {
                upgrade(version, "its helm was interrupted")
            }
            Some(PresentRelease { version, status }) if status != "deployed" => {
                upgrade(version, &format!("the release is {status}"))
            }
            // helm renders no object of a type that the API server lacks.
            Some(PresentRelease { version, .. }) if !can_render => {
                upgrade(version, "values are compared when the types are there")
            }
            Some(PresentRelease { version, .. }) => {
                let now = Rendered::now(kubeconfig).await?;
                let then = Rendered::then(chart, kubeconfig, &values).await?;
                match now.differs(&then, version == to) {
                    Some(why) => upgrade(version, &why),
                    None => ReleaseChange::Keep { version },
                }
            }
        };
        Ok(Self { values, change, dead })
    }

    /// Installs the chart, or upgrades the release.
    pub(super) async fn install(
        &self,
        chart: &Chart,
        cluster: &Cluster,
        kubeconfig: &KubeconfigArg,
    ) -> anyhow::Result<()> {
        if let Some(dead) = &self.dead {
            // Somebody may have repaired the release since the plan, or a helm may work on it.
            let now = pending::dead(cluster, kubeconfig, NAMESPACE, RELEASE).await?;
            if now.is_some_and(|now| now.is_of(dead)) {
                dead.clear(cluster, NAMESPACE).await?;
            }
        }
        let mut helm = upgrade(chart, kubeconfig, &self.values)?;
        helm.args(["--install", "--create-namespace", "--wait", "--timeout", READY_WITHIN]);
        let id = &cluster.id;
        let mut waiting = Waiting::new(&format!("{id}: helm has made no pod of the release yet"));
        let look = async || {
            let pods = cluster.list_in(PODS, None, PODS_OF_RELEASE).await.ok()?;
            Some(format!("{id}: helm waits for pods of the release: {}", unready(&pods)?))
        };
        let Err(error) = waiting.watch(run(helm), look).await else { return Ok(()) };
        // The kubelet's messages about the agents' pods are the useful ones.
        match check::agents::on_every_node(cluster).await {
            Err(agents) => bail!("{error:#}; agents: {agents:#}"),
            Ok(_) => Err(error),
        }
    }

    /// The objects of the release, without hooks, which run at an uninstall.
    pub(super) async fn draft(
        &self,
        chart: &Chart,
        cluster: &Cluster,
        kubeconfig: &KubeconfigArg,
    ) -> anyhow::Result<Vec<u8>> {
        let mut helm = tool("helm", "--kube-context", kubeconfig)?;
        helm.args(["template", RELEASE, "--namespace", NAMESPACE]);
        chart.add_to(&mut helm);
        helm.args(["--no-hooks", "--dry-run=server", "--values", "-"]);
        // `helm template` does not ask the cluster.
        let version = cluster.client().await?.apiserver_version().await?;
        helm.args(["--kube-version", &version.git_version]);
        for value in &self.values {
            helm.args(["--set", value]);
        }
        let former = match self.change.former() {
            Some(_) => values(kubeconfig).await?,
            None => Value::Null,
        };
        let former = if former.is_null() { String::new() } else { former.to_string() };
        output(helm, former.as_bytes()).await
    }
}

/// How many of these pods are not ready, and why not. `None`: there is no pod.
fn unready(pods: &[Value]) -> Option<String> {
    let unready: Vec<_> = pods.iter().filter(|pod| !is_ready(pod)).collect();
    let (count, all) = (unready.len(), pods.len());
    // A pod that cannot start says more than one that has just begun.
    let obstacles: Vec<_> = unready.into_iter().map(obstacle).collect();
    let worst = obstacles.iter().find(|one| !one.ends_with("is not ready")).or(obstacles.first());
    match worst {
        _ if all == 0 => None,
        None => Some(format!("all {all} are ready")),
        Some(worst) => Some(format!("{count} of {all} are not ready; {worst}")),
    }
}

/// `helm upgrade` with the values of the former release and these.
fn upgrade(
    chart: &Chart,
    kubeconfig: &KubeconfigArg,
    values: &[String],
) -> anyhow::Result<Command> {
    let mut helm = tool("helm", "--kube-context", kubeconfig)?;
    // It ends its work, and marks its release, also if this program ends before.
    helm.kill_on_drop(false);
    helm.args(["upgrade", RELEASE, "--namespace", NAMESPACE, "--reset-then-reuse-values"]);
    chart.add_to(&mut helm);
    for value in values {
        helm.args(["--set", value]);
    }
    Ok(helm)
}

async fn found(
    chart: &Chart,
    kubeconfig: &KubeconfigArg,
) -> anyhow::Result<Option<PresentRelease>> {
    let mut list = tool("helm", "--kube-context", kubeconfig)?;
    list.args(["list", "--all", "--namespace", NAMESPACE, "--output", "json"]);
    let releases: Value = serde_json::from_slice(&output(list, &[]).await?)?;
    let releases = releases.as_array().into_iter().flatten();
    let release = releases.into_iter().find(|release| release["name"] == RELEASE);
    Ok(release.map(|release| {
        let text = |field: &str| release[field].as_str().unwrap_or_default().to_owned();
        PresentRelease { version: chart.version_of(&text("chart")), status: text("status") }
    }))
}

/// The values that somebody has given to the release.
async fn values(kubeconfig: &KubeconfigArg) -> anyhow::Result<Value> {
    let mut get = tool("helm", "--kube-context", kubeconfig)?;
    get.args(["get", "values", RELEASE, "--namespace", NAMESPACE, "--output", "json"]);
    Ok(serde_json::from_slice(&output(get, &[]).await?)?)
}

/// A release's values and objects.
struct Rendered {
    values: Value,
    objects: String,
}

impl Rendered {
    /// As they are.
    async fn now(kubeconfig: &KubeconfigArg) -> anyhow::Result<Self> {
        let mut get = tool("helm", "--kube-context", kubeconfig)?;
        get.args(["get", "manifest", RELEASE, "--namespace", NAMESPACE]);
        let objects = String::from_utf8_lossy(&output(get, &[]).await?).into_owned();
        Ok(Self { values: values(kubeconfig).await?, objects })
    }

    /// As an upgrade would make them.
    async fn then(
        chart: &Chart,
        kubeconfig: &KubeconfigArg,
        values: &[String],
    ) -> anyhow::Result<Self> {
        let mut helm = upgrade(chart, kubeconfig, values)?;
        helm.args(["--dry-run=server", "--output", "json"]);
        let mut release: Value = serde_json::from_slice(&output(helm, &[]).await?)
            .context("helm upgrade --dry-run prints no release")?;
        let objects = release["manifest"].as_str().map(str::to_owned);
        let objects = objects.context("helm upgrade --dry-run prints no manifest")?;
        Ok(Self { values: release["config"].take(), objects })
    }

    /// What an upgrade would change. `None`: nothing.
    fn differs(&self, then: &Self, is_same_version: bool) -> Option<String> {
        let changed = changed(&self.values, &then.values);
        let has_same_objects = self.objects.trim() == then.objects.trim();
        match (changed.len(), is_same_version && has_same_objects) {
            (0, true) => None,
            (0, false) if is_same_version => Some("the chart has other objects".to_owned()),
            (0, false) => Some("with the same values".to_owned()),
            (count, _) => {
                let shown = changed.into_iter().take(SHOWN).collect::<Vec<_>>().join(", ");
                let more = match count.saturating_sub(SHOWN) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                Some(format!("values {shown}{more}"))
            }
        }
    }
}

/// Each value that differs: `KEY BEFORE -> AFTER`.
fn changed(before: &Value, after: &Value) -> Vec<String> {
    let [before, after] = [before, after].map(|values| {
        let mut all = BTreeMap::new();
        flatten("", values, &mut all);
        all
    });
    let keys: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let text = |value: Option<&String>| value.map_or_else(|| "-".to_owned(), Clone::clone);
    let differs = keys.into_iter().filter(|key| before.get(*key) != after.get(*key));
    differs
        .map(|key| format!("{key} {} -> {}", text(before.get(key)), text(after.get(key))))
        .collect()
}

fn flatten(key: &str, value: &Value, all: &mut BTreeMap<String, String>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                flatten(&key, value, all);
            }
        }
        Value::String(text) => drop(all.insert(key.to_owned(), text.clone())),
        other => drop(all.insert(key.to_owned(), other.to_string())),
    }
}

/// Fails if a helm may work on the release: an uninstall would take it away from under that helm.
pub(super) async fn ensure_idle(
    cluster: &Cluster,
    kubeconfig: &KubeconfigArg,
) -> anyhow::Result<()> {
    pending::dead(cluster, kubeconfig, NAMESPACE, RELEASE).await.map(drop)
}

/// Uninstalls the release, if it is there.
pub(super) async fn uninstall(cluster: &Cluster, kubeconfig: &KubeconfigArg) -> anyhow::Result<()> {
    ensure_idle(cluster, kubeconfig).await?;
    let mut helm = tool("helm", "--kube-context", kubeconfig)?;
    helm.kill_on_drop(false);
    helm.args(["uninstall", RELEASE, "--namespace", NAMESPACE, "--ignore-not-found"]);
    helm.args(["--wait", "--timeout", READY_WITHIN]);
    let id = &cluster.id;
    let mut waiting =
        Waiting::new(&format!("{id}: helm takes the release away, and agents clean their nodes"));
    let look = async || {
        let pods = cluster.list_in(PODS, None, PODS_OF_RELEASE).await.ok()?;
        Some(format!("{id}: helm takes the release away: {} pods are left", pods.len()))
    };
    waiting.watch(run(helm), look).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_wait_for_helm_names_the_pod_that_cannot_start() {
        let pod = |name: &str, ready: &str, status: Value| {
            let mut pod = json!({"metadata": {"name": name}, "status": status});
            pod["status"]["conditions"] = json!([{"type": "Ready", "status": ready}]);
            pod
        };
        let waiting = json!({"reason": "ErrImagePull", "message": "manifest unknown"});
        let waiting = json!({"containerStatuses": [{"state": {"waiting": waiting}}]});
        let all =
            [pod("a", "True", json!({})), pod("b", "False", json!({})), pod("c", "False", waiting)];
        let expected = "2 of 3 are not ready; pod c: ErrImagePull manifest unknown";
        assert_eq!(unready(&all).as_deref(), Some(expected));
        let expected = "1 of 2 are not ready; pod b is not ready";
        assert_eq!(unready(&all[..2]).as_deref(), Some(expected));
        assert_eq!(unready(&all[..1]).as_deref(), Some("all 1 are ready"));
        assert_eq!(unready(&[]), None);
    }

    #[test]
    fn a_plan_shows_each_value_that_changes() {
        let before =
            json!({"global": {"clusterId": "east", "image": {"tag": "0.4.1"}}, "old": [1]});
        let after =
            json!({"global": {"clusterId": "east", "image": {"tag": "0.5.0"}}, "new": true});
        assert_eq!(
            changed(&before, &after),
            ["global.image.tag 0.4.1 -> 0.5.0", "new - -> true", "old [1] -> -"]
        );
        assert!(changed(&Value::Null, &json!({})).is_empty());
    }

    #[test]
    fn a_release_of_this_version_and_these_values_is_left_alone() {
        let of = |values: Value, objects: &str| Rendered { values, objects: objects.to_owned() };
        let now = of(json!({"a": 1}), "kind: A\n");
        assert_eq!(now.differs(&of(json!({"a": 1}), "\nkind: A"), true), None);
        assert!(now.differs(&of(json!({"a": 1}), "kind: A\n"), false).is_some(), "another version");
        let why = |then: Rendered| now.differs(&then, true).unwrap();
        assert_eq!(why(of(json!({"a": 2}), "kind: A\n")), "values a 1 -> 2");
        assert_eq!(why(of(json!({"a": 1}), "kind: B\n")), "the chart has other objects");
        let many: serde_json::Map<_, _> = (0..20).map(|n| (format!("k{n:02}"), json!(n))).collect();
        assert!(why(of(many.into(), "kind: A\n")).ends_with(" and 9 more"));
    }

    #[test]
    fn a_change_is_told_with_its_versions() {
        let change = ReleaseChange::Upgrade {
            from: "0.4.1".into(),
            to: "0.5.0".into(),
            why: "with the same values".into(),
        };
        assert_eq!(change.text(), "0.4.1 -> 0.5.0; with the same values");
        assert_eq!(change.former(), Some("0.4.1"));
        let install = ReleaseChange::Install { to: "0.5.0".into(), values: vec!["a=b".into()] };
        assert_eq!((install.text().as_str(), install.former()), ("install 0.5.0 with a=b", None));
    }
}
