//! Makes the clusters a clusterset: the agent and the controller in each, links between them, and a service of all.

use std::{collections::BTreeSet, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use mcs_tests::{
    cluster::{self, Cluster, ClusterSet, Kubectl, Observer, Programs, TOOLS},
    process, wait,
};

use crate::{
    build::{self, DEV, RELEASE},
    deploy, image,
    screen::say,
    workspace::Workspace,
};

const DEMO: &str = include_str!("clusterset.yaml");
const URL: &str = "http://hello.demo.svc.clusterset.local";
/// How long pods may take to start, and DNS to learn a name.
const PATIENCE: Duration = Duration::from_mins(2);

/// Installs everything, and checks it. The last lines are requests that pods of both clusters answer.
pub(super) fn install(
    workspace: &Workspace,
    set: ClusterSet,
    programs: &Programs,
    image: Option<&Path>,
    observer: &dyn Observer,
) -> Result<()> {
    let archive = image.map_or_else(|| image::agent(workspace), |image| Ok(image.to_owned()))?;
    let clusters: Vec<_> = cluster::clusters(set).collect();
    let charts = deploy::copies(workspace, &str::to_owned)?;
    for cluster in &clusters {
        for node in cluster::nodes(*cluster) {
            cluster::import(programs, node, &archive)?;
        }
        install_chart(&charts.path("mcs"), programs, *cluster)?;
        observer.progress(&format!("{cluster}: the agent and the controller are ready"));
    }
    // An image that is there is not always of an optimised build, which takes minutes.
    let profile = if image.is_some() { DEV } else { RELEASE };
    let controller = build::controller(workspace, &build::object(workspace)?, profile)?;
    let mcs = build::command_line(&controller);
    link(&mcs, &clusters)?;
    observer.progress("the clusters are linked");
    for cluster in &clusters {
        let demo = DEMO.replace("$IMAGE", TOOLS).replace("$CLUSTER", &cluster.to_string());
        let kubectl = Kubectl::new(programs, *cluster)?;
        kubectl.apply(&demo)?;
        for object in ["deployment/hello", "pod/client"] {
            let condition = if object.starts_with("pod") { "Ready" } else { "Available" };
            let condition = format!("--for=condition={condition}");
            kubectl.run(&["wait", &condition, "--namespace=demo", "--timeout=120s", object])?;
        }
        observer.progress(&format!("{cluster}: demo/hello is exported"));
    }
    let answers: Vec<_> = clusters
        .iter()
        .map(|one| wait_for_answers(programs, *one, &clusters))
        .collect::<Result<_>>()?;
    check(&mcs, &clusters)?;
    clusters.iter().zip(answers).for_each(|(cluster, answers)| show(*cluster, &answers));
    Ok(())
}

fn install_chart(chart: &Path, programs: &Programs, cluster: Cluster) -> Result<()> {
    let mut helm = Command::new(programs.find("helm")?);
    helm.env_clear().env("HOME", cluster.directory());
    helm.arg("--kubeconfig").arg(cluster.kubeconfig());
    helm.args(["install", "mcs"]).arg(chart);
    helm.args(["--namespace", "mcs-system", "--create-namespace", "--wait", "--timeout", "180s"]);
    // Clusters have their ids from the start, for users without this chart.
    helm.arg("--take-ownership");
    for value in [
        "clusterProperties.create=true",
        &format!("global.clusterId={cluster}"),
        &format!("clusterProperties.clusterset={}", cluster.set.name()),
    ] {
        helm.args(["--set", value]);
    }
    process::run(&mut helm, "").map(drop).with_context(|| format!("{cluster}: chart mcs"))
}

/// Lets every cluster import from every other one.
fn link(mcs: &Path, clusters: &[Cluster]) -> Result<()> {
    let mut link = Command::new(mcs);
    link.arg("link").args(clusters.iter().map(|cluster| cluster.kubeconfig()));
    for cluster in clusters {
        for range in cluster.pods() {
            link.arg("--pod-cidr").arg(format!("{cluster}={range}"));
        }
    }
    process::run(&mut link, "").map(drop)
}

/// Asks by name from a pod of a cluster until pods of all clusters have answered. Returns the last answers.
fn wait_for_answers(
    programs: &Programs,
    cluster: Cluster,
    clusters: &[Cluster],
) -> Result<Vec<String>> {
    let kubectl = Kubectl::new(programs, cluster)?;
    wait::within(PATIENCE, &format!("{URL} in {cluster}"), || {
        let answers = ask(&kubectl, 8)?;
        let of_cluster = |answer: &String| answer.split(',').next().unwrap_or("").to_owned();
        let found: BTreeSet<_> = answers.iter().map(of_cluster).collect();
        ensure!(found.len() == clusters.len(), "only {found:?} answered");
        Ok(answers)
    })
}

/// Lets `mcs check` print what it finds. It connects to pods of peers from a pod of each cluster.
fn check(mcs: &Path, clusters: &[Cluster]) -> Result<()> {
    say("");
    let mut check = Command::new(mcs);
    check.arg("check").args(clusters.iter().map(|cluster| cluster.kubeconfig()));
    let status = check.status().with_context(|| format!("cannot run {check:?}"))?;
    ensure!(status.success(), "the clusters are not as `mcs check` wants them");
    Ok(())
}

fn show(cluster: Cluster, answers: &[String]) {
    say("");
    let kubeconfig = cluster.kubeconfig();
    say(format_args!(
        "$ kubectl --kubeconfig {} exec --namespace demo client -- wget -qO- {URL}",
        kubeconfig.display()
    ));
    answers.iter().for_each(say);
}

fn ask(kubectl: &Kubectl, times: usize) -> Result<Vec<String>> {
    // `wget -T` of this busybox crashes.
    let script =
        format!("for i in $(seq {times}); do timeout 3 wget -q -O - {URL} || exit 1; done");
    let words = ["exec", "--namespace", "demo", "client", "--", "/bin/sh", "-c", &script];
    let printed = kubectl.run(&words)?;
    Ok(printed.lines().map(str::to_owned).collect())
}
