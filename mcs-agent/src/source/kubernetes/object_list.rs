//! The objects of one watched resource, and its state for `status`.

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use mcs_kube::{Decoder, ResourceEvent, WatchTarget, WatchedObject};

use crate::{
    model::{Kind, KindStatus, ObjectKey, ObjectRef, SourceProblem},
    source::adopt::{ReadEvent, ReadObject},
};

/// What to do about a missing right.
const ADVICE_FORBIDDEN: &str = "; grant it as the ClusterRole of the chart does";

/// The state of one watched resource.
pub(super) struct WatchedResource {
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

/// The objects of one kind, each decoded or with its error. It is empty once the object events have
/// begun, since the receiver then has them.
pub(super) struct ObjectList {
    pub(super) resource: WatchedResource,
    kind: Kind,
    /// Whether a cluster need not have the resource.
    is_optional: bool,
    objects: BTreeMap<ObjectKey, Result<ReadObject, String>>,
}

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
    pub(super) fn set_unneeded(&mut self) {
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

impl ObjectList {
    pub(super) fn new(kind: Kind, target: &WatchTarget) -> Self {
        Self {
            resource: WatchedResource::new(target),
            kind,
            is_optional: false,
            objects: BTreeMap::new(),
        }
    }

    /// A cluster need not have the resource: one that is not served counts as an empty list at first.
    pub(super) fn optional(self) -> Self {
        Self { is_optional: true, ..self }
    }

    /// Applies an event of the watch. Returns the object events if the source is `synced`, and else
    /// keeps the objects.
    pub(super) fn apply<D>(&mut self, event: ResourceEvent<D>, synced: bool) -> Vec<ReadEvent>
    where
        D: Decoder<Value = Option<ReadObject>>,
    {
        self.resource.record(&event);
        match event {
            ResourceEvent::Listed { objects, .. } => {
                self.objects = objects.into_iter().filter_map(entry).collect();
                if synced { self.relist() } else { Vec::new() }
            }
            ResourceEvent::Changed(object) => {
                self.set(object.key(), entry(object).map(|(_, decoded)| decoded), synced)
            }
            ResourceEvent::Deleted(object) => self.set(object.key(), None, synced),
            // The API server answers 503, not 404, until it has read its CRDs.
            ResourceEvent::NotServed { .. }
                if self.is_optional && self.resource.version.is_none() =>
            {
                self.resource.set_unneeded();
                Vec::new()
            }
            ResourceEvent::NotServed { .. }
            | ResourceEvent::Failing { .. }
            | ResourceEvent::Recovered
            | ResourceEvent::LeftOut { .. } => Vec::new(),
        }
    }

    fn set(
        &mut self,
        key: ObjectKey,
        decoded: Option<Result<ReadObject, String>>,
        synced: bool,
    ) -> Vec<ReadEvent> {
        if !synced {
            match decoded {
                Some(decoded) => self.objects.insert(key, decoded),
                None => self.objects.remove(&key),
            };
            return Vec::new();
        }
        let object = ObjectRef { kind: self.kind, key };
        vec![match decoded {
            Some(Ok(object)) => ReadEvent::Apply(object),
            Some(Err(message)) => ReadEvent::Malformed { object, message },
            None => ReadEvent::Delete(object),
        }]
    }

    /// Returns events with every object, and forgets the objects.
    pub(super) fn relist(&mut self) -> Vec<ReadEvent> {
        let mut objects = Vec::new();
        let mut malformed = Vec::new();
        for (key, decoded) in std::mem::take(&mut self.objects) {
            match decoded {
                Ok(object) => objects.push(object),
                Err(message) => {
                    let object = ObjectRef { kind: self.kind, key };
                    malformed.push(ReadEvent::Malformed { object, message });
                }
            }
        }
        let relist = ReadEvent::Relist { kind: self.kind, objects };
        std::iter::once(relist).chain(malformed).collect()
    }
}

/// The key and value for [`ObjectList::objects`]; `None` for a slice that is not imported.
fn entry<D>(object: WatchedObject<D>) -> Option<(ObjectKey, Result<ReadObject, String>)>
where
    D: Decoder<Value = Option<ReadObject>>,
{
    let key = object.key();
    Some((key, object.decoded.transpose()?))
}
