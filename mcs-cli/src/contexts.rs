//! The clusters of commands about a whole clusterset: the given ones, or those of all contexts.

use mcs_kube::{one_line, told};

use crate::{
    cluster::{Cluster, NoId},
    fleet,
    kubeconfig::{KubeconfigArg, KubeconfigError},
};

/// The clusters that answer, and the others with the reason.
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

/// Opens the given clusters; if none is given, those of all contexts. If several contexts lead to one cluster, the first
/// counts. A cluster without id is not a member of a clusterset: standard error names its context.
pub(crate) async fn open(given: &[KubeconfigArg]) -> anyhow::Result<Contexts> {
    let all = if given.is_empty() { KubeconfigArg::of_all_contexts()? } else { given.to_vec() };
    let mut contexts = Contexts::default();
    if all.is_empty() {
        // The cluster of the pod.
        contexts.clusters = Cluster::open_all(&[]).await?;
        return Ok(contexts);
    }
    let open = async |argument: &KubeconfigArg| {
        let cluster = Cluster::open(argument).await?;
        let identity = if given.is_empty() { Some(Identity::of(&cluster).await) } else { None };
        anyhow::Ok((cluster, identity))
    };
    let (mut identities, mut skipped) = (Vec::<Identity>::new(), Vec::new());
    for (argument, opened) in all.iter().zip(fleet::each(&all, open).await) {
        match opened {
            Ok((cluster, identity)) => {
                let is_known = |own: &Identity| identities.iter().any(|one| one.is_of_one(own));
                if !identity.as_ref().is_some_and(is_known) {
                    identities.extend(identity);
                    contexts.clusters.push(cluster);
                }
            }
            Err(error) if given.is_empty() && error.is::<NoId>() => {
                skipped.push(one_line(&argument.to_string()));
            }
            Err(error) => {
                let (name, error) = (argument.to_string(), told(&error));
                contexts.unasked.push(Unasked { name, error });
            }
        }
    }
    if !skipped.is_empty() {
        eprintln!("mcs: skipped, since the cluster has no id: {}", skipped.join(", "));
    }
    if contexts.clusters.is_empty() && contexts.unasked.is_empty() {
        return Err(KubeconfigError::NoMember.into());
    }
    Ok(contexts)
}

/// The identity of a cluster.
pub(crate) struct Identity {
    pub(crate) id: String,
    /// The uid of namespace `kube-system`; absent without the right to read it.
    pub(crate) uid: Option<String>,
    pub(crate) server: String,
}

impl Identity {
    pub(crate) async fn of(cluster: &Cluster) -> Self {
        let (id, server) = (cluster.id.to_string(), cluster.server.clone());
        Self { id, uid: cluster.uid().await.ok(), server }
    }

    /// Whether both identify one cluster. One URL can lead to several clusters, by tunnels, and one cluster can have
    /// several URLs.
    pub(crate) fn is_of_one(&self, other: &Self) -> bool {
        self.id == other.id
            && match (&self.uid, &other.uid) {
                (Some(own), Some(other)) => own == other,
                _ => self.server == other.server,
            }
    }

    /// Whether both may identify one cluster: nothing that is known says otherwise.
    pub(crate) fn may_be_of_one(&self, other: &Self) -> bool {
        self.is_of_one(other)
            || (self.id == other.id && (self.uid.is_none() || other.uid.is_none()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_told_apart_by_id_and_uid() {
        let of = |id: &str, uid: Option<&str>, server: &str| Identity {
            id: id.to_owned(),
            uid: uid.map(str::to_owned),
            server: server.to_owned(),
        };
        let east = of("east", Some("1"), "https://localhost:6443");
        assert!(east.is_of_one(&of("east", Some("1"), "https://east")));
        assert!(!east.is_of_one(&of("east", Some("2"), "https://localhost:6443")));
        assert!(!east.is_of_one(&of("west", Some("1"), "https://localhost:6443")));
        assert!(east.is_of_one(&of("east", None, "https://localhost:6443")));
        assert!(!east.is_of_one(&of("east", None, "https://east")));
        assert!(east.may_be_of_one(&of("east", None, "https://east")));
        assert!(!east.may_be_of_one(&of("east", Some("2"), "https://east")));
        assert!(!east.may_be_of_one(&of("west", None, "https://east")));
    }
}
