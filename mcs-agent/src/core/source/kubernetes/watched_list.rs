//! The objects of one watched resource, and its state for `status`.

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use mcs_kube::{Decoder, ResourceEvent, WatchTarget, WatchedObject};

use crate::core::model::{Kind, KindStatus, ObjectEvent, ObjectKey, ObjectRef, SourceProblem};

/// What to do about a missing right.
const ADVICE_FORBIDDEN: &str = "; grant it as the ClusterRole of the chart does";

/// The state of one watched resource.
#[derive(Debug)]
pub(crate) struct WatchedResource {
    /// Plural and group, such as `serviceimports.multicluster.x-k8s.io`.
    resource: String,
    /// The versions that the agent can read.
    versions: Vec<String>,
    /// The version of the latest list.
    pub(super) version: Option<String>,
    /// Whether it was listed once, or is known to be unavailable and not needed.
    pub(super) synced: bool,
    /// As in [`WatchTarget`].
    without: Option<&'static str>,
    /// Why it cannot be read now.
    pub(super) failure: Option<String>,
    /// The time of the last answer before that failure.
    last_heard: Option<SystemTime>,
}

/// What is used of the objects of one watched resource, or why an object does not decode.
#[derive(Debug)]
pub(crate) struct WatchedList<T> {
    pub(crate) resource: WatchedResource,
    /// Whether a cluster need not have the resource.
    is_optional: bool,
    objects: BTreeMap<ObjectKey, Decoded<T>>,
}

type Decoded<T> = Result<T, String>;

impl WatchedResource {
    pub(super) fn new(target: &WatchTarget) -> Self {
        let resource = target.versions.first().map(|api| match api.group.as_str() {
            "" => api.plural.clone(),
            group => format!("{}.{group}", api.plural),
        });
        let purpose = target.purpose.map(|purpose| format!(" ({purpose})")).unwrap_or_default();
        Self {
            resource: resource.unwrap_or_default() + &purpose,
            versions: target.versions.iter().map(|api| api.version.clone()).collect(),
            version: None,
            synced: false,
            without: target.without,
            failure: None,
            last_heard: None,
        }
    }

    /// Nothing has to be read of it now.
    pub(crate) fn set_unneeded(&mut self) {
        self.synced = true;
        self.failure = None;
    }

    /// Records what an event says beside objects.
    pub(super) fn record<D: Decoder>(&mut self, event: &ResourceEvent<D>) {
        match event {
            ResourceEvent::Listed { version, .. } => {
                self.version = Some(version.clone());
                self.synced = true;
                self.failure = None;
            }
            ResourceEvent::Changed(_)
            | ResourceEvent::Deleted(_)
            | ResourceEvent::LeftOut { .. } => {}
            ResourceEvent::Recovered => self.failure = None,
            ResourceEvent::Failing { reason, is_forbidden, last_heard } => {
                let advice = if *is_forbidden { ADVICE_FORBIDDEN } else { "" };
                self.failure = Some(format!("{reason}{advice}"));
                self.last_heard = *last_heard;
                self.synced |= *is_forbidden && self.without.is_some();
            }
            ResourceEvent::NotServed { last_heard } => {
                let versions = self.versions.join(" or ");
                // Groups of Kubernetes itself end alike, and have no CRD.
                let is_built_in = self.resource.ends_with(".k8s.io")
                    && !self.resource.ends_with(".x-k8s.io")
                    && !self.resource.ends_with(".about.k8s.io");
                let advice =
                    if is_built_in { "it needs a newer Kubernetes" } else { "install its CRD" };
                self.failure =
                    Some(format!("the API server does not serve it as {versions}: {advice}"));
                self.last_heard = *last_heard;
            }
        }
    }

    pub(super) fn status(&self) -> KindStatus {
        KindStatus {
            resource: self.resource.clone(),
            version: self.version.clone(),
            synced: self.synced,
            known_until: self.known_until(),
        }
    }

