//! Watches against a scripted API server that answers in protobuf.

use std::time::Duration;

use serde_json::json;
use tokio::{sync::mpsc, task::JoinHandle, time::timeout};

use super::*;
use crate::{
    ApiAccess, ObjectKey, ResourceEvent, ResourceWatch, WatchTarget, envelope,
    objects::{Endpoint, EndpointSlice, ObjectMeta},
    testing::{
        ScriptedAnswer, ScriptedServer, event as json_event, kubeconfig, list_end,
        messages::{self, read_list},
    },
};

/// The time limit of each step, long enough for a slow machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Decodes a slice to its addresses.
#[derive(Clone, PartialEq, Debug)]
struct AddressDecoder;

impl Decoder for AddressDecoder {
    type Object = EndpointSlice;
    type Value = Vec<String>;

    fn convert(_: &ObjectKey, slice: EndpointSlice) -> Result<Self::Value, String> {
        Ok(slice.endpoints.into_iter().flat_map(|endpoint| endpoint.addresses).collect())
    }
}

fn meta(name: &str, version: &str) -> ObjectMeta {
    ObjectMeta { name: name.into(), resource_version: version.into(), ..ObjectMeta::default() }
}

fn slice(name: &str, version: &str, address: &str) -> EndpointSlice {
    let endpoint = Endpoint { addresses: vec![address.into()], ..Endpoint::default() };
    EndpointSlice {
        metadata: meta(name, version),
        endpoints: vec![endpoint],
        ..EndpointSlice::default()
    }
}

fn event(type_: &str, slice: &EndpointSlice) -> Vec<u8> {
    messages::event(type_, "EndpointSlice", slice.encode_to_vec())
}

/// An object of which the message has nothing else.
#[derive(Clone, PartialEq, Message)]
struct MetadataAlone {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
}

fn bare(metadata: ObjectMeta) -> Vec<u8> {
    MetadataAlone { metadata: Some(metadata) }.encode_to_vec()
}

fn end_of_list(version: &str) -> Vec<u8> {
    let annotations = [("k8s.io/initial-events-end".to_owned(), "true".to_owned())].into();
    let metadata = ObjectMeta { annotations, ..meta("", version) };
    messages::event("BOOKMARK", "EndpointSlice", bare(metadata))
}

fn status(code: u32, cause: &str) -> Vec<u8> {
    let causes = vec![envelope::StatusCause { reason: cause.into() }];
    let details = Some(envelope::StatusDetails { causes, retry_after_seconds: 0 });
    let (message, reason) = (format!("no: {code}"), String::new());
    Status { message, reason, details, code }.encode_to_vec()
}

fn watch(frames: &[Vec<u8>]) -> ScriptedAnswer {
    ScriptedAnswer::protobuf(200, frames.concat())
}

/// A running watch of slices.
struct RunningWatch {
    script: ScriptedServer,
    updates: mpsc::Receiver<ResourceEvent<AddressDecoder>>,
    task: JoinHandle<()>,
}

impl RunningWatch {
    async fn begin(answers: impl IntoIterator<Item = ScriptedAnswer>) -> Self {
        let script = ScriptedServer::play(answers).await;
        let (kubeconfig, file) = kubeconfig(&format!("http://{}", script.address));
        let (sender, updates) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            let (access, _) = ApiAccess::new(Some(kubeconfig)).await.unwrap();
            let target =
                WatchTarget::all("discovery.k8s.io", &["v1"], "EndpointSlice", "endpointslices");
            ResourceWatch::new(&access, target, sender, |event| event).run().await;
            drop(file);
        });
        Self { script, updates, task }
    }

    /// The next request has these parts, and asks for that form.
    async fn asks(&mut self, parts: &[&str], in_protobuf: bool) {
        let asked = timeout(PATIENCE, self.script.asked()).await.expect("a request");
        assert!(parts.iter().all(|part| asked.contains(part)), "{asked} lacks one of {parts:?}");
        assert_eq!(asked.contains(" in protobuf"), in_protobuf, "{asked}");
    }

    async fn reports(&mut self, expected: &str) {
        let event = timeout(PATIENCE, self.updates.recv()).await.expect("an event");
        let value = |object: &WatchedObject<AddressDecoder>| {
            let value = object.decoded.clone().map_or_else(|error| error, |all| all.join(" "));
            format!("{}={value}", object.key().name)
        };
        let event = match event.expect("the watch runs") {
            ResourceEvent::Listed { objects, .. } => {
                let objects: Vec<_> = objects.iter().map(value).collect();
                format!("listed {}", objects.join(" "))
            }
            ResourceEvent::Changed(object) => format!("changed {}", value(&object)),
            ResourceEvent::Deleted(object) => format!("gone {}", value(&object)),
            ResourceEvent::Failing { reason, .. } => format!("failing: {reason}"),
            other => format!("{other:?}"),
        };
        assert_eq!(event, expected);
    }
}

