//! The source that watches an API server.

mod adoption;
mod decoders;
mod object_list;
mod property;
mod state;
#[cfg(feature = "testing")]
pub mod testing;
mod value_list;

use std::{collections::BTreeSet, pin::Pin, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};

pub use mcs_kube::{AccessError, KubeconfigFile};
use mcs_kube::{
    ApiAccess, Decoder, ResourceEvent, ResourceWatch, TRAFFIC_PROPERTY, VIP_RANGES_PROPERTY,
    WatchTarget,
    discovery::{self, ApiGroups},
};
use tokio::{
    sync::{mpsc, watch as latest},
    time::sleep,
};

use self::state::{ClusterState, ClusterUpdate};
use super::{
    adopt::{self, Controller, Coverage},
    decode::ReadScope,
    objects::{MCS_GROUP, MCS_VERSIONS, SERVICE_NAME_LABEL},
};
use crate::model::EventBatch;

/// The longest delay before the first request, so that agents that start together spread their lists.
const START_SPREAD: Duration = Duration::from_secs(2);
/// How many updates may wait while the receiver is busy with a batch.
const WAITING_UPDATES: usize = 64;
/// How long the watch of local slices waits for more Services before it begins anew.
const LOCAL_SLICES_DELAY: Duration = Duration::from_millis(200);

/// Which API server and objects a [`KubernetesSource`] watches.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what is watched and what not")]
pub struct KubernetesOptions {
    /// The kubeconfig; `None` uses the service account of the agent's pod.
    pub kubeconfig: Option<KubeconfigFile>,
    /// Which objects are read.
    pub scope: ReadScope,
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
    /// Whether the ClusterProperty with the ranges of ClusterSetIPs is watched. The right may be missing.
    pub vip_ranges: bool,
    /// The names of the imports whose slices are read, and no others, at once; `None`: all, after a random delay.
    pub only: Option<BTreeSet<String>>,
}

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
    /// The Services whose local slices have to be watched.
    local_services: latest::Receiver<Coverage>,
}

type Watch<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// The resources to watch.
struct WatchTargets {
    imports: WatchTarget,
    slices: WatchTarget,
    /// The controllers whose objects are adopted. The next four targets are for them.
    adopt: BTreeSet<Controller>,
    other_imports: Option<WatchTarget>,
    services: Option<WatchTarget>,
    adoptable_slices: Option<WatchTarget>,
    /// Its label selector names Services, which are not known yet.
    local_slices: Option<WatchTarget>,
    node: Option<WatchTarget>,
    cluster_id: Option<WatchTarget>,
    traffic: WatchTarget,
    vip_ranges: Option<WatchTarget>,
    service_ranges: Option<WatchTarget>,
}

impl KubernetesSource {
    /// A source that has made no request yet.
    pub async fn new(options: KubernetesOptions) -> Result<Self, AccessError> {
        let (access, url) = ApiAccess::new(options.kubeconfig.clone()).await?;
        let targets = WatchTargets::new(&options);
        let (wanted, local_services) = latest::channel(Coverage::NONE);
        let state = ClusterState::new(format!("Kubernetes at {url}"), &targets, wanted);
        let spread = if options.only.is_some() { Duration::ZERO } else { START_SPREAD };
        Ok(Self { access, state, targets, spread, local_services })
    }

