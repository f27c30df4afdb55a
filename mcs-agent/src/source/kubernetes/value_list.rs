//! A watched resource with few objects, of each of which one value is used.

use std::collections::BTreeMap;

use mcs_kube::{Decoder, ResourceEvent, WatchTarget, WatchedObject};

use super::object_list::WatchedResource;
use crate::model::ObjectKey;

/// The values. A cluster need not have the resource.
pub(super) struct ValueList<V> {
    pub(super) resource: WatchedResource,
    values: BTreeMap<ObjectKey, V>,
}

impl<V> ValueList<V> {
    pub(super) fn new(target: &WatchTarget) -> Self {
        Self { resource: WatchedResource::new(target), values: BTreeMap::new() }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &V> {
        self.values.values()
    }

    pub(super) fn first(&self) -> Option<&V> {
        self.all().next()
    }

    pub(super) fn apply<D: Decoder<Value = V>>(&mut self, event: ResourceEvent<D>) {
        self.resource.record(&event);
        match event {
            ResourceEvent::Listed { objects, .. } => {
                let value = |object: WatchedObject<D>| Some((object.key(), object.decoded.ok()?));
                self.values = objects.into_iter().filter_map(value).collect();
            }
            ResourceEvent::Changed(object) => {
                let key = object.key();
                match object.decoded {
                    Ok(value) => self.values.insert(key, value),
                    Err(_) => self.values.remove(&key),
                };
            }
            ResourceEvent::Deleted(object) => {
                self.values.remove(&object.key());
            }
            ResourceEvent::NotServed { .. } if self.values.is_empty() => {
                self.resource.set_unneeded();
            }
            ResourceEvent::NotServed { .. }
            | ResourceEvent::Failing { .. }
            | ResourceEvent::Recovered
            | ResourceEvent::LeftOut { .. } => {}
        }
    }
}
