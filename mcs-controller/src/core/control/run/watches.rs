//! The watches of this cluster, and its id, which is read first.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::ListParams};
use mcs_kube::{ApiAccess, Decoder, ResourceEvent, ResourceWatch, WatchTarget};
use tokio::{sync::mpsc, time::timeout};

use super::super::{Settings, Update, outbox::until_it_works};
use crate::core::{
    clusterset::ClusterId,
    own_cluster::{OwnCluster, OwnEvent, OwnResource},
};

/// The time limit of a read.
const LIMIT: Duration = Duration::from_secs(10);

/// Starts the watches of this cluster.
pub(super) fn watch_own(
    access: &Arc<ApiAccess>,
    settings: &Settings,
    updates: &mpsc::Sender<Update>,
) {
    own(access, OwnResource::Exports, updates, OwnEvent::Exports);
    own(access, OwnResource::Services, updates, OwnEvent::Services);
    own(access, OwnResource::Slices, updates, OwnEvent::Slices);
    own(access, OwnResource::Namespaces, updates, OwnEvent::Namespaces);
    own(access, OwnResource::Properties, updates, OwnEvent::Properties);
    own(access, OwnResource::Imports, updates, OwnEvent::Imports);
    own(access, OwnResource::ImportedSlices, updates, OwnEvent::ImportedSlices);
    if settings.service_ranges.is_empty() {
        own(access, OwnResource::Ranges, updates, OwnEvent::Ranges);
    }
    own(access, OwnResource::Nodes, updates, OwnEvent::Nodes);
}

fn own<D: Decoder<Value: Sync> + Sync>(
    access: &Arc<ApiAccess>,
    resource: OwnResource,
    updates: &mpsc::Sender<Update>,
    event: fn(ResourceEvent<D>) -> OwnEvent,
) {
    spawn(access, resource.target(), updates, move |one| Update::Own(event(one)));
}

/// Watches a resource as long as the control task runs.
pub(super) fn spawn<D: Decoder<Value: Sync> + Sync>(
    access: &Arc<ApiAccess>,
    target: WatchTarget,
    updates: &mpsc::Sender<Update>,
    update: impl Fn(ResourceEvent<D>) -> Update + Send + Sync + 'static,
) {
    let (access, updates) = (Arc::clone(access), updates.clone());
    tokio::spawn(async move { ResourceWatch::new(&access, target, updates, update).run().await });
}

/// Waits until the cluster's id is known.
pub(super) async fn identify(
    settings: &Settings,
    own: &mut OwnCluster,
    updates: &mut mpsc::Receiver<Update>,
) -> anyhow::Result<ClusterId> {
    while !own.has_properties() {
        match updates.recv().await {
            Some(Update::Own(event)) => drop(own.apply(event)),
            Some(_) => {}
            None => bail!("every watch has ended"),
        }
    }
    let said = own.cluster_id();
    match (&settings.cluster, said) {
        (Some(given), Some(said)) if given.as_str() != said => bail!(
            "--cluster-id is {given}, and the ClusterProperty cluster.clusterset.k8s.io says {said}: \
             give one of them, or make them agree"
        ),
        (Some(given), _) => Ok(given.clone()),
        (None, Some(said)) => said
            .parse()
            .context("the ClusterProperty cluster.clusterset.k8s.io cannot be used as cluster id"),
        (None, None) => bail!(
            "this cluster has no id: create the ClusterProperty cluster.clusterset.k8s.io \
             (about.k8s.io), or give --cluster-id"
        ),
    }
}

/// The uid of this cluster: that of its namespace `kube-system`. Waits until it can be read.
pub(super) async fn cluster_uid(access: &ApiAccess) -> String {
    until_it_works("read the uid of this cluster", || read_uid(access)).await
}

async fn read_uid(access: &ApiAccess) -> anyhow::Result<String> {
    let namespaces: Api<Namespace> = Api::all(access.connection().await?.client);
    // The controller may list namespaces, and not get one.
    let named = ListParams::default().fields("metadata.name=kube-system");
    let list = timeout(LIMIT, namespaces.list_metadata(&named))
        .await
        .context("the API server does not answer")?
        .context("cannot list namespaces")?;
    let namespace = list.items.into_iter().next().context("there is no namespace kube-system")?;
    namespace.metadata.uid.context("namespace kube-system has no uid")
}
