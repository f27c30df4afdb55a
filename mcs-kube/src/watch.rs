//! Lists and watches one resource of the API server, and starts again after errors.
//!
//! kube-runtime's watcher is no substitute for three reasons (checked in 5.0.0). It does not report bookmarks, so the time
//! of the last answer is unknown. It does not report that a watch works again. It restarts a watch that ends at once
//! without any delay.

mod answer;
mod errors;
pub(crate) mod events;
pub(crate) mod kept;
mod messages;
mod pieces;
mod recovery;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    pin::pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use backon::{BackoffBuilder as _, ExponentialBackoff};
use futures_util::{Stream, StreamExt as _};
use kube::{
    Client, Resource as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, WatchEvent, WatchParams},
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};

use self::{
    errors::{ReceiverDropped, WatchError},
    events::Query,
    kept::KeptObjects,
    recovery::{BACKOFF, Outage},
};
use crate::{
    access::{ApiAccess, ApiConnection, LIST_TIMEOUT, Server},
    decoder::{Decoder, WatchedObject},
};

/// A watch that lasts longer than requested by this time has failed.
const WATCH_MARGIN: Duration = Duration::from_secs(10);
/// An API server sends a bookmark each minute. A server that is silent for this time over several watches may lack the
/// resource version: it then accepts the watch and drops all events up to that version.
const LONGEST_QUIET: Duration = Duration::from_mins(4);
/// A watch with a connection of its own restarts on another connection after this silence, because no ping probes its
/// connection. It is longer than the time between two bookmarks.
const LONGEST_SILENCE: Duration = Duration::from_secs(100);
/// A watch that ends sooner without an event has failed.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);
/// The annotation of the bookmark that ends a streamed list (KEP-3157).
const LIST_END: &str = "k8s.io/initial-events-end";

/// What a watch reports about its resource.
#[derive(Clone, PartialEq, Debug)]
pub enum ResourceEvent<D: Decoder> {
    /// The next list lacks this many objects, for which the target has no room.
    LeftOut {
        /// Their namespace, if namespaces have their own [`Room`].
        namespace: String,
        /// Their number.
        objects: usize,
    },
    /// The complete list of objects.
    Listed {
        /// The API version, such as `v1beta1`.
        version: String,
        /// In no order. If a name occurs twice, the last object counts.
        objects: Vec<WatchedObject<D>>,
    },
    /// An object is new or different.
    Changed(WatchedObject<D>),
    /// An object was deleted. This is its last state.
    Deleted(WatchedObject<D>),
    /// The API server serves none of the versions.
    NotServed {
        /// The time of the last answer about the resource.
        last_heard: Option<SystemTime>,
    },
    /// The resource cannot be read now.
    Failing {
        /// The error, for people.
        reason: String,
        /// Whether the program lacks the right.
        is_forbidden: bool,
        /// The time of the last answer about the resource.
        last_heard: Option<SystemTime>,
    },
    /// The resource can be read again.
    Recovered,
}

/// Watches a resource until the receiver of its events is dropped. `U` is the type of the receiver's messages.
pub struct ResourceWatch<'a, D: Decoder, U> {
    access: &'a ApiAccess,
    target: WatchTarget,
    updates: mpsc::Sender<U>,
    /// Wraps an event in the receiver's type.
    update: Box<dyn Fn(ResourceEvent<D>) -> U + Send + Sync + 'a>,
    /// The index of the target's version that is in use.
    version: usize,
    lists: ListForm,
    /// Whether the next request is for JSON only, because protobuf was unreadable.
    json_once: bool,
    /// The API server of the last connection.
    server: Option<Arc<Server>>,
    /// Its kubeconfig, if that can be replaced.
    kubeconfig: Option<Arc<str>>,
    /// The latest resource version.
    resource_version: Option<String>,
    /// Whether the API server cannot list at that version, so that the next list needs the latest state.
    needs_quorum_read: bool,
    /// Whether a watch from that version misses no event.
    listed: bool,
    /// The time of the last event, bookmark or orderly end of a watch.
    last_heard: Option<SystemTime>,
    /// How long watches have lasted since the last event, bookmark or list.
    quiet: Duration,
    /// The outage that was reported and has not ended.
    outage: Option<Outage>,
    backoff: ExponentialBackoff,
}

