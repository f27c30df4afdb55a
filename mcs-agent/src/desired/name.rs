//! Length limits of names.

use super::problem::ObjectProblem;
use crate::model::{ObjectKey, RejectionReason};

/// Bytes of a name in the maps. This is the length limit of DNS labels (RFC 1123) and of Kubernetes
/// label values.
const MAX_BYTES: usize = 63;

/// Rejects a namespace or name that is too long for the maps.
pub(super) fn check_import(key: &ObjectKey) -> Result<(), ObjectProblem> {
    check("namespace", &key.namespace)?;
    check("name", &key.name)
}

/// Rejects a source cluster's name that is too long for the maps.
pub(super) fn check_cluster(name: &str) -> Result<(), ObjectProblem> {
    check("source cluster", name)
}

fn check(what: &str, name: &str) -> Result<(), ObjectProblem> {
    if name.len() <= MAX_BYTES {
        return Ok(());
    }
    Err(ObjectProblem::new(
        RejectionReason::NameTooLong,
        format!("{what} {name:?} has {} bytes; use at most {MAX_BYTES}", name.len()),
    ))
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
        assert!(check_cluster(&fits).is_ok());
        assert!(check_cluster(&long).is_err());
    }
}
