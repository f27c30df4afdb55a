//! Marks Rust's `i8` as a character type in an eBPF object's type information.
//!
//! A Rust `i8` is a signed one-byte integer in BTF, C's `char` is one with the encoding CHAR, and only that
//! lets bpftool print an array of them as text. The kernel takes either.
//! Format: <https://docs.kernel.org/bpf/btf.html>.

use std::mem;

use anyhow::{Context as _, Result, bail, ensure};
use object::{Object as _, ObjectSection as _};

const MAGIC: u16 = 0xeb9f;
/// Bytes of the header up to and including `str_len`.
const HEADER: usize = 24;
/// Bytes that every type starts with: name, info, size or type.
const TYPE: usize = 12;
const KIND_INT: u32 = 1;
const ENCODING: u32 = 0x0f << 24;
const ENCODING_CHAR: u32 = 1 << 25;

/// Gives each BTF integer named `i8` in the ELF file `object` the encoding CHAR.
///
/// Returns how many there were: none if the object carries no BTF, which LLVM leaves out where no program or
/// map uses a type. A second run changes nothing.
pub(crate) fn mark_text(object: &mut [u8]) -> Result<usize> {
    let section = object::File::parse(&*object)
        .context("not an object file")?
        .section_by_name(".BTF")
        .and_then(|section| section.file_range());
    let Some((offset, size)) = section else { return Ok(0) };
    let (offset, size) = (usize::try_from(offset)?, usize::try_from(size)?);
    let btf = offset.checked_add(size).and_then(|end| object.get_mut(offset..end));
    mark(btf.context(".BTF lies outside of the file")?)
}

fn mark(btf: &mut [u8]) -> Result<usize> {
    let view = Btf::parse(btf)?;
    let words = view.integers_named("i8")?;
    let endian = view.endian;
    for &at in &words {
        let word = endian.u32(btf, at)? & !ENCODING | ENCODING_CHAR;
        btf[at..at + mem::size_of::<u32>()].copy_from_slice(&endian.bytes(word));
    }
    Ok(words.len())
}

struct Btf<'a> {
    data: &'a [u8],
    endian: Endian,
    types: std::ops::Range<usize>,
    strings: std::ops::Range<usize>,
}

impl<'a> Btf<'a> {
    fn parse(data: &'a [u8]) -> Result<Self> {
        let endian = Endian::of(data)?;
        let start = endian.u32(data, 4)? as usize;
        ensure!(start >= HEADER, "BTF header of {start} bytes");
        let part = |offset_at| -> Result<_> {
            let first = start + endian.u32(data, offset_at)? as usize;
            let last = first + endian.u32(data, offset_at + 4)? as usize;
            ensure!(last <= data.len(), "BTF ends at {} before its part up to {last}", data.len());
            Ok(first..last)
        };
        Ok(Self { data, endian, types: part(8)?, strings: part(16)? })
    }

    /// Offsets of the words that hold the encoding of each integer type called `name`.
    fn integers_named(&self, name: &str) -> Result<Vec<usize>> {
        let mut found = Vec::new();
        let mut at = self.types.start;
        while at < self.types.end {
            let info = self.endian.u32(self.data, at + 4)?;
            let (kind, members) = (info >> 24 & 0x1f, info & 0xffff);
            if kind == KIND_INT && self.name(at)? == name.as_bytes() {
                found.push(at + TYPE);
            }
            at += TYPE + trailer(kind, members as usize)?;
        }
        ensure!(at == self.types.end, "the last BTF type reaches {at}, past {}", self.types.end);
        Ok(found)
    }

    fn name(&self, type_at: usize) -> Result<&'a [u8]> {
        let offset = self.endian.u32(self.data, type_at)? as usize;
        let strings = &self.data[self.strings.clone()];
        let rest = strings.get(offset..).context("BTF name outside of the strings")?;
        Ok(rest.split(|&byte| byte == 0).next().unwrap_or_default())
    }
}