    fn known_until(&self) -> Option<u64> {
        let last_heard = self.last_heard.filter(|_| self.synced && self.failure.is_some())?;
        Some(last_heard.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }

    pub(super) fn problem(&self) -> Option<SourceProblem> {
        let consequence = match (self.without, &self.version) {
            (_, None) if !self.synced => "the agent changes nothing until it can read it",
            (Some(without), None) => without,
            _ => "the agent keeps using what it last read",
        };
        let failure = self.failure.as_ref()?;
        let message = format!("{failure}; {consequence}");
        Some(SourceProblem { place: self.resource.clone(), message })
    }
}

impl<T> WatchedList<T> {
    pub(crate) fn new(target: &WatchTarget) -> Self {
        let resource = WatchedResource::new(target);
        Self { resource, is_optional: false, objects: BTreeMap::new() }
    }

    /// A cluster need not have the resource: one that is not served counts as an empty list at first.
    pub(crate) fn optional(self) -> Self {
        Self { is_optional: true, ..self }
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.objects.values().flatten()
    }

    /// Applies an event, and keeps what it says. `read`: what is used of an object, if anything is.
    pub(crate) fn keep<D: Decoder>(
        &mut self,
        event: ResourceEvent<D>,
        read: impl Fn(D::Value) -> Option<T>,
    ) {
        let is_absent = matches!(event, ResourceEvent::NotServed { .. });
        match self.change(event, read) {
            Some((key, Some(object))) => drop(self.objects.insert(key, object)),
            Some((key, None)) => drop(self.objects.remove(&key)),
            None if is_absent && self.is_optional && self.objects.is_empty() => {
                self.resource.set_unneeded();
            }
            None => {}
        }
    }

    /// Applies an event. Returns those for the store, which has what was kept.
    pub(crate) fn pass<D: Decoder>(
        &mut self,
        kind: Kind,
        event: ResourceEvent<D>,
        read: impl Fn(D::Value) -> Option<T>,
    ) -> Vec<ObjectEvent<T>> {
        let is_list = matches!(event, ResourceEvent::Listed { .. });
        // The API server answers 503, not 404, until it has read its CRDs.
        let is_absent = matches!(event, ResourceEvent::NotServed { .. });
        if let Some((key, decoded)) = self.change(event, read) {
            let object = ObjectRef { kind, key };
            return vec![match decoded {
                Some(Ok(object)) => ObjectEvent::Apply(object),
                Some(Err(message)) => ObjectEvent::Malformed { object, message },
                None => ObjectEvent::Delete(object),
            }];
        }
        if is_absent && self.is_optional && self.resource.version.is_none() {
            self.resource.set_unneeded();
        }
        if is_list { self.relist(kind) } else { Vec::new() }
    }

    /// Returns events with every object, and forgets the objects.
    pub(super) fn relist(&mut self, kind: Kind) -> Vec<ObjectEvent<T>> {
        let mut objects = Vec::new();
        let mut malformed = Vec::new();
        for (key, decoded) in std::mem::take(&mut self.objects) {
            match decoded {
                Ok(object) => objects.push(object),
                Err(message) => {
                    let object = ObjectRef { kind, key };
                    malformed.push(ObjectEvent::Malformed { object, message });
                }
            }
        }
        let relist = ObjectEvent::Relist { kind, objects };
        std::iter::once(relist).chain(malformed).collect()
    }

    /// Applies an event: keeps a list, and returns what becomes of a single object.
    fn change<D: Decoder>(
        &mut self,
        event: ResourceEvent<D>,
        read: impl Fn(D::Value) -> Option<T>,
    ) -> Option<(ObjectKey, Option<Decoded<T>>)> {
        self.resource.record(&event);
        let entry =
            |object: WatchedObject<D>| (object.key(), object.decoded.map(&read).transpose());
        match event {
            ResourceEvent::Listed { objects, .. } => {
                let entries = objects.into_iter().map(entry);
                self.objects = entries.filter_map(|(key, one)| Some((key, one?))).collect();
                None
            }
            ResourceEvent::Changed(object) => Some(entry(object)),
            ResourceEvent::Deleted(object) => Some((object.key(), None)),
            ResourceEvent::NotServed { .. }
            | ResourceEvent::Failing { .. }
            | ResourceEvent::Recovered
            | ResourceEvent::LeftOut { .. } => None,
        }
    }
}
