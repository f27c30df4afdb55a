//! Reads the events of a watch, or the objects of a list, from an answer in protobuf, as it arrives. As with JSON, memory
//! holds one of them at a time, of at most [`LONGEST`] bytes. It is allocated for received bytes, not for the announced
//! length.

use std::io;

use futures_util::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};
use kube::{
    api::WatchEvent as Event,
    core::{
        TypeMeta as Types,
        watch::{Bookmark, BookmarkMeta},
    },
};
use prost::{
    DecodeError, Message,
    bytes::Bytes,
    encoding::{WireType, decode_key, decode_varint},
};

use super::pieces::{LONGEST, Unreadable};
use crate::{
    Decoder, WatchedObject,
    envelope::{ListMeta, MAGIC, Status, TypeMeta, Unknown, WatchEvent},
    objects::{Bare, ReadMessage},
};

/// The bytes of the longest varint.
const LONGEST_VARINT: usize = 10;

/// The next event. The end of the answer is an error of kind `UnexpectedEof`.
pub(super) async fn next<D: Decoder>(
    reader: &mut (impl AsyncBufRead + Unpin),
    read: ReadMessage<D::Object>,
) -> io::Result<Event<WatchedObject<D>>> {
    let mut length = [0; 4];
    reader.read_exact(&mut length).await?;
    event(take(reader, u32::from_be_bytes(length).into()).await?, read)
}

fn event<D: Decoder>(
    frame: Vec<u8>,
    read: ReadMessage<D::Object>,
) -> io::Result<Event<WatchedObject<D>>> {
    let WatchEvent { type_, object } = WatchEvent::decode(Bytes::from(frame)).map_err(undecoded)?;
    let object = object.and_then(|object| Unknown::open(object.raw));
    let object = object.ok_or_else(|| wrong("an event without an object"))?.raw;
    Ok(match &*type_ {
        "ADDED" => Event::Added(self::object(&object, read)?),
        "MODIFIED" => Event::Modified(self::object(&object, read)?),
        "DELETED" => Event::Deleted(self::object(&object, read)?),
        "BOOKMARK" => Event::Bookmark(bookmark(&object)?),
        "ERROR" => {
            let status = Status::read(&object).ok_or_else(|| wrong("an error without a status"))?;
            Event::Error(status.boxed())
        }
        _ => return Err(wrong("an event of an unknown type")),
    })
}

fn bookmark(object: &[u8]) -> io::Result<Bookmark> {
    let metadata = Bare::decode(object).map_err(undecoded)?.metadata;
    // A watch without a version would miss events.
    if metadata.resource_version.is_empty() {
        return Err(wrong("a bookmark without a version"));
    }
    let metadata = BookmarkMeta {
        resource_version: metadata.resource_version,
        annotations: metadata.annotations,
    };
    Ok(Bookmark { types: Types::default(), metadata })
}

/// Reads a list, and gives each object of it to `keep`. Returns the version of the list.
pub(super) async fn list<D: Decoder>(
    reader: &mut (impl AsyncBufRead + Unpin),
    read: ReadMessage<D::Object>,
    mut keep: impl FnMut(WatchedObject<D>),
) -> io::Result<Option<String>> {
    if take(reader, MAGIC.len() as u64).await? != MAGIC {
        return Err(wrong("it does not begin as such"));
    }
    let (mut is_list, mut version) = (false, None);
    while let Some((tag, length)) = field(reader).await? {
        match tag {
            1 => {
                let types = take(reader, length).await?;
                is_list = TypeMeta::decode(&*types).map_err(undecoded)?.kind.ends_with("List");
            }
            // Another message than a list would decode as an empty list.
            2 if is_list => {
                let mut items = reader.take(length);
                while let Some((tag, length)) = field(&mut items).await? {
                    let bytes = take(&mut items, length).await?;
                    match tag {
                        1 => {
                            let meta = ListMeta::decode(&*bytes).map_err(undecoded)?;
                            version = Some(meta.resource_version).filter(|it| !it.is_empty());
                        }
                        2 => keep(object(&bytes, read)?),
                        _ => {}
                    }
                }
                if items.limit() > 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            _ => {
                take(reader, length).await?;
            }
        }
    }
    version.ok_or_else(|| wrong("it is no list")).map(Some)
}

fn object<D: Decoder>(bytes: &[u8], read: ReadMessage<D::Object>) -> io::Result<WatchedObject<D>> {
    WatchedObject::read_message(bytes, read).map_err(undecoded)
}

/// The tag and the length of the next field. All fields of lists and envelopes have a length. `None`: the end.
async fn field(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<(u32, u64)>> {
    if reader.fill_buf().await?.is_empty() {
        return Ok(None);
    }
    let key = varint(reader).await?;
    let (tag, WireType::LengthDelimited) = decode_key(&mut &*key).map_err(undecoded)? else {
        return Err(wrong("a field without a length"));
    };
    let length = varint(reader).await?;
    Ok(Some((tag, decode_varint(&mut &*length).map_err(undecoded)?)))
}

/// The bytes of the next varint.
async fn varint(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(LONGEST_VARINT);
    while bytes.len() < LONGEST_VARINT {
        let mut byte = [0];
        reader.read_exact(&mut byte).await?;
        bytes.extend(byte);
        if byte[0] < 0x80 {
            break;
        }
    }
    Ok(bytes)
}

/// The next bytes, of this length.
async fn take(reader: &mut (impl AsyncBufRead + Unpin), length: u64) -> io::Result<Vec<u8>> {
    if length > LONGEST as u64 {
        return Err(Unreadable::TooLong.into());
    }
    let mut bytes = Vec::new();
    reader.take(length).read_to_end(&mut bytes).await?;
    if (bytes.len() as u64) < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

fn wrong(what: impl Into<String>) -> io::Error {
    Unreadable::Message(what.into()).into()
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn undecoded(error: DecodeError) -> io::Error {
    wrong(error.to_string())
}

#[cfg(test)]
mod tests;
