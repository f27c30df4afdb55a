//! The source that watches an API server.

mod access;
mod decoder;
mod exec_plugin;
#[cfg(test)]
mod scripted_server;
mod state;
mod watch;

use std::{fmt, path::PathBuf, time::Duration};

use kube::api::{ApiResource, GroupVersionKind};
use tokio::{sync::mpsc, time::sleep};

pub use self::access::AccessError;
use self::{
    access::ApiAccess,
    state::{ClusterState, ClusterUpdate},
    watch::{ResourceWatch, WatchTarget},
};
use crate::{model::EventBatch, source::objects::SERVICE_NAME_LABEL};

/// The longest delay before the first request, so that agents that start together spread their lists.
const START_SPREAD: Duration = Duration::from_secs(2);
/// How many updates may wait while the receiver is busy with a batch.
const WAITING_UPDATES: usize = 64;

/// Which API server and objects a [`KubernetesSource`] watches.
#[derive(Clone, Debug)]
pub struct KubernetesOptions {
    /// The kubeconfig; `None` uses the service account of the agent's pod.
    pub kubeconfig: Option<KubeconfigFile>,
    /// The API group of ServiceImports.
    pub import_group: String,
    /// A label selector of ServiceImports.
    pub import_selector: Option<String>,
    /// The Node whose zone and pod ranges are watched.
    pub node: Option<String>,
    /// Whether its zone is needed. If not, the right to read Nodes may be missing.
    pub zone: bool,
    /// Whether the ClusterProperty with the cluster's id is watched (KEP-2149).
    pub cluster_id: bool,
    /// Whether the ServiceCIDRs are watched. The cluster need not have them, and the right may be missing.
    pub service_ranges: bool,
}

/// A kubeconfig and one of its contexts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KubeconfigFile {
    /// The file.
    pub path: PathBuf,
    /// `None` is the file's `current-context`.
    pub context: Option<String>,
}

impl fmt::Display for KubeconfigFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)?;
        self.context.iter().try_for_each(|context| write!(f, " (context {context})"))
    }
}

/// Watches the ServiceImports and imported EndpointSlices of a cluster, this node's Node, the cluster's id
/// and its ServiceCIDRs.
///
/// It sends no object event before it has read everything once. While the API server does not answer, it
/// sends no change: a missing answer is not an empty list.
pub struct KubernetesSource {
    access: ApiAccess,
    state: ClusterState,
    targets: WatchTargets,
}

/// The resources to watch.
struct WatchTargets {
    imports: WatchTarget,
    slices: WatchTarget,
    node: Option<WatchTarget>,
    cluster_id: Option<WatchTarget>,
    service_ranges: Option<WatchTarget>,
}

impl KubernetesSource {
    /// A source that has made no request yet.
    pub async fn new(options: KubernetesOptions) -> Result<Self, AccessError> {
        let (access, url) = ApiAccess::new(options.kubeconfig.clone()).await?;
        let targets = WatchTargets::new(&options);
        let state = ClusterState::new(format!("Kubernetes at {url}"), &targets);
        Ok(Self { access, state, targets })
    }

    /// Sends a batch for each change, until the receiver is dropped. Errors are part of the batches'
    /// status.
    pub async fn run(self, batches: mpsc::Sender<EventBatch>) {
        let Self { access, mut state, targets } = self;
        let (updates, mut waiting) = mpsc::channel(WAITING_UPDATES);
        let watch = watch(&access, targets, updates);
        let send = async {
            while let Some(update) = waiting.recv().await {
                if let Some(batch) = state.update(update)
                    && batches.send(batch).await.is_err()
                {
                    return;
                }
            }
        };
        tokio::select! {
            () = watch => {}
            () = send => {}
            () = batches.closed() => {}
        }
    }
}

/// Watches all resources and sends what changes to `updates`.
async fn watch(access: &ApiAccess, targets: WatchTargets, updates: mpsc::Sender<ClusterUpdate>) {
    let servers = async {
        let mut servers = access.servers();
        loop {
            let addresses = servers.borrow_and_update().clone();
            if updates.send(ClusterUpdate::ApiServers(addresses)).await.is_err()
                || servers.changed().await.is_err()
            {
                return;
            }
        }
    };
    let watches = async {
        sleep(START_SPREAD.mul_f64(fastrand::f64())).await;
        let watch_node = async {
            if let Some(target) = targets.node {
                ResourceWatch::new(access, target, updates.clone(), ClusterUpdate::Node)
                    .run()
                    .await;
            }
        };
        let watch_service_ranges = async {
            if let Some(target) = targets.service_ranges {
                ResourceWatch::new(access, target, updates.clone(), ClusterUpdate::ServiceRanges)
                    .run()
                    .await;
            }
        };
        let watch_cluster_id = async {
            if let Some(target) = targets.cluster_id {
                ResourceWatch::new(access, target, updates.clone(), ClusterUpdate::ClusterId)
                    .run()
                    .await;
            }
        };
        tokio::join!(
            ResourceWatch::new(access, targets.imports, updates.clone(), ClusterUpdate::Imports)
                .run(),
            ResourceWatch::new(access, targets.slices, updates.clone(), ClusterUpdate::Slices)
                .run(),
            watch_node,
            watch_cluster_id,
            watch_service_ranges,
        );
    };
    tokio::join!(servers, watches);
}

impl WatchTargets {
    fn new(options: &KubernetesOptions) -> Self {
        const MCS_VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];
        let KubernetesOptions { import_group, import_selector, node, zone, .. } = options;
        let all = |group: &str, versions: &[&str], kind: &str, plural: &str| {
            let version = |version: &&str| {
                let kind = GroupVersionKind::gvk(group, version, kind);
                ApiResource::from_gvk_with_plural(&kind, plural)
            };
            WatchTarget {
                versions: versions.iter().map(version).collect(),
                labels: None,
                fields: None,
                without: None,
            }
        };
        let named = |name: &str| Some(format!("metadata.name={name}"));
        Self {
            imports: WatchTarget {
                labels: import_selector.clone(),
                ..all(import_group, &MCS_VERSIONS, "ServiceImport", "serviceimports")
            },
            slices: WatchTarget {
                labels: Some(SERVICE_NAME_LABEL.to_owned()),
                ..all("discovery.k8s.io", &["v1"], "EndpointSlice", "endpointslices")
            },
            node: node.as_ref().map(|node| WatchTarget {
                fields: named(node),
                without: (!zone).then_some("the agent does not know the addresses of its pods"),
                ..all("", &["v1"], "Node", "nodes")
            }),
            cluster_id: options.cluster_id.then(|| WatchTarget {
                fields: named("cluster.clusterset.k8s.io"),
                ..all("about.k8s.io", &MCS_VERSIONS, "ClusterProperty", "clusterproperties")
            }),
            service_ranges: options.service_ranges.then(|| WatchTarget {
                without: Some(
                    "the Service range is unknown, so imports without EndpointSlices are left alone: \
                     grant list and watch, or set --service-cidr",
                ),
                ..all("networking.k8s.io", &["v1"], "ServiceCIDR", "servicecidrs")
            }),
        }
    }
}
