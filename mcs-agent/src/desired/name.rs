use super::refusal::Refusal;
use crate::model::{ObjectKey, RejectionReason};

/// Bytes that the maps hold of a name: as many as a label may have (RFC 1123, and Kubernetes label
/// values).
const MAX_BYTES: usize = 63;

/// Refuses a namespace or name that the maps cannot hold.
pub(super) fn check_import(key: &ObjectKey) -> Result<(), Refusal> {
    check("namespace", &key.namespace)?;
    check("name", &key.name)
}

/// Refuses a source cluster's name that the maps cannot hold.
pub(super) fn check_cluster(name: &str) -> Result<(), Refusal> {
    check("source cluster", name)
}

fn check(what: &str, name: &str) -> Result<(), Refusal> {
    if name.len() <= MAX_BYTES {
        return Ok(());
    }
    Err(Refusal::new(
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
            if let (Err(refusal), Some(part)) = (result, part) {
                assert!(refusal.message.starts_with(part), "{}", refusal.message);
                assert!(refusal.message.contains("64 bytes"), "{}", refusal.message);
            }
        }
        assert!(check_cluster(&fits).is_ok());
        assert!(check_cluster(&long).is_err());
    }
}
