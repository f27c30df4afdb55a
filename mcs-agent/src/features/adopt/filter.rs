//! The filter of objects: what is adopted, and the lists of an API server that it takes beside those of KEP-1645.

use std::{any::Any, time::Duration};

use mcs_kube::{ApiAccess, Decoder, ResourceEvent, WatchTarget, discovery::ApiGroups, objects};
use serde_json::Value;
use tokio::{
    sync::{mpsc, watch as latest},
    time::sleep,
};

use super::{
    Adopter, Controller, Coverage, ForeignImport, ForeignSlice, List, Service, SortedObject,
    foreign::{ForeignSliceDecoder, ServiceDecoder},
    gke, karmada,
    offers::{Offers, recognise},
    slice_selector,
};
use crate::core::{
    model::{Kind, Object, ObjectEvent, ObjectKey, Sections},
    source::{
        ObjectFilter, ReadEvent, ReadFrom, ReadObject, SourceOptions, StartWatch,
        kubernetes::{
            ClusterUpdate,
            decoders::ImportDecoder,
            import_target, slice_target,
            state::{WatchedList, WatchedResource},
            watch_one,
        },
    },
};
use crate::features::adopt;

/// How long the watch of local slices waits for more Services before it begins anew.
const LOCAL_SLICES_DELAY: Duration = Duration::from_millis(200);

/// What is adopted, and from which lists. Without `--adopt` nothing is.
#[derive(Debug)]
pub(super) struct Adoption {
    /// Whether GKE's imports are read in addition to those of the group.
    reads_gke_beside: bool,
    offers: Offers,
    adopter: Adopter,
    other_imports: Option<WatchedList<SortedObject>>,
    services: Option<WatchedList<SortedObject>>,
    slices: Option<WatchedList<SortedObject>>,
    local_slices: Option<LocalSlices>,
}

/// What its watches send.
#[derive(Debug)]
pub(super) enum Update {
    OtherImports(ResourceEvent<ImportDecoder>),
    Services(ResourceEvent<ServiceDecoder>),
    Slices(ResourceEvent<ForeignSliceDecoder>),
    /// The watch of local slices begins anew, for these Services.
    LocalServices(Coverage),
    LocalSlices(ResourceEvent<ForeignSliceDecoder>),
}

impl From<Update> for ClusterUpdate {
    fn from(update: Update) -> Self {
        Self::Filter(Box::new(update))
    }
}

/// The slices of the own cluster for some Services. Their names are part of the watch's label selector, so that the
/// slices of all other Services stay unread; of more Services than one request can name, all slices are read.
#[derive(Debug)]
struct LocalSlices {
    list: WatchedList<SortedObject>,
    /// The Services that the watch has to ask for.
    wanted: latest::Sender<Coverage>,
    /// The Services that it asks for.
    watched: Coverage,
    /// The Services whose slices were listed.
    listed: Coverage,
}

impl Adoption {
    pub(super) fn new(from: &ReadFrom) -> Self {
        let adopted = adopt::adopted(from);
        Self {
            reads_gke_beside: adopted.contains(&Controller::Gke) && from.import_group != gke::GROUP,
            offers: Offers::new(adopted.clone()),
            // A directory has the slices of every Service.
            adopter: Adopter::new(adopted, Coverage::All),
            other_imports: None,
            services: None,
            slices: None,
            local_slices: None,
        }
    }

    /// The Services whose local slices have to be watched.
    #[cfg(test)]
    pub(super) fn local_services(&self) -> latest::Receiver<Coverage> {
        let nobody = || latest::channel(Coverage::NONE).1;
        self.local_slices.as_ref().map_or_else(nobody, |local| local.wanted.subscribe())
    }