/// Bytes that follow the common part of a type of this kind.
fn trailer(kind: u32, members: usize) -> Result<usize> {
    Ok(match kind {
        // INT, VAR, DECL_TAG
        KIND_INT | 14 | 17 => 4,
        // ARRAY
        3 => 12,
        // STRUCT, UNION, DATASEC, ENUM64
        4 | 5 | 15 | 19 => 12 * members,
        // ENUM, FUNC_PROTO
        6 | 13 => 8 * members,
        // PTR, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FLOAT, TYPE_TAG
        2 | 7..=12 | 16 | 18 => 0,
        _ => bail!("unknown BTF kind {kind}"),
    })
}

#[derive(Clone, Copy)]
enum Endian {
    Little,
    Big,
}

impl Endian {
    fn of(btf: &[u8]) -> Result<Self> {
        match btf.first_chunk() {
            Some(&magic) if u16::from_le_bytes(magic) == MAGIC => Ok(Self::Little),
            Some(&magic) if u16::from_be_bytes(magic) == MAGIC => Ok(Self::Big),
            _ => bail!("BTF without its magic number"),
        }
    }

    fn u32(self, data: &[u8], at: usize) -> Result<u32> {
        let bytes = data.get(at..).and_then(|rest| rest.first_chunk());
        let bytes = *bytes.with_context(|| format!("BTF is cut short at {at}"))?;
        Ok(match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        })
    }

    fn bytes(self, word: u32) -> [u8; 4] {
        match self {
            Self::Little => word.to_le_bytes(),
            Self::Big => word.to_be_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNED_8: u32 = 1 << 24 | 8;
    const CHAR_8: u32 = 2 << 24 | 8;
    const STRINGS: &[u8] = b"\0i8\0u8\0Name\0text\0";

    /// `struct Name { text: [i8; 4] }` with a `u8` and a one-variant enum before the `i8`.
    fn words(encoding_of_i8: u32) -> Vec<u32> {
        let kind = |kind: u32, members: u32| kind << 24 | members;
        let mut types = Vec::new();
        types.extend([4, kind(1, 0), 1, 8]); // u8
        types.extend([0, kind(6, 1), 4, 1, 0]); // enum
        types.extend([1, kind(1, 0), 1, encoding_of_i8]);
        types.extend([0, kind(3, 0), 0, 3, 1, 4]); // array of i8
        types.extend([7, kind(4, 1), 4, 12, 4, 0]); // struct
        types
    }

    fn blob(endian: Endian, types: &[u32]) -> Vec<u8> {
        let size = |bytes: usize| u32::try_from(bytes).unwrap();
        let types_len = size(4 * types.len());
        let header = [size(HEADER), 0, types_len, types_len, size(STRINGS.len())];
        let magic = match endian {
            Endian::Little => [0x9f, 0xeb, 1, 0],
            Endian::Big => [0xeb, 0x9f, 1, 0],
        };
        let words = header.iter().chain(types).flat_map(|&word| endian.bytes(word));
        magic.into_iter().chain(words).chain(STRINGS.iter().copied()).collect()
    }

    #[test]
    fn only_the_encoding_of_i8_changes() {
        for endian in [Endian::Little, Endian::Big] {
            let mut btf = blob(endian, &words(SIGNED_8));
            assert_eq!(mark(&mut btf).unwrap(), 1);
            assert_eq!(btf, blob(endian, &words(CHAR_8)));
        }
    }

    #[test]
    fn a_second_run_changes_nothing() {
        let mut btf = blob(Endian::Little, &words(CHAR_8));
        assert_eq!(mark(&mut btf).unwrap(), 1);
        assert_eq!(btf, blob(Endian::Little, &words(CHAR_8)));
    }

    #[test]
    fn damage_is_an_error() {
        let whole = blob(Endian::Little, &words(SIGNED_8));
        for length in 0..whole.len() {
            assert!(mark(&mut whole[..length].to_vec()).is_err(), "cut to {length}");
        }
        let mut unknown_kind = words(SIGNED_8);
        unknown_kind[1] = 31 << 24;
        assert!(mark(&mut blob(Endian::Little, &unknown_kind)).is_err());
    }

    #[test]
    fn what_is_no_object_file_is_an_error() {
        assert!(mark_text(&mut b"text".to_vec()).is_err());
    }
}