    /// Sends a batch for each change, until the receiver is dropped. Errors are part of the batches'
    /// status.
    pub async fn run(self, batches: mpsc::Sender<EventBatch>) {
        let Self { access, mut state, targets, spread, local_services } = self;
        let (updates, mut waiting) = mpsc::channel(WAITING_UPDATES);
        let watch = watch_all(&access, targets, spread, local_services, updates);
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
    local_services: latest::Receiver<Coverage>,
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
        let each: [Watch<'_>; 11] = [
            Box::pin(watch_one(access, Some(targets.imports), &updates, ClusterUpdate::Imports)),
            Box::pin(watch_one(access, Some(targets.slices), &updates, ClusterUpdate::Slices)),
            Box::pin(watch_one(
                access,
                targets.other_imports,
                &updates,
                ClusterUpdate::OtherImports,
            )),
            Box::pin(watch_one(access, targets.services, &updates, ClusterUpdate::Services)),
            Box::pin(watch_one(
                access,
                targets.adoptable_slices,
                &updates,
                ClusterUpdate::AdoptableSlices,
            )),
            Box::pin(watch_local_slices(access, targets.local_slices, local_services, &updates)),
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
        // `join!` would look at all of them for each event of one.
        each.into_iter().collect::<FuturesUnordered<_>>().collect::<()>().await;
    };
    let requests = async {
        sleep(spread.mul_f64(fastrand::f64())).await;
        tokio::join!(discovery::follow(access, first, &updates, ClusterUpdate::Groups), watches);
    };
    tokio::join!(servers, requests);
}

/// Watches a resource, if there is one.
async fn watch_one<D: Decoder>(
    access: &ApiAccess,
    target: Option<WatchTarget>,
    updates: &mpsc::Sender<ClusterUpdate>,
    update: fn(ResourceEvent<D>) -> ClusterUpdate,
) {
    if let Some(target) = target {
        ResourceWatch::new(access, target, updates.clone(), update).run().await;
    }
}

/// Watches the slices that the own cluster's controllers keep for these Services, and begins anew when other Services
/// are asked for.
async fn watch_local_slices(
    access: &ApiAccess,
    target: Option<WatchTarget>,
    mut services: latest::Receiver<Coverage>,
    updates: &mpsc::Sender<ClusterUpdate>,
) {
    let Some(target) = target else { return };
    loop {
        let asked = services.borrow_and_update().clone();
        let labels = Some(asked.selector());
        let target = (asked != Coverage::NONE).then(|| WatchTarget { labels, ..target.clone() });
        if updates.send(ClusterUpdate::LocalServices(asked)).await.is_err() {
            return;
        }
        let watch = async {
            watch_one(access, target, updates, ClusterUpdate::LocalSlices).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = watch => {}
            changed = services.changed() => if changed.is_err() { return },
        }
        sleep(LOCAL_SLICES_DELAY).await;
    }
}

impl WatchTargets {
    fn new(options: &KubernetesOptions) -> Self {
        let KubernetesOptions { scope, import_selector, node, zone, .. } = options;
        let adopts_karmada = scope.adopt.contains(&Controller::Karmada);
        let imports = |group: &str, versions: &[&str]| WatchTarget {
            labels: import_selector.clone(),
            ..WatchTarget::all(group, versions, "ServiceImport", "serviceimports")
        };
        let slices = |labels: String| WatchTarget {
            labels: Some(labels),
            ..WatchTarget::all("discovery.k8s.io", &["v1"], "EndpointSlice", "endpointslices")
        };
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
            imports: imports(&scope.import_group, import_versions(&scope.import_group)),
            slices: WatchTarget {
                has_many_events: true,
                ..slices(slice_selector(options.only.as_ref()))
            },
            other_imports: scope
                .reads_gke_beside()
                .then(|| imports(adopt::GKE_GROUP, import_versions(adopt::GKE_GROUP))),
            services: adopts_karmada.then(|| WatchTarget {
                labels: Some(adopt::SERVICE_SELECTOR.to_owned()),
                ..WatchTarget::all("", &["v1"], "Service", "services")
            }),
            adoptable_slices: adopt::slice_selector(&scope.adopt)
                .map(|labels| WatchTarget { purpose: Some("adopted"), ..slices(labels) }),
            local_slices: adopts_karmada
                .then(|| WatchTarget { purpose: Some("local"), ..slices(String::new()) }),
            adopt: scope.adopt.clone(),
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
            vip_ranges: options.vip_ranges.then(|| WatchTarget {
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
        let imports = [Some(&mut self.imports), self.other_imports.as_mut()];
        let properties =
            [self.cluster_id.as_mut(), Some(&mut self.traffic), self.vip_ranges.as_mut()];
        for target in imports.into_iter().chain(properties).flatten() {
            discovery::prefer_served(target, groups);
        }
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
        adopt::GKE_GROUP => &adopt::GKE_VERSIONS,
        _ => &["v1", "v1beta1", "v1alpha1"],
    }
}
