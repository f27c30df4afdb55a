//! The source that follows an API server.

mod access;
mod backoff;
mod reading;
#[cfg(test)]
mod script;
mod state;
mod watch;

use std::{fmt, path::PathBuf, time::Duration};

use kube::api::{ApiResource, GroupVersionKind};
use tokio::{sync::mpsc, time::sleep};

pub use self::access::AccessError;
use self::{
    access::Access,
    state::{ClusterState, Update},
    watch::{Target, Watch},
};
use crate::{model::EventBatch, source::objects::SERVICE_NAME_LABEL};

/// How long agents that start together are spread over.
const START_SPREAD: Duration = Duration::from_secs(2);
/// Updates that wait while a batch is being taken.
const WAITING_UPDATES: usize = 64;

/// What to follow, and where.
#[derive(Clone, Debug)]
pub struct KubernetesOptions {
    /// Where the API server is; absent in a pod.
    pub kubeconfig: Option<KubeconfigFile>,
    /// The API group of ServiceImports.
    pub import_group: String,
    /// A label selector of ServiceImports.
    pub import_selector: Option<String>,
    /// The Node whose zone is followed.
    pub zone_of: Option<String>,
    /// Whether the id of the cluster is followed.
    pub cluster_id: bool,
}

/// A kubeconfig and the context to take of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KubeconfigFile {
    /// The file.
    pub path: PathBuf,
    /// By default the current one.
    pub context: Option<String>,
}

impl fmt::Display for KubeconfigFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)?;
        self.context.iter().try_for_each(|context| write!(f, " (context {context})"))
    }
}

/// Follows the ServiceImports and imported EndpointSlices of a cluster, and what it says of this
/// node.
///
/// Nothing is told before everything was read once, and nothing changes while the API server cannot
/// be asked: a missing answer is not an empty one.
pub struct KubernetesSource {
    access: Access,
    state: ClusterState,
    targets: Targets,
}

struct Targets {
    imports: Target,
    slices: Target,
    zone: Option<Target>,
    cluster_id: Option<Target>,
}

impl KubernetesSource {
    /// A source that has not asked yet.
    pub async fn new(options: KubernetesOptions) -> Result<Self, AccessError> {
        let (access, url) = Access::new(options.kubeconfig.clone()).await?;
        let targets = Targets::new(options);
        let state = ClusterState::new(
            format!("Kubernetes at {url}"),
            &targets.imports,
            &targets.slices,
            targets.zone.as_ref(),
            targets.cluster_id.as_ref(),
        );
        Ok(Self { access, state, targets })
    }

    /// Sends a batch for each change, until the receiver is dropped. What cannot be read is told in
    /// the batches, so that there is no error to return.
    pub async fn run(self, batches: mpsc::Sender<EventBatch>) {
        let Self { access, mut state, targets } = self;
        let (updates, mut waiting) = mpsc::channel(WAITING_UPDATES);
        let follow = follow(&access, targets, updates);
        let tell = async {
            while let Some(update) = waiting.recv().await {
                if let Some(batch) = state.update(update)
                    && batches.send(batch).await.is_err()
                {
                    return;
                }
            }
        };
        tokio::select! {
            () = follow => {}
            () = tell => {}
            () = batches.closed() => {}
        }
    }
}

async fn follow(access: &Access, targets: Targets, updates: mpsc::Sender<Update>) {
    let servers = async {
        let mut servers = access.servers();
        loop {
            let found = servers.borrow_and_update().clone();
            if updates.send(Update::Servers(found)).await.is_err()
                || servers.changed().await.is_err()
            {
                return;
            }
        }
    };
    let watches = async {
        sleep(START_SPREAD.mul_f64(fastrand::f64())).await;
        let watch_zone = async {
            if let Some(target) = targets.zone {
                Watch::new(access, target, updates.clone(), Update::Zone).run().await;
            }
        };
        let watch_cluster_id = async {
            if let Some(target) = targets.cluster_id {
                Watch::new(access, target, updates.clone(), Update::ClusterId).run().await;
            }
        };
        tokio::join!(
            Watch::new(access, targets.imports, updates.clone(), Update::Imports).run(),
            Watch::new(access, targets.slices, updates.clone(), Update::Slices).run(),
            watch_zone,
            watch_cluster_id,
        );
    };
    tokio::join!(servers, watches);
}

impl Targets {
    fn new(options: KubernetesOptions) -> Self {
        const MCS_VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];
        let KubernetesOptions { import_group, import_selector, zone_of, cluster_id, .. } = options;
        let all = |group: &str, versions: &[&str], kind: &str, plural: &str| {
            let version = |version: &&str| {
                let kind = GroupVersionKind::gvk(group, version, kind);
                ApiResource::from_gvk_with_plural(&kind, plural)
            };
            Target { versions: versions.iter().map(version).collect(), labels: None, fields: None }
        };
        let named = |name: &str| Some(format!("metadata.name={name}"));
        Self {
            imports: Target {
                labels: import_selector,
                ..all(&import_group, &MCS_VERSIONS, "ServiceImport", "serviceimports")
            },
            slices: Target {
                labels: Some(SERVICE_NAME_LABEL.to_owned()),
                ..all("discovery.k8s.io", &["v1"], "EndpointSlice", "endpointslices")
            },
            zone: zone_of
                .map(|node| Target { fields: named(&node), ..all("", &["v1"], "Node", "nodes") }),
            cluster_id: cluster_id.then(|| Target {
                fields: named("cluster.clusterset.k8s.io"),
                ..all("about.k8s.io", &MCS_VERSIONS, "ClusterProperty", "clusterproperties")
            }),
        }
    }
}
