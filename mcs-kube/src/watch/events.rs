//! Reads lists and the events of watches from the text of an answer. Each object goes from its text into its decoded form.
//!
//! kube reads an event into a type of its own, from which the text of the object cannot be had.

use std::io;

use futures_util::{AsyncBufReadExt as _, Stream, StreamExt as _};
use kube::{
    Client,
    api::{ListParams, WatchEvent, WatchParams},
    core::Request,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::decoder::{Decoder, WatchedObject};

/// A complete list.
pub(super) struct ReadList<D: Decoder> {
    pub(super) objects: Vec<WatchedObject<D>>,
    pub(super) version: Option<String>,
}

/// A line of the answer to a watch.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: EventKind,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum EventKind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

#[derive(Deserialize)]
struct ListText<'a> {
    metadata: ListMeta,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: Option<String>,
}

/// Lists the objects below a path of the API server.
pub(super) async fn list<D: Decoder>(
    client: &Client,
    path: &str,
    params: &ListParams,
) -> kube::Result<ReadList<D>> {
    let request = Request::new(path).list(params).map_err(kube::Error::BuildRequest)?;
    parse_list(&client.request_text(request).await?).map_err(kube::Error::SerdeError)
}

/// Watches them.
pub(super) async fn watch<D: Decoder>(
    client: &Client,
    path: &str,
    params: &WatchParams,
    version: &str,
) -> kube::Result<impl Stream<Item = kube::Result<WatchEvent<WatchedObject<D>>>> + use<D>> {
    let request = Request::new(path).watch(params, version).map_err(kube::Error::BuildRequest)?;
    let lines = client.request_stream(request).await?.lines();
    Ok(lines.filter_map(async |line| match line {
        Ok(line) => match parse_event(&line) {
            // The last line, cut where the connection ended.
            Err(error) if error.is_eof() => None,
            parsed => Some(parsed.map_err(kube::Error::SerdeError)),
        },
        Err(error) if is_end(&error) => None,
        Err(error) => Some(Err(kube::Error::ReadEvents(error))),
    }))
}

fn parse_list<D: Decoder>(text: &str) -> serde_json::Result<ReadList<D>> {
    let ListText { metadata, items } = serde_json::from_str(text)?;
    let objects = items.into_iter().map(|item| WatchedObject::read(item.get()));
    Ok(ReadList { objects: objects.collect::<Result<_, _>>()?, version: metadata.resource_version })
}

fn parse_event<D: Decoder>(line: &str) -> serde_json::Result<WatchEvent<WatchedObject<D>>> {
    let Line { kind, object } = serde_json::from_str(line)?;
    let object = object.get();
    Ok(match kind {
        EventKind::Added => WatchEvent::Added(WatchedObject::read(object)?),
        EventKind::Modified => WatchEvent::Modified(WatchedObject::read(object)?),
        EventKind::Deleted => WatchEvent::Deleted(WatchedObject::read(object)?),
        EventKind::Bookmark => WatchEvent::Bookmark(serde_json::from_str(object)?),
        EventKind::Error => WatchEvent::Error(serde_json::from_str(object)?),
    })
}

/// Whether the server, or something on the way, has closed the connection: the watch can be resumed.
fn is_end(error: &io::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let inner = error.downcast_ref::<io::Error>();
        // hyper says so in words alone where the answer comes in chunks (HTTP/1.1).
        if inner.is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
            || error.to_string().contains("unexpected EOF during chunk")
        {
            return true;
        }
        // The source of an `io::Error` is that of the error it wraps.
        cause = match inner.and_then(io::Error::get_ref) {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ObjectKey, PropertyDecoder};

    type Event = WatchEvent<WatchedObject<PropertyDecoder>>;

    fn parse(line: &str) -> serde_json::Result<Event> {
        parse_event(line)
    }

    /// The API server sends the type first. JSON has no order.
    #[test]
    fn an_event_is_read_in_any_order() {
        for line in [
            r#"{"type":"ADDED","object":{"metadata":{"name":"id"},"spec":{"value":"east"}}}"#,
            r#"{"object":{"spec":{"value":"east"},"metadata":{"name":"id"}},"type":"ADDED"}"#,
        ] {
            let WatchEvent::Added(object) = parse(line).unwrap() else { panic!("{line}") };
            assert_eq!(object.key(), ObjectKey::new("", "id"));
            assert_eq!(object.decoded, Ok(Some("east".to_owned())));
        }
    }

    #[test]
    fn a_line_that_was_cut_is_told_from_a_wrong_one() {
        let line = r#"{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"A","metadata":{"resourceVersion":"7"}}}"#;
        assert!(
            matches!(parse(line), Ok(WatchEvent::Bookmark(one)) if one.metadata.resource_version == "7")
        );
        for end in 0..line.len() {
            assert!(parse(&line[..end]).is_err_and(|error| error.is_eof()), "{end}");
        }
        assert!(parse(r#"{"type":"ODD","object":{}}"#).is_err_and(|error| !error.is_eof()));
    }

    #[test]
    fn a_connection_that_ends_is_no_error() {
        let hyper = |text: &'static str| io::Error::other(io::Error::other(text));
        let eof = io::Error::other(io::Error::from(io::ErrorKind::UnexpectedEof));
        assert!(is_end(&eof) && is_end(&hyper("unexpected EOF during chunk size line")));
        assert!(!is_end(&hyper("connection reset")));
    }
}
