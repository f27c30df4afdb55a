//! The names of a node's pods, by uid.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use kube::api::ListParams;

use crate::{
    cluster::{Cluster, PODS},
    explain::client::cgroup_uid,
};

/// The pods of a node are listed again after this time.
const PAUSE: Duration = Duration::from_secs(10);

/// The pods of a node, listed when an unknown pod occurs. Without the right to list pods, they have no names.
pub(super) struct PodNames<'a> {
    cluster: &'a Cluster,
    node: &'a str,
    known: HashMap<String, (String, String)>,
    listed_at: Option<Instant>,
}

impl<'a> PodNames<'a> {
    pub(super) fn new(cluster: &'a Cluster, node: &'a str) -> Self {
        Self { cluster, node, known: HashMap::new(), listed_at: None }
    }

    /// The namespace and name of the pod with this uid.
    pub(super) async fn of(&mut self, uid: &str) -> Option<(String, String)> {
        let may_list = self.listed_at.is_none_or(|listed_at| listed_at.elapsed() >= PAUSE);
        if !self.known.contains_key(uid) && may_list {
            self.listed_at = Some(Instant::now());
            let of_node = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
            let pods = self.cluster.list_by(PODS, None, &of_node).await.unwrap_or_default();
            self.known.extend(pods.iter().map(|pod| {
                let text =
                    |name: &str| pod["metadata"][name].as_str().unwrap_or_default().to_owned();
                (cgroup_uid(pod), (text("namespace"), text("name")))
            }));
        }
        self.known.get(uid).cloned()
    }
}