impl Drop for RunningWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn a_streamed_list_becomes_a_watch_that_is_resumed() {
    let mut watch = RunningWatch::begin([
        watch(&[
            event("ADDED", &slice("a", "3", "10.1.0.1")),
            event("ADDED", &slice("b", "4", "10.1.0.2")),
            end_of_list("5"),
            event("MODIFIED", &slice("a", "6", "10.1.0.3")),
            event("DELETED", &slice("b", "7", "10.1.0.2")),
            messages::event("BOOKMARK", "", bare(meta("", "9"))),
        ]),
        watch(&[messages::event("ERROR", "Status", status(410, ""))]),
        watch(&[end_of_list("12")]).held(),
    ])
    .await;
    watch.reports("listed a=10.1.0.1 b=10.1.0.2").await;
    watch.reports("changed a=10.1.0.3").await;
    watch.reports("gone b=10.1.0.2").await;
    watch.reports("listed ").await;
    watch.asks(&["sendInitialEvents=true"], true).await;
    watch.asks(&["resourceVersion=9"], true).await;
    watch.asks(&["sendInitialEvents=true", "resourceVersion=9"], true).await;
}

#[tokio::test]
async fn a_list_is_read_and_errors_are_told_from_it() {
    let status = |code, cause| {
        let body = messages::enclosed("Status", status(code, cause));
        ScriptedAnswer::protobuf(u16::try_from(code).unwrap(), body)
    };
    let objects = [slice("a", "3", "10.1.0.1"), slice("b", "4", "10.1.0.2")];
    let mut watch = RunningWatch::begin([
        status(422, ""),
        ScriptedAnswer::protobuf(200, messages::list("5", &objects)),
        status(410, ""),
        status(504, "ResourceVersionTooLarge"),
        ScriptedAnswer::protobuf(200, messages::list("4", &[])),
        status(403, ""),
        ScriptedAnswer::error(403),
    ])
    .await;
    watch.reports("listed a=10.1.0.1 b=10.1.0.2").await;
    watch.reports("listed ").await;
    watch.reports("failing: no: 403").await;
    watch.reports("failing: no: 403").await;
    for part in ["sendInitial", "resourceVersion=0", "watch", "resourceVersion=5"] {
        watch.asks(&[part], true).await;
    }
    let asked = watch.script.asked().await;
    assert!(!asked.contains("resourceVersion"), "{asked}: it is a quorum read");
}

#[tokio::test]
async fn an_answer_in_json_is_read_as_such() {
    let object = json!({
        "metadata": {"name": "a", "resourceVersion": "3"},
        "endpoints": [{"addresses": ["10.1.0.1"]}],
    });
    let events = [json_event("ADDED", &object), list_end("5")];
    let mut watch = RunningWatch::begin([ScriptedAnswer::watch(events).held()]).await;
    watch.asks(&["sendInitialEvents=true"], true).await;
    watch.reports("listed a=10.1.0.1").await;
}

