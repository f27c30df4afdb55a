//! The clusters of commands that look at a whole clusterset: those that are given, or those of all contexts.

use futures_util::future::join_all;
use mcs_kube::told;

use crate::{
    cluster::{Cluster, NoId},
    kubeconfig::{KubeconfigArg, KubeconfigError},
};

/// The clusters that answer, and why others do not.
#[derive(Default)]
pub(crate) struct Contexts {
    pub(crate) clusters: Vec<Cluster>,
    pub(crate) unasked: Vec<Unasked>,
}

/// A cluster that does not answer.
#[derive(Clone, Debug)]
pub(crate) struct Unasked {
    /// Its kubeconfig, or its context.
    pub(crate) name: String,
    pub(crate) error: String,
}

/// Opens the given clusters; without any, those of all contexts. Of several contexts that lead to one API server the first
/// counts, and a cluster without id is no member of a clusterset.
pub(crate) async fn open(given: &[KubeconfigArg]) -> anyhow::Result<Contexts> {
    let all = if given.is_empty() { KubeconfigArg::of_all_contexts()? } else { given.to_vec() };
    let mut contexts = Contexts::default();
    if all.is_empty() {
        // That of the pod.
        contexts.clusters = Cluster::open_all(&[]).await?;
        return Ok(contexts);
    }
    for (argument, cluster) in all.iter().zip(join_all(all.iter().map(Cluster::open)).await) {
        match cluster {
            Ok(cluster) if given.is_empty() && has(&contexts, &cluster) => {}
            Ok(cluster) => contexts.clusters.push(cluster),
            Err(error) if given.is_empty() && error.is::<NoId>() => {}
            Err(error) => {
                let (name, error) = (argument.to_string(), told(&error));
                contexts.unasked.push(Unasked { name, error });
            }
        }
    }
    if contexts.clusters.is_empty() && contexts.unasked.is_empty() {
        return Err(KubeconfigError::NoMember.into());
    }
    Ok(contexts)
}

fn has(contexts: &Contexts, cluster: &Cluster) -> bool {
    contexts.clusters.iter().any(|other| other.server == cluster.server)
}
