//! Reads lists and the events of watches from an answer, and decodes each object from its text or protobuf message.
//!
//! kube's own event type does not give access to the text of the object.

use std::io;

use futures_util::{AsyncBufRead, AsyncBufReadExt as _, Stream, stream};
use kube::{
    Client,
    api::{ListParams, WatchEvent, WatchParams},
    core::Request,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    answer,
    kept::KeptObjects,
    messages,
    pieces::{self, ListCutter},
};
use crate::{
    access::requests::ManyEvents,
    decoder::{Decoder, WatchedObject},
    objects::Object,
    objects::ReadMessage,
};

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
struct ListText {
    metadata: ListMeta,
    /// Entries that the cutter did not recognise as objects.
    #[serde(rename = "items")]
    _items: [(); 0],
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: Option<String>,
}

/// A request for a resource.
pub(super) struct Query<'a> {
    pub(super) client: &'a Client,
    /// The path of the resource.
    pub(super) path: &'a str,
    /// Whether to request only JSON, although the kind has a protobuf form.
    pub(super) json_alone: bool,
    pub(super) has_many_events: bool,
}

impl Query<'_> {
    async fn ask<D: Decoder>(
        &self,
        request: Result<hyper::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> kube::Result<(Option<ReadMessage<D::Object>>, impl AsyncBufRead + Unpin + use<D>)> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        let read = D::Object::MESSAGE.filter(|_| !self.json_alone);
        let answer = answer::ask(self.client, request, read.is_some()).await?;
        Ok((D::Object::MESSAGE.filter(|_| answer.is_protobuf), answer.reader))
    }
}

/// Lists the objects. Returns the version of the list.
pub(super) async fn list<D: Decoder>(
    query: &Query<'_>,
    params: &ListParams,
    kept: &mut KeptObjects<D>,
) -> kube::Result<Option<String>> {
    let (read, reader) = query.ask::<D>(Request::new(query.path).list(params)).await?;
    read_list(reader, read, kept).await
}

/// Reads a list, in JSON if `read` is `None`.
pub(crate) async fn read_list<D: Decoder>(
    mut reader: impl AsyncBufRead + Unpin,
    read: Option<ReadMessage<D::Object>>,
    kept: &mut KeptObjects<D>,
) -> kube::Result<Option<String>> {
    if let Some(read) = read {
        let keep = |object| kept.push(object);
        return messages::list(&mut reader, read, keep).await.map_err(kube::Error::ReadEvents);
    }
    let mut cutter = ListCutter::default();
    loop {
        let part = reader.fill_buf().await.map_err(kube::Error::ReadEvents)?;
        if part.is_empty() {
            break;
        }
        for byte in part {
            if let Some(item) = cutter.take(*byte).map_err(kube::Error::ReadEvents)? {
                kept.push(WatchedObject::read(&item).map_err(kube::Error::SerdeError)?);
            }
        }
        let taken = part.len();
        reader.consume_unpin(taken);
    }
    let envelope = cutter.end().map_err(kube::Error::ReadEvents)?;
    let list: ListText = serde_json::from_str(&envelope).map_err(kube::Error::SerdeError)?;
    Ok(list.metadata.resource_version)
}

/// Starts a watch.
pub(super) async fn watch<D: Decoder>(
    query: &Query<'_>,
    params: &WatchParams,
    version: &str,
) -> kube::Result<impl Stream<Item = kube::Result<WatchEvent<WatchedObject<D>>>> + use<D>> {
    let mut request = Request::new(query.path).watch(params, version);
    if let (true, Ok(request)) = (query.has_many_events, &mut request) {
        request.extensions_mut().insert(ManyEvents);
    }
    let (read, reader) = query.ask::<D>(request).await?;
    Ok(read_events(reader, read))
}

/// Reads the events of a watch, in JSON if `read` is `None`.
pub(crate) fn read_events<D: Decoder>(
    reader: impl AsyncBufRead + Unpin,
    read: Option<ReadMessage<D::Object>>,
) -> impl Stream<Item = kube::Result<WatchEvent<WatchedObject<D>>>> {
    stream::unfold((reader, read), async |(mut reader, read)| {
        let event = match read {
            Some(read) => {
                messages::next(&mut reader, read).await.map(Some).map_err(kube::Error::ReadEvents)
            }
            None => next_of_lines(&mut reader).await,
        };
        match event {
            Err(kube::Error::ReadEvents(error)) if is_end(&error) => None,
            event => Some((event.transpose()?, (reader, read))),
        }
    })
}

/// The event of the next line. `None`: the answer has ended.
async fn next_of_lines<D: Decoder>(
    reader: &mut (impl AsyncBufRead + Unpin),
) -> kube::Result<Option<WatchEvent<WatchedObject<D>>>> {
    while let Some(line) = pieces::line(reader).await.map_err(kube::Error::ReadEvents)? {
        match parse_event(&line) {
            // The last line, cut by the end of the connection.
            Err(error) if error.is_eof() => {}
            parsed => return parsed.map(Some).map_err(kube::Error::SerdeError),
        }
    }
    Ok(None)
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

/// Whether the server or a middlebox has closed the connection: the watch can resume.
fn is_end(error: &io::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let inner = error.downcast_ref::<io::Error>();
        // For chunked answers (HTTP/1.1), hyper reports this only in the text.
        if inner.is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
            || error.to_string().contains("unexpected EOF during chunk")
        {
            return true;
        }
        // `io::Error::source` returns the source of the wrapped error.
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
    fn what_is_no_object_of_a_list_is_an_error() {
        let is_list = |text: &str| serde_json::from_str::<ListText>(text).is_ok();
        assert!(is_list(r#"{"metadata": {}, "items": []}"#));
        assert!(!is_list(r#"{"metadata": {}, "items": ["a"]}"#));
        assert!(!is_list(r#"{"metadata": {}}"#));
    }

    #[test]
    fn a_connection_that_ends_is_no_error() {
        let hyper = |text: &'static str| io::Error::other(io::Error::other(text));
        let eof = io::Error::other(io::Error::from(io::ErrorKind::UnexpectedEof));
        assert!(is_end(&eof) && is_end(&hyper("unexpected EOF during chunk size line")));
        assert!(!is_end(&hyper("connection reset")));
    }
}
