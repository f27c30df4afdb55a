//! The source that watches an API server.

pub(crate) mod decoders;
pub(crate) mod state;
#[cfg(feature = "testing")]
pub mod testing;

use std::{collections::BTreeSet, pin::Pin, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};

pub use mcs_kube::AccessError;
use mcs_kube::{
    ApiAccess, Decoder, KubeconfigFile, ResourceEvent, ResourceWatch, TRAFFIC_PROPERTY,
    VIP_RANGES_PROPERTY, WatchTarget,
    discovery::{self, ApiGroups},
};
use tokio::{
    sync::{mpsc, watch as latest},
    time::sleep,
};

use self::state::ClusterState;
pub(crate) use self::state::ClusterUpdate;
use super::{
    Filter, ObjectSource, ReadFrom, Running, SourceOptions, StartWatch, Starting,
    objects::{MCS_GROUP, MCS_VERSIONS, SERVICE_NAME_LABEL},
};
use crate::core::model::EventBatch;

/// The longest delay before the first request, so that agents that start together spread their lists.
const START_SPREAD: Duration = Duration::from_secs(2);
/// How many updates may wait while the receiver is busy with a batch.
const WAITING_UPDATES: usize = 64;

/// Watches the ServiceImports and imported EndpointSlices of a cluster, this node's Node, the cluster's id, what is wanted
/// of source clusters, and the ServiceCIDRs.
///
/// It sends no object event before it has read everything once. While the API server does not answer, it
/// sends no change: a missing answer is not an empty list.
pub struct KubernetesSource {
    access: ApiAccess,
    state: ClusterState,
    targets: WatchTargets,
    /// The longest delay before the first request.
    spread: Duration,
    /// The watches of the filter.
    others: Vec<StartWatch>,
}

pub(crate) type Watch<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// The resources to watch.
pub(crate) struct WatchTargets {
    imports: WatchTarget,
    slices: WatchTarget,
    node: Option<WatchTarget>,
    cluster_id: Option<WatchTarget>,
    traffic: WatchTarget,
    vip_ranges: Option<WatchTarget>,
    service_ranges: Option<WatchTarget>,
}

impl KubernetesSource {
    /// A source that has made no request yet.
    pub async fn new(options: &SourceOptions, mut filter: Filter) -> Result<Self, AccessError> {
        let ReadFrom { kubeconfig, context, .. } = options.from.clone();
        let kubeconfig = kubeconfig.map(|path| KubeconfigFile::new(path, context));
        let (access, url) = ApiAccess::new(kubeconfig).await?;
        let targets = WatchTargets::new(options, &filter);
        let others = filter.0.as_mut().map(|filter| filter.watches(options)).unwrap_or_default();
        let state = ClusterState::new(format!("Kubernetes at {url}"), &targets, filter);
        let spread = if options.only.is_some() { Duration::ZERO } else { START_SPREAD };
        Ok(Self { access, state, targets, spread, others })
    }

