//! The lists of an API server that adoption needs beside those of KEP-1645.

use mcs_kube::{Decoder, ResourceEvent, WatchTarget};
use tokio::sync::watch;

use super::{
    WatchTargets,
    object_list::{ObjectList, WatchedResource},
};
use crate::{
    model::{AdoptableObjects, Kind, ObjectEvent},
    source::adopt::{Adopter, Coverage, List, ReadEvent, ReadObject},
};

/// What is adopted, and from which lists.
pub(super) struct Adoption {
    adopter: Adopter,
    other_imports: Option<ObjectList>,
    services: Option<ObjectList>,
    slices: Option<ObjectList>,
    local_slices: Option<LocalSlices>,
}

/// The slices of the own cluster for some Services. Their names are part of the watch's label selector, so that the
/// slices of all other Services stay unread; of more Services than one request can name, all slices are read.
struct LocalSlices {
    list: ObjectList,
    /// The Services that the watch has to ask for.
    wanted: watch::Sender<Coverage>,
    /// The Services that it asks for.
    watched: Coverage,
    /// The Services whose slices were listed.
    listed: Coverage,
}

impl Adoption {
    /// Adoption by these targets. The local slices of the Services in the channel have to be watched.
    pub(super) fn new(targets: &WatchTargets, wanted: watch::Sender<Coverage>) -> Self {
        let list = |kind, target: &Option<WatchTarget>| {
            target.as_ref().map(|target| ObjectList::new(kind, target))
        };
        let local_slices = list(Kind::EndpointSlice, &targets.local_slices);
        Self {
            adopter: Adopter::new(targets.adopt.clone(), Coverage::NONE),
            other_imports: list(Kind::ServiceImport, &targets.other_imports)
                .map(ObjectList::optional),
            services: list(Kind::Service, &targets.services),
            slices: list(Kind::EndpointSlice, &targets.adoptable_slices),
            local_slices: local_slices.map(|list| LocalSlices {
                list,
                wanted,
                watched: Coverage::NONE,
                listed: Coverage::NONE,
            }),
        }
    }

    /// The lists, for `status`.
    pub(super) fn resources(&self) -> impl Iterator<Item = &WatchedResource> {
        let lists = [&self.other_imports, &self.services, &self.slices];
        let local = self.local_slices.iter().map(|local| &local.list);
        lists.into_iter().flatten().chain(local).map(|list| &list.resource)
    }

    /// The objects of controllers that are not adopted.
    pub(super) fn adoptable(&self) -> Vec<AdoptableObjects> {
        self.adopter.adoptable()
    }

    /// Whether the local slices of every Service have been listed that needs them.
    pub(super) fn is_complete(&self) -> bool {
        self.local_slices.as_ref().is_none_or(|local| {
            self.adopter.local_services().iter().all(|service| local.listed.has(service))
        })
    }

    /// Takes events of the lists of KEP-1645.
    pub(super) fn take_main(&mut self, events: Vec<ReadEvent>) -> Vec<ObjectEvent> {
        events.into_iter().flat_map(|event| self.adopter.take(List::Main, event)).collect()
    }

    /// Takes an event of the watch of a list.
    pub(super) fn take<D>(&mut self, list: List, event: ResourceEvent<D>) -> Vec<ObjectEvent>
    where
        D: Decoder<Value = Option<ReadObject>>,
    {
        let is_local_list =
            list == List::LocalSlices && matches!(event, ResourceEvent::Listed { .. });
        let objects = match list {
            List::Main => None,
            List::OtherImports => self.other_imports.as_mut(),
            List::Services => self.services.as_mut(),
            List::Slices => self.slices.as_mut(),
            List::LocalSlices => self.local_slices.as_mut().map(|local| &mut local.list),
        };
        let Some(objects) = objects else { return Vec::new() };
        let mut changes = Vec::new();
        for event in objects.apply(event, true) {
            changes.extend(self.adopter.take(list, event));
        }
        if is_local_list {
            changes.extend(self.set_listed());
        }
        // Which Services need local slices does not depend on those.
        if list != List::LocalSlices {
            self.want();
        }
        changes
    }

    /// The watch of local slices asks for these Services from now on.
    pub(super) fn set_watched(&mut self, services: Coverage) -> Vec<ObjectEvent> {
        let Some(local) = &mut self.local_slices else { return Vec::new() };
        local.watched = services;
        if local.watched != Coverage::NONE {
            return Vec::new();
        }
        local.list.resource.set_unneeded();
        let none = ReadEvent::Relist { kind: Kind::EndpointSlice, objects: Vec::new() };
        let mut changes = self.adopter.take(List::LocalSlices, none);
        changes.extend(self.set_listed());
        changes
    }

    fn set_listed(&mut self) -> Vec<ObjectEvent> {
        let Some(local) = &mut self.local_slices else { return Vec::new() };
        local.listed.clone_from(&local.watched);
        self.adopter.set_with_local_slices(&local.listed)
    }

    fn want(&mut self) {
        if let Some(local) = &mut self.local_slices {
            let services = self.adopter.local_services();
            local.wanted.send_if_modified(|wanted| {
                let services = Coverage::of(services, wanted);
                let differs = *wanted != services;
                *wanted = services;
                differs
            });
        }
    }
}
