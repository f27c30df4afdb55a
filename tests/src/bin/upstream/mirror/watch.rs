//! Tells of all objects of a kind.

use std::pin::pin;

use futures_util::TryStreamExt as _;
use k8s_openapi::api::{
    core::v1::{Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams},
};
use mcs_tests::prelude::*;
use tokio::{sync::mpsc, time::sleep};

use super::doubles;

/// After an error.
pub(super) const PAUSE: Duration = Duration::from_millis(200);

/// What a watch says.
pub(super) enum Event {
    Listed(Kind, Vec<DynamicObject>),
    Changed(Kind, Box<DynamicObject>),
    Deleted(Kind, Box<DynamicObject>),
}

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Service,
    Slice,
    Pod,
    /// A pod of the other cluster that serves for one of the first.
    Double,
}

impl Kind {
    fn resource(self) -> ApiResource {
        match self {
            Self::Service => ApiResource::erase::<Service>(&()),
            Self::Slice => ApiResource::erase::<EndpointSlice>(&()),
            Self::Pod | Self::Double => ApiResource::erase::<Pod>(&()),
        }
    }

    const fn label(self) -> Option<&'static str> {
        match self {
            Self::Double => Some(doubles::LABEL),
            Self::Service | Self::Slice | Self::Pod => None,
        }
    }
}

/// Tells of all objects of a kind, for ever.
pub(super) async fn follow(client: Client, kind: Kind, sender: mpsc::UnboundedSender<Event>) {
    let resource = kind.resource();
    let api = Api::all_with(client, &resource);
    loop {
        if let Err(error) = list_and_watch(&api, kind, &sender).await {
            eprintln!("mirror: {}: {error}", resource.plural);
        }
        sleep(PAUSE).await;
    }
}

async fn list_and_watch(
    api: &Api<DynamicObject>,
    kind: Kind,
    sender: &mpsc::UnboundedSender<Event>,
) -> kube::Result<()> {
    // The receiver ends with the senders.
    let tell = |event| drop(sender.send(event));
    let label_selector = kind.label().map(str::to_owned);
    let params = ListParams { label_selector: label_selector.clone(), ..ListParams::default() };
    let list = api.list(&params).await?;
    let mut version = list.metadata.resource_version.unwrap_or_default();
    tell(Event::Listed(kind, list.items));
    let params = WatchParams { label_selector, ..WatchParams::default() };
    loop {
        let mut events = pin!(api.watch(&params, &version).await?);
        while let Some(event) = events.try_next().await? {
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    version = object.resource_version().unwrap_or_default();
                    tell(Event::Changed(kind, Box::new(object)));
                }
                WatchEvent::Deleted(object) => {
                    version = object.resource_version().unwrap_or_default();
                    tell(Event::Deleted(kind, Box::new(object)));
                }
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            }
        }
    }
}