    fn sort(&mut self, read: ReadObject) -> Option<SortedObject> {
        Some(match read {
            ReadObject::Import(read) => {
                let sorted = SortedObject::of_import(*read);
                if let SortedObject::Import(ForeignImport { import, controller, .. }) = &sorted {
                    self.offers.note(&import.key, *controller);
                }
                sorted
            }
            ReadObject::Slice(slice) => SortedObject::Standard(Object::Slice(slice)),
            // The source has asked whether it decodes.
            ReadObject::Other(object, json) => match object.kind {
                Kind::Service => of_service(service(&object.key, &json).ok()?),
                _ => SortedObject::Slice(slice(&object.key, &json).ok()??),
            },
        })
    }

    /// Takes an event of the watch of a list.
    fn take_list<D: Decoder>(
        &mut self,
        list: List,
        event: ResourceEvent<D>,
        sort: impl Fn(D::Value) -> Option<SortedObject>,
    ) -> Vec<ObjectEvent> {
        let is_local_list =
            list == List::LocalSlices && matches!(event, ResourceEvent::Listed { .. });
        let (objects, kind) = match list {
            List::Main => return Vec::new(),
            List::OtherImports => (self.other_imports.as_mut(), Kind::ServiceImport),
            List::Services => (self.services.as_mut(), Kind::Service),
            List::Slices => (self.slices.as_mut(), Kind::EndpointSlice),
            List::LocalSlices => {
                (self.local_slices.as_mut().map(|local| &mut local.list), Kind::EndpointSlice)
            }
        };
        let Some(objects) = objects else { return Vec::new() };
        let mut changes = Vec::new();
        for event in objects.pass(kind, event, sort) {
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
    fn set_watched(&mut self, services: Coverage) -> Vec<ObjectEvent> {
        let Some(local) = &mut self.local_slices else { return Vec::new() };
        local.watched = services;
        if local.watched != Coverage::NONE {
            return Vec::new();
        }
        local.list.resource.set_unneeded();
        let none = ObjectEvent::Relist { kind: Kind::EndpointSlice, objects: Vec::new() };
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

impl ObjectFilter for Adoption {
    fn is_on(&self) -> bool {
        !self.adopter.controllers.is_empty()
    }

    fn look(&mut self, event: &mut ReadEvent) {
        self.offers.forget(event);
        let objects = match event {
            ObjectEvent::Apply(object) => std::slice::from_mut(object),
            ObjectEvent::Relist { objects, .. } => objects,
            ObjectEvent::Delete(_) | ObjectEvent::Malformed { .. } => &mut [],
        };
        for object in objects {
            if let ReadObject::Import(read) = object
                && let Some((controller, _)) = recognise(read)
            {
                self.offers.note(&read.import.key, controller);
            }
        }
    }

    fn take(&mut self, event: ReadEvent) -> Vec<ObjectEvent> {
        self.offers.forget(&event);
        let sorted = event.filter_map(|read| self.sort(read));
        sorted.map(|event| self.adopter.take(List::Main, event)).unwrap_or_default()
    }

    fn kind(&self, api_version: &str, kind: &str) -> Option<Kind> {
        match (api_version, kind) {
            ("v1", "Service") => Some(Kind::Service),
            ("net.gke.io/v1", "ServiceImport") if self.reads_gke_beside => {
                Some(Kind::ServiceImport)
            }
            _ => None,
        }
    }

    fn uses(&self, kind: Kind, key: &ObjectKey, object: &Value) -> Result<bool, String> {
        Ok(match kind {
            Kind::Service => service(key, object).map(|_| true)?,
            _ => slice(key, object)?.is_some(),
        })
    }

    fn take_groups(&mut self, groups: &ApiGroups) {
        self.offers.note_groups(groups.keys().map(String::as_str));
    }

    fn watches(&mut self, options: &SourceOptions) -> Vec<StartWatch> {
        self.adopter = Adopter::new(self.adopter.controllers.clone(), Coverage::NONE);
        let mut watches: Vec<StartWatch> = Vec::new();
        if self.reads_gke_beside {
            let target = import_target(options, gke::GROUP, &gke::VERSIONS);
            self.other_imports = Some(WatchedList::new(&target).optional());
            watches.push(start(target, |event| Update::OtherImports(event).into()));
        }
        if self.adopter.controllers.contains(&Controller::Karmada) {
            let target = WatchTarget {
                labels: Some(karmada::SERVICE_SELECTOR.to_owned()),
                ..WatchTarget::all("", &["v1"], "Service", "services")
            };
            self.services = Some(WatchedList::new(&target));
            watches.push(start(target, |event| Update::Services(event).into()));
            let (wanted, services) = latest::channel(Coverage::NONE);
            self.local_slices = Some(LocalSlices {
                list: WatchedList::new(&local_target(String::new())),
                wanted,
                watched: Coverage::NONE,
                listed: Coverage::NONE,
            });
            watches.push(Box::new(|access, updates| {
                Box::pin(watch_local_slices(access, services, updates))
            }));
        }
        if let Some(labels) = slice_selector(&self.adopter.controllers) {
            let target = WatchTarget { purpose: Some("adopted"), ..slice_target(labels) };
            self.slices = Some(WatchedList::new(&target));
            watches.push(start(target, |event| Update::Slices(event).into()));
        }
        watches
    }

    fn update(&mut self, update: Box<dyn Any + Send>) -> Vec<ObjectEvent> {
        let Ok(update) = update.downcast() else { return Vec::new() };
        let foreign = |slice: Option<ForeignSlice>| slice.map(SortedObject::Slice);
        match *update {
            Update::OtherImports(event) => {
                let sort = |read| Some(SortedObject::of_import(read));
                self.take_list(List::OtherImports, event, sort)
            }
            Update::Services(event) => {
                self.take_list(List::Services, event, |service| Some(of_service(service)))
            }
            Update::Slices(event) => self.take_list(List::Slices, event, foreign),
            Update::LocalServices(services) => self.set_watched(services),
            Update::LocalSlices(event) => self.take_list(List::LocalSlices, event, foreign),
        }
    }

    fn resources(&self) -> Vec<&WatchedResource> {
        let lists = [&self.other_imports, &self.services, &self.slices];
        let local = self.local_slices.iter().map(|local| &local.list);
        lists.into_iter().flatten().chain(local).map(|list| &list.resource).collect()
    }

    fn is_complete(&self) -> bool {
        self.local_slices.as_ref().is_none_or(|local| {
            self.adopter.local_services().iter().all(|service| local.listed.has(service))
        })
    }

    fn status(&self, sections: &mut Sections) {
        self.offers.status(sections);
    }
}

fn service(key: &ObjectKey, object: &Value) -> Result<Service, String> {
    objects::read(object).map(|service| Service::convert(service, key.clone()))
}

fn slice(key: &ObjectKey, object: &Value) -> Result<Option<ForeignSlice>, String> {
    objects::read(object).map(|slice| ForeignSlice::convert(slice, key.clone()))
}

fn of_service(service: Service) -> SortedObject {
    SortedObject::Service(Box::new(service))
}

/// The slices that the own cluster's controllers keep.
fn local_target(labels: String) -> WatchTarget {
    WatchTarget { purpose: Some("local"), ..slice_target(labels) }
}

fn start<D: Decoder>(
    target: WatchTarget,
    update: fn(ResourceEvent<D>) -> ClusterUpdate,
) -> StartWatch {
    Box::new(move |access, updates| Box::pin(watch_one(access, Some(target), updates, update)))
}

/// Watches the slices that the own cluster's controllers keep for these Services, and begins anew when other Services
/// are asked for.
async fn watch_local_slices(
    access: &ApiAccess,
    mut services: latest::Receiver<Coverage>,
    updates: &mpsc::Sender<ClusterUpdate>,
) {
    loop {
        let asked = services.borrow_and_update().clone();
        let target = (asked != Coverage::NONE).then(|| local_target(asked.selector()));
        if updates.send(Update::LocalServices(asked).into()).await.is_err() {
            return;
        }
        let watch = async {
            watch_one(access, target, updates, |event| Update::LocalSlices(event).into()).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = watch => {}
            changed = services.changed() => if changed.is_err() { return },
        }
        sleep(LOCAL_SLICES_DELAY).await;
    }
}
