//! Cuts the text of an answer into lines, or a list into its objects, as it arrives. Memory holds one of them at a time, of
//! at most [`LONGEST`] bytes.

use std::io;

use futures_util::{AsyncBufRead, AsyncBufReadExt as _};
use thiserror::Error;

/// An API server accepts requests of 3 MiB, and etcd of 1.5 MiB. The largest possible slice takes 4 MiB as JSON.
pub(super) const LONGEST: usize = 8 << 20;

/// The unreadable content of an answer, on a working connection.
#[derive(Debug, Error)]
pub(super) enum Unreadable {
    #[error("the API server sends an object of more than {} MiB", LONGEST >> 20)]
    TooLong,
    #[error("the API server's answer is no protobuf of Kubernetes ({0})")]
    Message(String),
}

impl From<Unreadable> for io::Error {
    fn from(error: Unreadable) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// The next line. `None`: the answer has ended.
pub(super) async fn line(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    loop {
        let mut part = reader.fill_buf().await?;
        if part.is_empty() {
            return if line.is_empty() { Ok(None) } else { text(line).map(Some) };
        }
        let taken = io::BufRead::read_until(&mut part, b'\n', &mut line)?;
        reader.consume_unpin(taken);
        if line.len() > LONGEST {
            return Err(Unreadable::TooLong.into());
        }
        if line.ends_with(b"\n") {
            return text(line).map(Some);
        }
    }
}

/// Where the next byte is: before, within or after `items`.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Position {
    #[default]
    Before,
    Within,
    After,
}

/// Cuts the objects out of `items` of a list.
#[derive(Default)]
pub(super) struct ListCutter {
    /// The list without its objects.
    envelope: Vec<u8>,
    item: Vec<u8>,
    position: Position,
    /// How many objects and arrays are open.
    depth: usize,
    in_string: bool,
    is_escaped: bool,
}

impl ListCutter {
    /// Takes the next byte. Returns an object of the list that ends with it.
    pub(super) fn take(&mut self, byte: u8) -> io::Result<Option<String>> {
        let (depth, in_string) = (self.depth, self.in_string);
        self.step(byte);
        let is_item = self.position == Position::Within
            && (depth > 2 || depth == 2 && byte == b'{' && !in_string);
        let piece = if is_item { &mut self.item } else { &mut self.envelope };
        piece.push(byte);
        if piece.len() > LONGEST {
            return Err(Unreadable::TooLong.into());
        }
        if is_item {
            let ends = self.depth == 2;
            return if ends { text(std::mem::take(&mut self.item)).map(Some) } else { Ok(None) };
        }
        match self.position {
            Position::Before if self.depth == 2 && depth == 1 && self.names_items() => {
                self.position = Position::Within;
            }
            Position::Within if self.depth < 2 => self.position = Position::After,
            // The text between the objects.
            Position::Within if byte == b',' || byte.is_ascii_whitespace() => {
                self.envelope.pop();
            }
            _ => {}
        }
        Ok(None)
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    /// Whether the array that has just begun has the objects.
    fn names_items(&self) -> bool {
        let before = self.envelope.strip_suffix(b"[").unwrap_or_default().trim_ascii_end();
        let name = before.strip_suffix(b":").unwrap_or_default().trim_ascii_end();
        name.ends_with(b"\"items\"")
    }

    /// The list without its objects. A list without `items`, or a truncated list, is an error, not an empty list.
    pub(super) fn end(self) -> io::Result<String> {
        if self.depth > 0 || self.position == Position::Before {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        text(self.envelope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(list: &str) -> io::Result<(Vec<String>, String)> {
        let mut cutter = ListCutter::default();
        let mut items = Vec::new();
        for byte in list.bytes() {
            items.extend(cutter.take(byte)?);
        }
        Ok((items, cutter.end()?))
    }

    #[test]
    fn a_list_is_cut_into_its_objects() {
        let (first, second) = (r#"{"a":{"items":[{}]},"b":"]}\"{"}"#, r#"{ "c" : [1, 2] }"#);
        for (list, envelope) in [
            (
                format!(r#"{{"kind":"L","metadata":{{"x":[1]}},"items":[{first},{second}]}}"#),
                r#"{"kind":"L","metadata":{"x":[1]},"items":[]}"#,
            ),
            (
                format!("{{ \"items\" : [\n {first} ,\n{second}\n ], \"metadata\":{{}} }}\n"),
                "{ \"items\" : [], \"metadata\":{} }\n",
            ),
        ] {
            let (items, rest) = cut(&list).unwrap();
            assert_eq!(items, [first, second]);
            assert_eq!(rest, envelope);
            for end in 0..list.trim_end().len() {
                assert!(cut(&list[..end]).is_err(), "{end}");
            }
        }
        assert_eq!(cut(r#"{"items":[]}"#).unwrap().0, [""; 0]);
        assert!(cut(r#"{"items":null}"#).is_err(), "it is not an empty list");
        assert!(cut(r#"{"metadata":{"items":[{}]}}"#).is_err());
    }
}
