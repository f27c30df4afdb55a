//! Whether watched resources were read, and why they cannot be read now.

use mcs_kube::{Decoder, ResourceEvent, WatchTarget, WatchedObject};

/// The state of one watched resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feed {
    /// Plural and group.
    pub resource: String,
    /// The API version of the latest list.
    pub version: Option<String>,
    /// Whether it was listed once, or is not needed and not available.
    pub synced: bool,
    /// Why it cannot be read now.
    pub failure: Option<String>,
    /// Whether the API server does not serve it.
    pub absent: bool,
    is_needed: bool,
}

/// The states of several watched resources.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feeds<const N: usize>([Feed; N]);

/// What an event does to the objects of its resource.
pub(crate) enum Change<D: Decoder> {
    /// Forget all of them.
    Clear,
    /// There is this object.
    Set(WatchedObject<D>),
    /// There is no such object any more.
    Remove(WatchedObject<D>),
}

/// What an event does to the objects, one after the other.
pub(crate) fn changes<D: Decoder>(event: ResourceEvent<D>) -> Vec<Change<D>> {
    match event {
        ResourceEvent::Listed { objects, .. } => {
            let objects = objects.into_iter().map(Change::Set);
            std::iter::once(Change::Clear).chain(objects).collect()
        }
        ResourceEvent::Changed(object) => vec![Change::Set(object)],
        ResourceEvent::Deleted(object) => vec![Change::Remove(object)],
        ResourceEvent::NotServed { .. }
        | ResourceEvent::Failing { .. }
        | ResourceEvent::Recovered
        | ResourceEvent::LeftOut { .. } => vec![],
    }
}

impl<const N: usize> Feeds<N> {
    /// The states before the first event.
    pub fn new(targets: [WatchTarget; N]) -> Self {
        Self(targets.map(|target| {
            let resource = target.versions.first().map(|api| match &*api.group {
                "" => api.plural.clone(),
                group => format!("{}.{group}", api.plural),
            });
            let purpose = target.purpose.map(|purpose| format!(" ({purpose})")).unwrap_or_default();
            Feed {
                resource: resource.unwrap_or_default() + &purpose,
                version: None,
                synced: false,
                failure: None,
                absent: false,
                is_needed: target.without.is_none(),
            }
        }))
    }

    /// Records what an event says beside objects.
    pub fn record<D: Decoder>(&mut self, index: usize, event: &ResourceEvent<D>) {
        if let Some(feed) = self.0.get_mut(index) {
            feed.record(event);
        }
    }

    /// One of them is not needed, and nobody reads it.
    pub fn skip(&mut self, index: usize) {
        if let Some(feed) = self.0.get_mut(index) {
            feed.synced = true;
        }
    }

    /// The state of one of them.
    pub const fn all(&self) -> &[Feed; N] {
        &self.0
    }

    /// Whether every one was read once.
    pub fn are_synced(&self) -> bool {
        self.0.iter().all(|feed| feed.synced)
    }
}

impl Feed {
    fn record<D: Decoder>(&mut self, event: &ResourceEvent<D>) {
        match event {
            ResourceEvent::Listed { version, .. } => {
                self.version = Some(version.clone());
                self.synced = true;
                self.absent = false;
                self.failure = None;
            }
            ResourceEvent::Recovered => self.failure = None,
            ResourceEvent::NotServed { .. } => {
                self.synced |= !self.is_needed;
                self.absent = true;
                self.fail("the API server does not serve it: install its CRD");
            }
            ResourceEvent::Failing { reason, is_forbidden, .. } => {
                self.synced |= *is_forbidden && !self.is_needed;
                self.fail(reason);
            }
            ResourceEvent::Changed(_)
            | ResourceEvent::Deleted(_)
            | ResourceEvent::LeftOut { .. } => {}
        }
    }

    fn fail(&mut self, reason: &str) {
        if self.failure.as_deref() != Some(reason) {
            tracing::warn!("cannot read {}: {reason}", self.resource);
        }
        self.failure = Some(reason.to_owned());
    }
}
