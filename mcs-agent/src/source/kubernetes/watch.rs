//! Follows one resource: lists it, watches it from there, and does that again whenever it has to.
//!
//! kube has a watcher too (in kube-runtime), which tells neither that a watch works again nor which
//! bookmarks came, and makes a watch that ends at once anew at once.

#[cfg(test)]
mod tests;

use std::{
    convert::Infallible,
    pin::pin,
    time::{Duration, SystemTime},
};

use futures_util::{Stream, StreamExt as _};
use kube::{
    Api,
    api::{ApiResource, ListParams, WatchEvent, WatchParams},
};
use thiserror::Error;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};

use super::{
    access::{Access, AccessError, Connection},
    backoff::Backoff,
    reading::{Read, Reading},
    state::Update,
};

/// For how many seconds a watch is asked for: agents that began together should not ask again
/// together.
const WATCH_SECONDS: std::ops::RangeInclusive<u32> = 240..=300;
/// How much longer the server may take to end a watch.
const WATCH_MARGIN: Duration = Duration::from_secs(10);
/// Longer than the server takes to give up on a list, or pauses in a stream of one.
const LIST_TIMEOUT: Duration = Duration::from_secs(70);
/// A watch that ends sooner, and without having told anything, has failed.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);
/// A server is not left alone for longer, whatever it asks for.
const LONGEST_ASKED_FOR: Duration = Duration::from_secs(30);
/// On the bookmark that ends a streamed list.
const LIST_END: &str = "k8s.io/initial-events-end";

/// What is followed.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The resource in each of its versions that can be read, the preferred one first.
    pub(super) versions: Vec<ApiResource>,
    /// As in `labelSelector`.
    pub(super) labels: Option<String>,
    /// As in `fieldSelector`.
    pub(super) fields: Option<String>,
}

/// What following tells.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum News<R: Reading> {
    /// These are all objects there are.
    Listed {
        /// `v1beta1`.
        version: String,
        /// In no order; the last of a name counts.
        objects: Vec<Read<R>>,
    },
    /// One is new, or different.
    Changed(Read<R>),
    /// One is gone, and was this.
    Gone(Read<R>),
    /// The API server serves the resource in none of the versions.
    Absent {
        /// When it was last heard of.
        heard: Option<SystemTime>,
    },
    /// The resource cannot be read now.
    Failing {
        /// Why.
        why: String,
        /// When it was last heard of.
        heard: Option<SystemTime>,
    },
    /// It can be read again.
    Recovered,
}

/// Follows a target until nobody listens any more.
pub(super) struct Watch<'a, R: Reading> {
    access: &'a Access,
    target: Target,
    updates: mpsc::Sender<Update>,
    /// Makes an update of news.
    update: fn(News<R>) -> Update,
    /// Which of the target's versions is asked for.
    version: usize,
    /// Whether lists are streamed.
    streams: bool,
    /// The resource version seen last.
    seen: Option<String>,
    /// Whether a watch from there misses nothing.
    listed: bool,
    /// When a list or a watch last told anything, be it that nothing happens.
    heard: Option<SystemTime>,
    /// What was told of, and is not over.
    trouble: Option<Trouble>,
    backoff: Backoff,
}

/// Why a resource cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    /// The API server says so.
    Answer,
    /// Requests get no answer.
    Silence,
}

/// Nobody listens any more.
#[derive(Debug, Error)]
#[error("nobody listens any more")]
struct Deaf;

/// Why a list or a watch ended.
#[derive(Debug, Error)]
enum Failure {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("the API server is silent")]
    Silent,
    #[error("the API server ended the list")]
    Cut,
    #[error("the API server ends watches at once")]
    Short,
    #[error(transparent)]
    Deaf(#[from] Deaf),
}

impl<'a, R: Reading> Watch<'a, R> {
    /// Begins with the preferred version, and with streaming.
    pub(super) const fn new(
        access: &'a Access,
        target: Target,
        updates: mpsc::Sender<Update>,
        update: fn(News<R>) -> Update,
    ) -> Self {
        Self {
            access,
            target,
            updates,
            update,
            version: 0,
            streams: true,
            seen: None,
            listed: false,
            heard: None,
            trouble: None,
            backoff: Backoff::new(),
        }
    }

