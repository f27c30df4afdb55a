//! Lists the running and stopped parts of a set of clusters.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    hierarchies::Hierarchies,
    layout::{Cluster, ClusterSet, Node},
};

/// A control plane or a node, and the names of its daemons.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// Its name.
    pub name: String,
    /// Those that run.
    pub running: Vec<String>,
    /// Those that have been started and do not run.
    pub ended: Vec<String>,
}

/// The clusters that have been started, and not removed since.
pub fn clusters(set: ClusterSet) -> impl Iterator<Item = Cluster> {
    set.clusters(ClusterSet::MOST).filter(|cluster| cluster.directory().exists())
}

/// The cluster whose administrator's kubeconfig this is, if it is one of a set.
pub fn of_kubeconfig(path: &Path) -> Option<Cluster> {
    let path = path.canonicalize().ok()?;
    ClusterSet::ALL.into_iter().flat_map(clusters).find(|cluster| cluster.kubeconfig() == path)
}

/// The nodes of a cluster that have been started, and not removed since.
pub fn nodes(cluster: Cluster) -> impl Iterator<Item = Node> {
    cluster.nodes(ClusterSet::MOST).filter(|node| node.directory().exists())
}

/// Every control plane and node that has been started, and not removed since.
pub fn places(set: ClusterSet) -> anyhow::Result<Vec<Place>> {
    let cgroups = Hierarchies::find()?.unified.join(set.name());
    let mut places = Vec::new();
    for directory in list(&set.directory())? {
        let Some(name) = name(&directory).filter(|_| directory.is_dir()) else { continue };
        let scripts = list(&directory)?.into_iter();
        let scripts = scripts.filter(|file| file.extension().is_some_and(|end| end == "sh"));
        let daemons = scripts.filter_map(|script| Some(script.file_stem()?.to_str()?.to_owned()));
        let runs = |daemon: &String| has_processes(&cgroups.join(&name).join(daemon));
        let (running, ended): (Vec<_>, Vec<_>) = daemons.partition(runs);
        if !running.is_empty() || !ended.is_empty() {
            places.push(Place { name, running, ended });
        }
    }
    Ok(places)
}

/// Whether any process of the set runs.
pub(super) fn is_running(set: ClusterSet, hierarchies: &Hierarchies) -> bool {
    has_processes(&hierarchies.unified.join(set.name()))
}

/// Whether a process is in a cgroup of version 2, or below it.
fn has_processes(cgroup: &Path) -> bool {
    let events = fs::read_to_string(cgroup.join("cgroup.events")).unwrap_or_default();
    events.lines().any(|line| line == "populated 1")
}

/// What is in a directory, in order; nothing if it is not there.
fn list(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}

fn name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}