/// The form of the next list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ListForm {
    /// As a watch that begins with all objects (KEP-3157).
    Streamed,
    /// The next list is a plain one, because a streamed one failed.
    PlainOnce,
    /// The API server streams no lists.
    Plain,
}

impl<'a, D: Decoder, U> ResourceWatch<'a, D, U> {
    /// A watch that begins with the preferred version and a streamed list.
    pub fn new(
        access: &'a ApiAccess,
        target: WatchTarget,
        updates: mpsc::Sender<U>,
        update: impl Fn(ResourceEvent<D>) -> U + Send + Sync + 'a,
    ) -> Self {
        Self {
            access,
            target,
            updates,
            update: Box::new(update),
            version: 0,
            lists: ListForm::Streamed,
            json_once: false,
            server: None,
            kubeconfig: None,
            resource_version: None,
            needs_quorum_read: false,
            listed: false,
            last_heard: None,
            quiet: Duration::ZERO,
            outage: None,
            backoff: BACKOFF.build(),
        }
    }

    /// Runs until the receiver is dropped.
    pub async fn run(mut self) {
        loop {
            let recovered = match self.access.connection().await {
                Ok(connection) => match self.list_and_watch(&connection).await {
                    Ok(()) => continue,
                    Err(error) => self.recover(error, &connection).await,
                },
                Err(error) => self.wait_for_access(error).await,
            };
            if recovered.is_err() {
                return;
            }
        }
    }

    /// Returns when the connection's credentials expire soon.
    async fn list_and_watch(&mut self, connection: &ApiConnection) -> Result<(), WatchError> {
        let client = &connection.client;
        self.note_server(connection);
        if !self.listed {
            self.list_once(client).await?;
        }
        loop {
            let seconds = fastrand::u32(self.target.seconds.clone());
            let version = self.resource_version.clone().unwrap_or_default();
            let params = self.params(seconds);
            let events =
                events::watch(&self.query(client, &self.path()), &params, &version).await?;
            self.json_once = false;
            if self.outage.take().is_some() {
                self.send(ResourceEvent::Recovered).await?;
            }
            let limit = Duration::from_secs(seconds.into()) + WATCH_MARGIN;
            self.process(pin!(events), limit, false).await?;
            if connection.expires_soon() {
                return Ok(());
            }
        }
    }

    /// Lists again at another API server: resource versions of two servers are not comparable.
    fn note_server(&mut self, connection: &ApiConnection) {
        self.kubeconfig.clone_from(&connection.content);
        let former = self.server.replace(Arc::clone(&connection.server));
        if former.is_some_and(|former| former != connection.server) {
            tracing::debug!("the kubeconfig has another server or authority: listing again");
            self.listed = false;
            self.resource_version = None;
            self.needs_quorum_read = true;
        }
    }

    async fn list_once(&mut self, client: &Client) -> Result<(), WatchError> {
        match self.lists {
            ListForm::Streamed => {}
            ListForm::PlainOnce => {
                self.lists = ListForm::Streamed;
                return self.list(client).await;
            }
            ListForm::Plain => return self.list(client).await,
        }
        let streamed = self.stream(client).await;
        // A proxy that buffers stops streams, and may let plain lists through.
        if !self.listed && streamed.as_ref().is_err_and(WatchError::may_be_of_streams) {
            self.lists = ListForm::PlainOnce;
        }
        streamed
    }

    /// The path of the resource on the API server.
    fn path(&self) -> String {
        let resource = &self.target.versions[self.version];
        DynamicObject::url_path(resource, self.target.namespace.as_deref())
    }

    fn query<'q>(&self, client: &'q Client, path: &'q str) -> Query<'q> {
        Query {
            client,
            path,
            json_alone: self.json_once,
            has_many_events: self.target.has_many_events,
        }
    }