    /// Does not end before the updates' receiver.
    pub(super) async fn run(mut self) {
        loop {
            let connection = self.access.connection();
            let Err(failure) = self.follow(&connection).await;
            if self.recover(failure, &connection).await.is_err() {
                return;
            }
        }
    }

    async fn follow(&mut self, connection: &Connection) -> Result<Infallible, Failure> {
        let api = &self.target.versions[self.version];
        let api = Api::<Read<R>>::all_with(connection.client.clone(), api);
        if !self.listed {
            if self.streams {
                self.stream(&api).await?;
            } else {
                self.list(&api).await?;
            }
        }
        loop {
            let seconds = fastrand::u32(WATCH_SECONDS);
            let seen = self.seen.clone().unwrap_or_default();
            let events = api.watch(&self.params(seconds), &seen).await?;
            if self.trouble.take().is_some() {
                self.tell(News::Recovered).await?;
            }
            let patience = Duration::from_secs(seconds.into()) + WATCH_MARGIN;
            self.events(pin!(events), patience, false).await?;
        }
    }

    /// Lists by a watch that begins with what is there, and goes on with that watch.
    async fn stream(&mut self, api: &Api<Read<R>>) -> Result<(), Failure> {
        let seconds = fastrand::u32(WATCH_SECONDS);
        let params = WatchParams { send_initial_events: true, ..self.params(seconds) };
        let mut events = pin!(api.watch(&params, self.oldest()).await?);
        let mut objects = Vec::new();
        loop {
            let event = timeout(LIST_TIMEOUT, events.next()).await.map_err(|_| Failure::Silent)?;
            match event.ok_or(Failure::Cut)?? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => objects.push(object),
                // Kubernetes says that there are none of these.
                WatchEvent::Deleted(gone) => objects.retain(|object| object.key() != gone.key()),
                WatchEvent::Bookmark(bookmark) => {
                    if bookmark.metadata.annotations.contains_key(LIST_END) {
                        self.take_list(objects, Some(bookmark.metadata.resource_version)).await?;
                        break;
                    }
                }
                WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
            }
        }
        self.events(events, Duration::from_secs(seconds.into()) + WATCH_MARGIN, true).await
    }

    async fn list(&mut self, api: &Api<Read<R>>) -> Result<(), Failure> {
        let params = ListParams {
            label_selector: self.target.labels.clone(),
            field_selector: self.target.fields.clone(),
            ..ListParams::default().match_any().at(self.oldest())
        };
        let list =
            timeout(LIST_TIMEOUT, api.list(&params)).await.map_err(|_| Failure::Silent)??;
        self.take_list(list.items, list.metadata.resource_version).await
    }

    async fn take_list(
        &mut self,
        objects: Vec<Read<R>>,
        seen: Option<String>,
    ) -> Result<(), Failure> {
        self.seen = seen;
        self.listed = true;
        self.heard = Some(SystemTime::now());
        self.trouble = None;
        self.backoff.reset();
        let version = self.target.versions[self.version].version.clone();
        Ok(self.tell(News::Listed { version, objects }).await?)
    }

    /// Follows a watch, which may have `told` something, until the server ends it: it does when its
    /// time is up.
    async fn events(
        &mut self,
        mut events: impl Stream<Item = kube::Result<WatchEvent<Read<R>>>> + Unpin,
        patience: Duration,
        mut told: bool,
    ) -> Result<(), Failure> {
        let begin = Instant::now();
        loop {
            let event = timeout(patience, events.next()).await.map_err(|_| Failure::Silent)?;
            let Some(event) = event else {
                let is_short = !told && begin.elapsed() < SHORTEST_WATCH;
                if is_short {
                    return Err(Failure::Short);
                }
                self.heard = Some(SystemTime::now());
                return Ok(());
            };
            let event = event?;
            self.heard = Some(SystemTime::now());
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    self.seen = object.version().map(str::to_owned);
                    self.tell(News::Changed(object)).await?;
                }
                WatchEvent::Deleted(object) => {
                    self.seen = object.version().map(str::to_owned);
                    self.tell(News::Gone(object)).await?;
                }
                WatchEvent::Bookmark(bookmark) => {
                    self.seen = Some(bookmark.metadata.resource_version);
                }
                WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
            }
            told = true;
            self.backoff.reset();
        }
    }

    async fn tell(&self, news: News<R>) -> Result<(), Deaf> {
        self.updates.send((self.update)(news)).await.map_err(|_| Deaf)
    }

    fn params(&self, seconds: u32) -> WatchParams {
        WatchParams {
            label_selector: self.target.labels.clone(),
            field_selector: self.target.fields.clone(),
            timeout: Some(seconds),
            ..WatchParams::default()
        }
    }

    /// A list may come from the API server's cache, but must not be older than what was seen.
    fn oldest(&self) -> &str {
        self.seen.as_deref().unwrap_or("0")
    }

    /// Gets ready for another attempt, and tells what is to be known of it.
    async fn recover(&mut self, failure: Failure, connection: &Connection) -> Result<(), Deaf> {
        let was_listing = !self.listed;
        let mut asked_for = Duration::ZERO;
        match failure {
            Failure::Deaf(deaf) => return Err(deaf),
            Failure::Api(error) => match code(&error) {
                Some(400 | 422) if was_listing && self.streams => {
                    tracing::debug!(%error, "the API server streams no lists");
                    self.streams = false;
                    return Ok(());
                }
                Some(404) => {
                    self.listed = false;
                    self.version = (self.version + 1) % self.target.versions.len();
                    if self.version > 0 {
                        return Ok(());
                    }
                    self.trouble = Some(Trouble::Answer);
                    self.tell(News::Absent { heard: self.heard }).await?;
                }
                Some(410) => {
                    tracing::debug!(%error, "listing anew");
                    self.listed = false;
                    self.backoff.reset();
                }
                code => {
                    let trouble = if code.is_some() { Trouble::Answer } else { Trouble::Silence };
                    if (self.trouble, trouble) == (Some(Trouble::Silence), Trouble::Answer) {
                        // It is back, and will soon be all there.
                        self.backoff.reset();
                    }
                    if was_listing {
                        // There may be no such version (any more): a list from scratch is better
                        // than none.
                        self.seen = None;
                    }
                    asked_for = retry_after(&error);
                    let renewed = match code {
                        None | Some(401) => self.access.renew(connection).await,
                        Some(_) => Ok(()),
                    };
                    self.fail(trouble, describe(error), renewed).await?;
                }
            },
            Failure::Silent | Failure::Cut | Failure::Short => {
                let renewed = self.access.renew(connection).await;
                self.fail(Trouble::Silence, failure.to_string(), renewed).await?;
            }
        }
        sleep(self.backoff.wait() + asked_for).await;
        Ok(())
    }

    async fn fail(
        &mut self,
        trouble: Trouble,
        what: String,
        renewed: Result<(), AccessError>,
    ) -> Result<(), Deaf> {
        self.trouble = Some(trouble);
        let why = match renewed {
            Ok(()) => what,
            Err(error) => format!("{what}; {:#}", anyhow::Error::new(error)),
        };
        self.tell(News::Failing { why, heard: self.heard }).await
    }
}

/// What the API server answered; nothing if the request was lost on its way.
fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// How long a server that has too much to do wants to be left alone.
fn retry_after(error: &kube::Error) -> Duration {
    let details = match error {
        kube::Error::Api(status) => status.details.as_ref(),
        _ => None,
    };
    let seconds = details.map_or(0, |details| details.retry_after_seconds);
    Duration::from_secs(seconds.into()).min(LONGEST_ASKED_FOR)
}

/// In one line, without what kube says twice.
fn describe(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message,
        kube::Error::Service(error) => chain(&*error),
        kube::Error::HyperError(error) => chain(&error),
        kube::Error::ReadEvents(error) => {
            tracing::debug!("{}", chain(&error));
            "the connection was lost".to_owned()
        }
        other => chain(&other),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let part = error.to_string();
        if !text.ends_with(&part) {
            text = format!("{text}: {part}");
        }
        source = error.source();
    }
    text
}