/// One length says 2 GiB, of which nothing follows.
#[tokio::test]
async fn what_cannot_be_read_is_told_and_asked_for_in_json_once() {
    let too_long = "the API server sends an object of more than 8 MiB";
    let wrong =
        |what: &str| format!("the API server's answer is no protobuf of Kubernetes ({what})");
    let noise = wrong("failed to decode Protobuf message: invalid tag value: 0");
    let bare = WatchEvent { type_: "ADDED".into(), object: None }.encode_to_vec();
    let end = messages::event("BOOKMARK", "", vec![]);
    let odd = event("ODD", &slice("a", "6", ""));
    for (answer, reason) in [
        (0x8000_0000_u32.to_be_bytes().to_vec(), too_long.to_owned()),
        ((9_u32 << 20).to_be_bytes().to_vec(), too_long.to_owned()),
        (b"<html>blocked</html>".to_vec(), too_long.to_owned()),
        (messages::framed(&[0; 64]), noise),
        (messages::framed(&bare), wrong("an event without an object")),
        (end, wrong("a bookmark without a version")),
        (odd, wrong("an event of an unknown type")),
    ] {
        let mut watch = RunningWatch::begin([
            watch(&[end_of_list("5")]),
            ScriptedAnswer::protobuf(200, answer),
            ScriptedAnswer::watch([json_event("ADDED", &json!({"metadata": {"name": "a"}}))]),
            ScriptedAnswer::watch([]).held(),
        ])
        .await;
        watch.reports("listed ").await;
        watch.reports(&format!("failing: {reason}")).await;
        watch.reports("Recovered").await;
        watch.reports("changed a=").await;
        watch.asks(&["sendInitial"], true).await;
        watch.asks(&["resourceVersion=5"], true).await;
        watch.asks(&["resourceVersion=5"], false).await;
        watch.asks(&["watch"], true).await;
    }
}

#[tokio::test]
async fn half_a_frame_is_the_end_of_the_watch() {
    let whole = event("ADDED", &slice("b", "7", "10.1.0.2"));
    for cut in [1, 4, 5, whole.len() - 1] {
        let mut watch = RunningWatch::begin([
            watch(&[end_of_list("5")]),
            watch(&[event("ADDED", &slice("a", "6", "10.1.0.1")), whole[..cut].to_vec()]),
            ScriptedAnswer::watch([]).held(),
        ])
        .await;
        watch.reports("listed ").await;
        watch.reports("changed a=10.1.0.1").await;
        watch.asks(&["sendInitial"], true).await;
        watch.asks(&["resourceVersion=5"], true).await;
        watch.asks(&["resourceVersion=6"], true).await;
    }
}

#[tokio::test]
async fn an_object_that_does_not_decode_costs_itself_alone() {
    // Of field 2, `endpoints`, which is no number.
    let wrong = [meta_alone("wrong"), vec![2 << 3, 1]].concat();
    let many = [meta_alone("many"), [2 << 3 | 2, 0].repeat(100_001)].concat();
    let mut watch = RunningWatch::begin([watch(&[
        messages::event("ADDED", "EndpointSlice", wrong),
        messages::event("ADDED", "EndpointSlice", many),
        event("ADDED", &slice("a", "3", "10.1.0.1")),
        end_of_list("5"),
    ])
    .held()])
    .await;
    watch
        .reports(
            "listed wrong=failed to decode Protobuf message: EndpointSlice.endpoints: invalid wire type: \
             Varint (expected LengthDelimited) many=it has 100001 endpoints and 0 ports a=10.1.0.1",
        )
        .await;
}

fn meta_alone(name: &str) -> Vec<u8> {
    bare(meta(name, "3"))
}

fn names_of(list: &[u8]) -> Result<Vec<String>, String> {
    let all = read_list::<AddressDecoder>(list, true)?;
    Ok(all.iter().map(|object| object.key().name.to_string()).collect())
}

#[test]
fn half_a_list_is_none() {
    let whole = messages::list("5", &["a", "b"].map(|name| slice(name, "3", "10.1.0.1")));
    assert_eq!(names_of(&whole).unwrap(), ["a", "b"]);
    for cut in 0..whole.len() {
        assert!(names_of(&whole[..cut]).is_err(), "{cut}");
    }
    let slice = messages::enclosed("EndpointSlice", slice("a", "3", "10.1.0.1").encode_to_vec());
    assert!(names_of(&slice).is_err(), "it is no list");
    for none in [messages::enclosed("EndpointSliceList", vec![]), messages::list("", &[])] {
        assert!(names_of(&none).is_err(), "it is not an empty list");
    }
    // A list of 2 EiB, and an object of 2 GiB.
    for list in [
        [MAGIC, &whole[4..4 + 2 + whole[5] as usize], b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x1f"]
            .concat(),
        messages::enclosed("EndpointSliceList", b"\x12\x80\x80\x80\x80\x08".to_vec()),
    ] {
        assert!(names_of(&list).is_err());
    }
}
