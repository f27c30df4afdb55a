//! Says what a release was made from: an in-toto statement with SLSA provenance, in a signed envelope (DSSE).
//!
//! The workflow's statements are GitHub's attestations. This one has the same subjects, and a key that is thrown away.

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use mcs_tests::oci;
use serde_json::{Value, json};

use super::{files::Files, signature::Key};

const PAYLOAD: &str = "application/vnd.in-toto+json";
/// The workflow whose identity signs a release.
const WORKFLOW: &str = ".github/workflows/release.yml";

/// The statement about files, an image with its digest, and the commit that they are made from.
pub(super) fn statement(
    files: &Files,
    repository: &str,
    commit: &str,
    (image, digest): (&str, &str),
) -> Result<Value> {
    let mut subjects = vec![subject(image, digest)];
    for name in files.names() {
        subjects.push(subject(name, &oci::sha256(&files.read(name)?)));
    }
    let source = format!("git+https://github.com/{repository}");
    Ok(json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": format!("https://github.com/{repository}/{WORKFLOW}"),
                "externalParameters": { "version": env!("CARGO_PKG_VERSION") },
                "resolvedDependencies": [{ "uri": source, "digest": { "gitCommit": commit } }],
            },
            "runDetails": { "builder": { "id": "cargo xtask release --dry-run" } },
        },
    }))
}

fn subject(name: &str, digest: &str) -> Value {
    json!({ "name": name, "digest": { "sha256": digest.trim_start_matches("sha256:") } })
}

/// Puts a statement into an envelope with its signature.
pub(super) fn sign(statement: &Value, key: &Key) -> Result<Value> {
    let payload = statement.to_string().into_bytes();
    let signature = key.sign(&signed_bytes(&payload))?;
    Ok(json!({
        "payloadType": PAYLOAD,
        "payload": STANDARD.encode(payload),
        "signatures": [{ "sig": STANDARD.encode(signature) }],
    }))
}

/// Fails unless the key has signed the envelope and its statement has the digest of every file.
pub(super) fn verify(envelope: &Value, key: &Key, files: &Files) -> Result<()> {
    let decode = |field: &Value| {
        let text = field.as_str().context("the provenance lacks a field")?;
        STANDARD.decode(text).context("a field of the provenance is not base64")
    };
    let payload = decode(&envelope["payload"])?;
    let signature = decode(&envelope["signatures"][0]["sig"])?;
    let is_signed = key.verifies(&signed_bytes(&payload), &signature);
    ensure!(is_signed, "the signature of the provenance does not verify");
    let statement: Value = serde_json::from_slice(&payload)?;
    let subjects = statement["subject"].as_array().context("the provenance has no subjects")?;
    for name in files.names() {
        let digest = oci::sha256(&files.read(name)?);
        let is_named = subjects
            .iter()
            .any(|subject| subject["name"] == **name && subject["digest"]["sha256"] == digest);
        ensure!(is_named, "the provenance has another digest of {name}, or none");
    }
    Ok(())
}

/// What is signed of a payload: DSSE's pre-authentication encoding.
fn signed_bytes(payload: &[u8]) -> Vec<u8> {
    let header = format!("DSSEv1 {} {PAYLOAD} {} ", PAYLOAD.len(), payload.len());
    [header.as_bytes(), payload].concat()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_changed_file_or_statement_does_not_verify() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = Files::create(directory.path().join("files")).unwrap();
        files.add("agent", "program").unwrap();
        let key = Key::generate().unwrap();
        let image = ("ghcr.io/some/where:1", "sha256:00");
        let mut statement = statement(&files, "some/where", "1234", image).unwrap();
        let envelope = sign(&statement, &key).unwrap();
        verify(&envelope, &key, &files).unwrap();

        statement["predicate"]["buildDefinition"]["externalParameters"]["version"] = "9".into();
        let mut other = envelope.clone();
        other["payload"] = STANDARD.encode(statement.to_string()).into();
        let error = verify(&other, &key, &files).unwrap_err().to_string();
        assert!(error.contains("signature of the provenance"), "{error}");

        fs::write(files.directory().join("agent"), "Program").unwrap();
        let error = verify(&envelope, &key, &files).unwrap_err().to_string();
        assert!(error.contains("another digest of agent"), "{error}");
    }
}
