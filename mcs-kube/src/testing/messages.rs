//! Answers in protobuf, and what the reader of answers makes of them.

use std::future::ready;

use futures_util::{FutureExt as _, StreamExt as _};
use kube::api::WatchEvent as Event;
use prost::{Message, bytes::Bytes};
use serde_json::{Value, json};

use crate::{
    Decoder, Room, WatchedObject,
    envelope::{ListMeta, MAGIC, RawExtension, TypeMeta, Unknown, WatchEvent},
    objects::{EndpointSlice, Object},
    watch::{events, kept::KeptObjects},
};

/// An EndpointSlice with these labels and annotations more, as an API server of Kubernetes 1.36 has sent it: its message, and
/// the same as JSON.
pub fn captured_slice(notes: &[(&str, &str)]) -> (Vec<u8>, Value) {
    let envelope = Bytes::from_static(include_bytes!("slice.pb"));
    let mut message = EndpointSlice::decode(Unknown::open(envelope).unwrap().raw).unwrap();
    let mut object: Value = serde_json::from_str(include_str!("slice.json")).unwrap();
    let metadata = &mut message.metadata;
    for (key, value) in notes {
        for (name, map) in
            [("labels", &mut metadata.labels), ("annotations", &mut metadata.annotations)]
        {
            map.insert((*key).to_owned(), (*value).to_owned());
            object["metadata"][name][*key] = json!(value);
        }
    }
    (message.encode_to_vec(), object)
}

/// A message in its envelope.
pub fn enclosed(kind: &str, raw: Vec<u8>) -> Vec<u8> {
    let type_meta = Some(TypeMeta { kind: kind.into() });
    [MAGIC, &Unknown { type_meta, raw: raw.into() }.encode_to_vec()].concat()
}

/// A frame of a watch.
pub fn framed(content: &[u8]) -> Vec<u8> {
    [&u32::try_from(content.len()).unwrap().to_be_bytes(), content].concat()
}

/// The frame of an event.
pub fn event(kind_of_event: &str, kind: &str, object: Vec<u8>) -> Vec<u8> {
    let object = Some(RawExtension { raw: enclosed(kind, object).into() });
    framed(&WatchEvent { type_: kind_of_event.into(), object }.encode_to_vec())
}

#[derive(Clone, PartialEq, Message)]
struct SliceList {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ListMeta>,
    #[prost(message, repeated, tag = "2")]
    items: Vec<EndpointSlice>,
}

/// A list of slices.
pub fn list(version: &str, items: &[EndpointSlice]) -> Vec<u8> {
    let metadata = Some(ListMeta { resource_version: version.into() });
    let list = SliceList { metadata, items: items.to_vec() };
    enclosed("EndpointSliceList", list.encode_to_vec())
}

/// The objects of a list, as the shipped reader has them.
pub fn read_list<D: Decoder>(
    answer: &[u8],
    in_protobuf: bool,
) -> Result<Vec<WatchedObject<D>>, String> {
    let mut kept = KeptObjects::with_room(&Room::Endless);
    let read = D::Object::MESSAGE.filter(|_| in_protobuf);
    let list = events::read_list::<D>(answer, read, &mut kept).now_or_never().unwrap();
    list.map_err(|error| error.to_string()).map(|_| kept.finish().0)
}

/// The objects that a watch is about, until it ends or is wrong, as the shipped reader has them.
pub fn read_watch<D: Decoder>(answer: &[u8], in_protobuf: bool) -> Vec<WatchedObject<D>> {
    let read = D::Object::MESSAGE.filter(|_| in_protobuf);
    let objects = events::read_events::<D>(answer, read)
        .map(Result::ok)
        .take_while(|event| ready(event.is_some()))
        .filter_map(async |event| match event? {
            Event::Added(object) | Event::Modified(object) | Event::Deleted(object) => Some(object),
            Event::Bookmark(_) | Event::Error(_) => None,
        });
    objects.collect().now_or_never().unwrap()
}
