//! Objects from both forms, and errors that name the field.

use serde_json::{Value, from_value, json};

use super::*;
use crate::testing::messages::captured_slice;

#[test]
fn what_an_api_server_sends_is_read() {
    let (message, object) = captured_slice(&[]);
    let slice = EndpointSlice::MESSAGE.unwrap()(&message).unwrap();
    assert_eq!(from_value::<EndpointSlice>(object).unwrap(), slice);
    assert_eq!(slice.endpoints[2].conditions, Some(EndpointConditions::default()));
    assert_eq!((slice.ports.len(), slice.ports[2].port), (3, None));
    assert!(slice.metadata.creation_timestamp.is_some() && !slice.metadata.labels.is_empty());
}

#[test]
fn a_time_is_written_as_in_json() {
    let time = |seconds, nanos| json!(Time { seconds, nanos });
    assert_eq!(time(1_767_323_045, 678_901_000), json!("2026-01-02T03:04:05.678901Z"));
    assert_eq!(time(0, 0), json!(null));
    assert_eq!(time(i64::MAX, 0), json!(null), "it is no time");
    let read: Time = from_value(json!("2026-01-02T04:04:05.678901+01:00")).unwrap();
    assert_eq!(read, Time { seconds: 1_767_323_045, nanos: 678_901_000 });
}

#[test]
fn a_null_counts_as_absent() {
    let metadata = json!({"name": "web", "namespace": null, "labels": null, "annotations": null});
    let slice = json!({"metadata": metadata, "endpoints": [{"hints": null}], "ports": null});
    let slice: EndpointSlice = read(&slice).unwrap();
    let endpoints = vec![Endpoint::default()];
    let metadata = ObjectMeta { name: "web".to_owned(), ..ObjectMeta::default() };
    assert_eq!(slice, EndpointSlice { metadata, endpoints, ..EndpointSlice::default() });
}

#[test]
fn errors_name_the_field() {
    let error = |metadata: Value, port: Value| {
        let spec = json!({"type": "ClusterSetIP", "ports": [{"port": 80}, {"port": port}]});
        read::<ServiceImport>(&json!({"metadata": metadata, "spec": spec})).unwrap_err()
    };
    let wrong = "spec.ports[1].port: invalid type: string \"80\", expected i32";
    assert_eq!(error(json!({}), json!("80")), wrong);
    let wrong = "metadata.labels.a: invalid type: integer `7`, expected a string";
    assert_eq!(error(json!({"labels": {"a": 7}}), json!(80)), wrong);
}