    /// Sends a batch for each change, until the receiver is dropped. Errors are part of the batches'
    /// status.
    pub async fn run(self, batches: mpsc::Sender<EventBatch>) {
        let Self { access, mut state, targets, spread, others } = self;
        let (updates, mut waiting) = mpsc::channel(WAITING_UPDATES);
        let watch = watch_all(&access, targets, spread, others, updates);
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
async fn watch_all(
    access: &ApiAccess,
    mut targets: WatchTargets,
    spread: Duration,
    others: Vec<StartWatch>,
    updates: mpsc::Sender<ClusterUpdate>,
) {
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
    let (first, first_groups) = latest::channel(None);
    let watches = async {
        targets.prefer_served(&discovery::first_answer(first_groups).await);
        let each: [Watch<'_>; 7] = [
            Box::pin(watch_one(access, Some(targets.imports), &updates, ClusterUpdate::Imports)),
            Box::pin(watch_one(access, Some(targets.slices), &updates, ClusterUpdate::Slices)),
            Box::pin(watch_one(access, targets.node, &updates, ClusterUpdate::Node)),
            Box::pin(watch_one(access, targets.cluster_id, &updates, ClusterUpdate::ClusterId)),
            Box::pin(watch_one(access, Some(targets.traffic), &updates, ClusterUpdate::Traffic)),
            Box::pin(watch_one(access, targets.vip_ranges, &updates, ClusterUpdate::VipRanges)),
            Box::pin(watch_one(
                access,
                targets.service_ranges,
                &updates,
                ClusterUpdate::ServiceRanges,
            )),
        ];
        let others = others.into_iter().map(|start| start(access, &updates));
        // `join!` would look at all of them for each event of one.
        each.into_iter().chain(others).collect::<FuturesUnordered<_>>().collect::<()>().await;
    };
    let requests = async {
        sleep(spread.mul_f64(fastrand::f64())).await;
        tokio::join!(discovery::follow(access, first, &updates, ClusterUpdate::Groups), watches);
    };
    tokio::join!(servers, requests);
}

/// Watches a resource, if there is one.
pub(crate) async fn watch_one<D: Decoder>(
    access: &ApiAccess,
    target: Option<WatchTarget>,
    updates: &mpsc::Sender<ClusterUpdate>,
    update: fn(ResourceEvent<D>) -> ClusterUpdate,
) {
    if let Some(target) = target {
        ResourceWatch::new(access, target, updates.clone(), update).run().await;
    }
}

impl ObjectSource for SourceOptions {
    fn start(self: Box<Self>, filter: Filter, batches: mpsc::Sender<EventBatch>) -> Starting {
        Box::pin(async move {
            let running: Running =
                Box::pin(KubernetesSource::new(&self, filter).await?.run(batches));
            Ok(running)
        })
    }
}

impl WatchTargets {
    pub(crate) fn new(options: &SourceOptions, filter: &Filter) -> Self {
        let SourceOptions { from, node, zone, .. } = options;
        let follows_kep = from.import_group == MCS_GROUP && filter.on().is_none();
        let named = |name: &str| Some(format!("metadata.name={name}"));
        let property = |name: &str| WatchTarget {
            fields: named(name),
            ..WatchTarget::all(
                "about.k8s.io",
                &MCS_VERSIONS,
                "ClusterProperty",
                "clusterproperties",
            )
        };
        Self {
            imports: import_target(options, &from.import_group, import_versions(&from.import_group)),
            slices: WatchTarget {
                has_many_events: true,
                ..slice_target(slice_selector(options.only.as_ref()))
            },
            node: node.as_ref().map(|node| WatchTarget {
                fields: named(node),
                without: (!zone).then_some("the agent does not know the addresses of its pods"),
                ..WatchTarget::all("", &["v1"], "Node", "nodes")
            }),
            cluster_id: options.cluster_id.then(|| property("cluster.clusterset.k8s.io")),
            traffic: WatchTarget {
                purpose: Some("traffic"),
                without: Some("weights and drains of source clusters are unknown and do not count"),
                ..property(TRAFFIC_PROPERTY)
            },
            vip_ranges: (options.vip_ranges && follows_kep).then(|| WatchTarget {
                purpose: Some("VIP ranges"),
                without: Some("without --vip-cidr, an import can claim any address"),
                ..property(VIP_RANGES_PROPERTY)
            }),
            service_ranges: options.service_ranges.then(|| WatchTarget {
                without: Some(
                    "the Service range is unknown, so imports without EndpointSlices are left alone: \
                     grant list and watch, or set --service-cidr",
                ),
                ..WatchTarget::all("networking.k8s.io", &["v1"], "ServiceCIDR", "servicecidrs")
            }),
        }
    }

    /// Asks for the versions first that the API server serves.
    fn prefer_served(&mut self, groups: &ApiGroups) {
        let Self { imports, cluster_id, traffic, vip_ranges, .. } = self;
        let properties = cluster_id.iter_mut().chain(vip_ranges);
        for target in [imports, traffic].into_iter().chain(properties) {
            discovery::prefer_served(target, groups);
        }
    }
}

/// The ServiceImports of a group.
pub(crate) fn import_target(
    options: &SourceOptions,
    group: &str,
    versions: &[&str],
) -> WatchTarget {
    let labels = options.from.import_selector.clone();
    WatchTarget { labels, ..WatchTarget::all(group, versions, "ServiceImport", "serviceimports") }
}

/// The slices with these labels.
pub(crate) fn slice_target(labels: String) -> WatchTarget {
    WatchTarget {
        labels: Some(labels),
        ..WatchTarget::all("discovery.k8s.io", &["v1"], "EndpointSlice", "endpointslices")
    }
}

/// The label selector of imported slices: all, or those of the imports with these names.
fn slice_selector(only: Option<&BTreeSet<String>>) -> String {
    let Some(names) = only else { return SERVICE_NAME_LABEL.to_owned() };
    // No slice has the name of an import that is longer.
    let names: Vec<_> = names.iter().map(String::as_str).filter(|name| name.len() <= 63).collect();
    match names.join(",") {
        // Of none.
        names if names.is_empty() => format!("{SERVICE_NAME_LABEL},!{SERVICE_NAME_LABEL}"),
        names => format!("{SERVICE_NAME_LABEL} in ({names})"),
    }
}

/// The versions of ServiceImports to ask for, the preferred one first.
fn import_versions(group: &str) -> &'static [&'static str] {
    match group {
        MCS_GROUP => &MCS_VERSIONS,
        _ => &["v1", "v1beta1", "v1alpha1"],
    }
}