    /// Lists with a watch that begins with all existing objects, and then continues that watch.
    async fn stream(&mut self, client: &Client) -> Result<(), WatchError> {
        let seconds = fastrand::u32(self.target.seconds.clone());
        let params = WatchParams { send_initial_events: true, ..self.params(seconds) };
        let path = self.path();
        let query = self.query(client, &path);
        let mut events = pin!(events::watch(&query, &params, self.oldest()).await?);
        self.json_once = false;
        let mut kept = KeptObjects::with_room(&self.target.room);
        loop {
            let event =
                timeout(LIST_TIMEOUT, events.next()).await.map_err(|_| WatchError::Silent)?;
            match event.ok_or(WatchError::ListCut)?? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => kept.push(object),
                // KEP-3157 rules this out among initial events.
                WatchEvent::Deleted(gone) => {
                    kept.remove(&gone.key());
                }
                WatchEvent::Bookmark(bookmark) => {
                    if bookmark.metadata.annotations.contains_key(LIST_END) {
                        self.take_list(kept, Some(bookmark.metadata.resource_version)).await?;
                        break;
                    }
                }
                WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
            }
        }
        self.process(events, Duration::from_secs(seconds.into()) + WATCH_MARGIN, true).await
    }

    async fn list(&mut self, client: &Client) -> Result<(), WatchError> {
        // Without a resource version, the API server allows no `resourceVersionMatch`.
        let params = match self.oldest() {
            "" => ListParams::default(),
            version => ListParams::default().match_any().at(version),
        };
        let params = ListParams {
            label_selector: self.target.labels.clone(),
            field_selector: self.target.fields.clone(),
            ..params
        };
        let path = self.path();
        let mut kept = KeptObjects::with_room(&self.target.room);
        let query = self.query(client, &path);
        let list = timeout(LIST_TIMEOUT, events::list(&query, &params, &mut kept));
        let version = list.await.map_err(|_| WatchError::Silent)??;
        self.json_once = false;
        self.take_list(kept, version).await
    }

    async fn take_list(
        &mut self,
        kept: KeptObjects<D>,
        resource_version: Option<String>,
    ) -> Result<(), WatchError> {
        self.resource_version = resource_version;
        self.needs_quorum_read = false;
        self.listed = true;
        self.quiet = Duration::ZERO;
        self.last_heard = Some(SystemTime::now());
        self.outage = None;
        self.backoff = BACKOFF.build();
        let version = self.target.versions[self.version].version.clone();
        let (objects, left_out) = kept.finish();
        for (namespace, objects) in left_out {
            self.send(ResourceEvent::LeftOut { namespace, objects }).await?;
        }
        Ok(self.send(ResourceEvent::Listed { version, objects }).await?)
    }

    /// Reports the events of a watch until the server ends it, which it does when the watch's time is
    /// up. `had_events` says whether the watch had events before.
    async fn process(
        &mut self,
        mut events: impl Stream<Item = kube::Result<WatchEvent<WatchedObject<D>>>> + Unpin,
        limit: Duration,
        mut had_events: bool,
    ) -> Result<(), WatchError> {
        let is_alone = self.target.has_many_events;
        let limit = if is_alone { limit.min(LONGEST_SILENCE) } else { limit };
        let mut renewals = self.access.renewals();
        let mut begin = Instant::now();
        loop {
            let event = tokio::select! {
                biased;
                () = self.access.replaced(self.kubeconfig.as_ref()) => return Err(WatchError::Replaced),
                // The shared connection is pinged, and usually leads to the same server.
                Ok(()) = renewals.changed(), if is_alone => return Err(WatchError::Renewed),
                event = timeout(limit, events.next()) => event,
            };
            let Ok(event) = event else {
                return if is_alone { self.note_quiet(begin) } else { Err(WatchError::Silent) };
            };
            let Some(event) = event else {
                let is_short = !had_events && begin.elapsed() < SHORTEST_WATCH;
                if is_short {
                    return Err(WatchError::WatchCut);
                }
                self.note_quiet(begin)?;
                self.last_heard = Some(SystemTime::now());
                return Ok(());
            };
            let event = event?;
            self.last_heard = Some(SystemTime::now());
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    self.resource_version = object.version().map(str::to_owned);
                    if self.target.room.has(&object.key().namespace) {
                        self.send(ResourceEvent::Changed(object)).await?;
                    }
                }
                WatchEvent::Deleted(object) => {
                    self.resource_version = object.version().map(str::to_owned);
                    if self.target.room.has(&object.key().namespace) {
                        self.send(ResourceEvent::Deleted(object)).await?;
                    }
                }
                WatchEvent::Bookmark(bookmark) => {
                    self.resource_version = Some(bookmark.metadata.resource_version);
                }
                WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
            }
            had_events = true;
            begin = Instant::now();
            self.quiet = Duration::ZERO;
            self.backoff = BACKOFF.build();
        }
    }

    /// Adds the time of a watch that ends without an event since `begin`.
    fn note_quiet(&mut self, begin: Instant) -> Result<(), WatchError> {
        self.quiet += begin.elapsed();
        if self.quiet >= LONGEST_QUIET { Err(WatchError::Quiet) } else { Ok(()) }
    }

    async fn send(&self, event: ResourceEvent<D>) -> Result<(), ReceiverDropped> {
        self.updates.send((self.update)(event)).await.map_err(|_| ReceiverDropped)
    }

    fn params(&self, seconds: u32) -> WatchParams {
        WatchParams {
            label_selector: self.target.labels.clone(),
            field_selector: self.target.fields.clone(),
            timeout: Some(seconds),
            ..WatchParams::default()
        }
    }

    /// The oldest resource version that a list may have, by the rules of client-go
    /// (`relistResourceVersion`, `rewatchResourceVersion`). The API server may answer from its cache, but
    /// not with an older state than the watch has seen. An empty version requests the latest state (a
    /// quorum read). API servers that stream lists answer such a request from the cache too. The first list
    /// of others may have any state ("0"), because thousands of agents must not read all from etcd.
    fn oldest(&self) -> &str {
        let first = if self.lists == ListForm::Plain { "0" } else { "" };
        if self.needs_quorum_read { "" } else { self.resource_version.as_deref().unwrap_or(first) }
    }
}

