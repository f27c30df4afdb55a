//! The state of a watched resource, and what each event of it does to its objects.

use mcs_kube::{Decoder, ResourceEvent, WatchTarget, WatchedObject};

/// The state of one watched resource.
#[derive(Default, Debug)]
pub struct Feed {
    /// Plural and group, for people.
    resource: String,
    /// The API version of the latest list.
    pub version: Option<String>,
    /// Whether it was listed once, or is not needed and not available.
    pub synced: bool,
    /// Why it cannot be read now.
    pub failure: Option<String>,
    /// Whether the API server does not serve it.
    pub absent: bool,
    is_optional: bool,
}

/// The effect of an event on the objects of its resource.
pub(crate) enum Change<D: Decoder> {
    /// Forget all of them.
    Clear,
    /// There is this object.
    Set(WatchedObject<D>),
    /// There is no such object any more.
    Remove(WatchedObject<D>),
}

/// The effects of an event on the objects, in order.
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

impl Feed {
    /// The state before the first event.
    pub fn new(target: &WatchTarget) -> Self {
        let resource = target.versions.first().map(|api| match &*api.group {
            "" => api.plural.clone(),
            group => format!("{}.{group}", api.plural),
        });
        let purpose = target.purpose.map(|purpose| format!(" ({purpose})")).unwrap_or_default();
        Self {
            resource: resource.unwrap_or_default() + &purpose,
            is_optional: target.without.is_some(),
            ..Self::default()
        }
    }

    /// As [`Feed::record`], and logs why the resource cannot be read.
    pub fn record_and_log<D: Decoder>(&mut self, event: &ResourceEvent<D>) {
        let former = self.failure.clone();
        self.record(event);
        if let Some(problem) = self.problem().filter(|_| self.failure != former) {
            tracing::warn!("{problem}");
        }
    }

    /// Why the resource cannot be read now, with its name.
    pub fn problem(&self) -> Option<String> {
        Some(format!("cannot read {}: {}", self.resource, self.failure.as_ref()?))
    }

    /// Records the state of the resource after an event.
    pub fn record<D: Decoder>(&mut self, event: &ResourceEvent<D>) {
        match event {
            ResourceEvent::Listed { version, .. } => {
                self.version = Some(version.clone());
                self.synced = true;
                self.absent = false;
                self.failure = None;
            }
            ResourceEvent::Recovered => self.failure = None,
            ResourceEvent::NotServed { .. } => {
                self.synced |= self.is_optional;
                self.absent = true;
                self.failure = Some("the API server does not serve it: install its CRD".to_owned());
            }
            ResourceEvent::Failing { reason, is_forbidden, .. } => {
                self.synced |= *is_forbidden && self.is_optional;
                self.failure = Some(reason.clone());
            }
            ResourceEvent::Changed(_)
            | ResourceEvent::Deleted(_)
            | ResourceEvent::LeftOut { .. } => {}
        }
    }
}
