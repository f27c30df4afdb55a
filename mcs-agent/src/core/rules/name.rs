//! Length limits of names.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::problem::ObjectProblem;
use crate::core::model::{ObjectKey, RejectionReason};

/// Bytes of a name in the maps. This is the length limit of DNS labels (RFC 1123) and of Kubernetes
/// label values.
const MAX_BYTES: usize = 63;
/// Hexadecimal digits of the hash in a shortened name: 64 bits.
const HASH_DIGITS: usize = 16;

/// Rejects a namespace or name that is too long for the maps.
pub(super) fn check_import(key: &ObjectKey) -> Result<(), ObjectProblem> {
    check("namespace", &key.namespace)?;
    check("name", &key.name)
}

fn check(what: &str, name: &str) -> Result<(), ObjectProblem> {
    if name.len() <= MAX_BYTES {
        return Ok(());
    }
    let what = format!("{what} {name:?} has {} bytes; use at most {MAX_BYTES}", name.len());
    Err(ObjectProblem::new(RejectionReason::NameTooLong, what))
}

/// The name of a source cluster as the maps hold it. A name that is too long becomes its end and a hash of all of
/// it: `locations/l/memberships/east~0123456789abcdef`. Two names do not become the same one.
pub(super) fn cluster_in_maps(name: &Arc<str>) -> Arc<str> {
    if name.len() <= MAX_BYTES {
        return Arc::clone(name);
    }
    let tail = tail(name, MAX_BYTES - HASH_DIGITS - 1);
    let hash = Sha256::digest(name.as_bytes());
    let hash = hash.first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
    format!("{tail}~{hash:0HASH_DIGITS$x}").into()
}

/// The end of a name, of at most this many bytes. It begins after a slash if there is one.
fn tail(name: &str, bytes: usize) -> &str {
    let fits = |start: usize| name.len() - start <= bytes;
    let after_slash = name.match_indices('/').map(|(at, _)| at + 1);
    let parts = after_slash.filter(|start| fits(*start) && *start < name.len());
    let characters = name.char_indices().map(|(at, _)| at);
    let start = parts.chain(characters.filter(|start| fits(*start))).next();
    start.map_or("", |start| &name[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allows_as_much_as_a_label_has() {
        let fits = "n".repeat(63);
        let long = "n".repeat(64);
        for (namespace, name, part) in [
            (&fits, &fits, None),
            (&long, &fits, Some("namespace \"nnn")),
            (&fits, &long, Some("name \"nnn")),
        ] {
            let result = check_import(&ObjectKey::new(&**namespace, &**name));
            assert_eq!(
                result.as_ref().err().map(|r| r.reason),
                part.map(|_| RejectionReason::NameTooLong)
            );
            if let (Err(problem), Some(part)) = (result, part) {
                assert!(problem.message.starts_with(part), "{}", problem.message);
                assert!(problem.message.contains("64 bytes"), "{}", problem.message);
            }
        }
    }

    #[test]
    fn a_long_cluster_name_becomes_its_end_and_a_hash() {
        let short = |name: &str| cluster_in_maps(&name.into()).to_string();
        let fits = "c".repeat(63);
        assert_eq!(short(&fits), fits);
        let east = "projects/680206487583/locations/us-central1/memberships/east1";
        assert_eq!(short(east), east, "61 bytes");
        for (name, expected) in [
            (format!("{east}-blue"), "locations/us-central1/memberships/east1-blue~"),
            (
                format!("projects/p/{}", "c".repeat(60)),
                "cccccccccccccccccccccccccccccccccccccccccccccc~",
            ),
            (format!("{}/", "c".repeat(70)), "ccccccccccccccccccccccccccccccccccccccccccccc/~"),
            ("é".repeat(32), "ééééééééééééééééééééééé~"),
        ] {
            let found = short(&name);
            let hash = found.strip_prefix(expected).unwrap_or_else(|| panic!("{found}"));
            assert_eq!(hash.len(), HASH_DIGITS);
            assert!(hash.bytes().all(|digit| digit.is_ascii_hexdigit()), "{found}");
            assert!(found.len() <= MAX_BYTES);
            assert_eq!(short(&name), found, "stable");
        }
        let of_project = |project: &str| short(&east.replace("680206487583", project));
        assert_ne!(of_project("680206487583999"), of_project("680206487584999"), "equal ends");
        assert_eq!(
            short(&format!("{east}-blue")),
            "locations/us-central1/memberships/east1-blue~30728bad44edb85a",
            "the name in maps of other versions"
        );
    }
}