/// How long a watch lasts, in seconds.
const WATCH_SECONDS: RangeInclusive<u32> = 240..=300;

/// The resource that a watch reads.
#[derive(Clone, Debug)]
pub struct WatchTarget {
    /// The resource in each version that the program can read, the preferred one first.
    pub versions: Vec<ApiResource>,
    /// The namespace of the requests; `None` means all, and objects of the whole cluster.
    pub namespace: Option<String>,
    /// The `labelSelector` of the requests.
    pub labels: Option<String>,
    /// The `fieldSelector` of the requests.
    pub fields: Option<String>,
    /// What the resource is read for, if more than one watch reads it.
    pub purpose: Option<&'static str>,
    /// The consequence if the program lacks the right to read the resource. `None`: the program requires the right.
    pub without: Option<&'static str>,
    /// The memory for a list. Objects beyond it are only counted.
    pub room: Room,
    /// How long a watch lasts, in seconds. It is a range so that programs that started together do not start their watches
    /// again together. An API server checks an account when a watch starts, and not again while it lasts.
    pub seconds: RangeInclusive<u32>,
    /// Whether the watch gets a connection of its own because of many events: an API server spends less on each there.
    pub has_many_events: bool,
}

impl WatchTarget {
    /// All objects of a kind, in these versions of its group.
    pub fn all(group: &str, versions: &[&str], kind: &str, plural: &str) -> Self {
        let version = |version: &&str| {
            let kind = GroupVersionKind::gvk(group, version, kind);
            ApiResource::from_gvk_with_plural(&kind, plural)
        };
        Self {
            versions: versions.iter().map(version).collect(),
            namespace: None,
            labels: None,
            fields: None,
            purpose: None,
            without: None,
            room: Room::Endless,
            seconds: WATCH_SECONDS,
            has_many_events: false,
        }
    }
}

/// How many bytes of memory the objects of a list can take, by [`Decoder::weight`].
#[derive(Clone, Debug, Default)]
pub enum Room {
    /// No limit.
    #[default]
    Endless,
    /// This many for all objects together.
    Total(usize),
    /// This many for each of these namespaces. Objects of other namespaces are skipped.
    Each(Arc<BTreeMap<String, usize>>),
}

impl Room {
    /// Whether objects of this namespace are read.
    fn has(&self, namespace: &str) -> bool {
        match self {
            Self::Endless | Self::Total(_) => true,
            Self::Each(namespaces) => namespaces.contains_key(namespace),
        }
    }
}
