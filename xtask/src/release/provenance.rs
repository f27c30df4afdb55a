//! Says what a release was made from: an in-toto statement with SLSA provenance, in a signed envelope (DSSE).
//!
//! The workflow's statements are GitHub's attestations. This one has the same subjects, and a key that is thrown away.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use mcs_tests::oci;
use serde_json::{Value, json};

use super::{
    files::Files,
    signature::{Key, PublicKey},
};

/// The envelope's file.
const ENVELOPE: &str = "provenance.dsse.json";
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

/// Writes a statement beside the files, in an envelope with its signature.
pub(super) fn write(files: &Files, statement: &Value, key: &Key) -> Result<()> {
    let payload = statement.to_string().into_bytes();
    let signature = key.sign(&signed_bytes(&payload))?;
    let envelope = json!({
        "payloadType": PAYLOAD,
        "payload": STANDARD.encode(payload),
        "signatures": [{ "sig": STANDARD.encode(signature) }],
    });
    Ok(fs::write(files.directory().join(ENVELOPE), envelope.to_string())?)
}

/// Fails unless the envelope beside the files is signed, and its statement names the commit, the digests of image and files, and
/// nothing else.
pub(super) fn verify(files: &Files, commit: &str, (image, digest): (&str, &str)) -> Result<()> {
    let envelope: Value = serde_json::from_slice(&files.read(ENVELOPE)?)?;
    let decode = |field: &Value| {
        let text = field.as_str().context("the provenance lacks a field")?;
        STANDARD.decode(text).context("a field of the provenance is not base64")
    };
    let payload = decode(&envelope["payload"])?;
    let signature = decode(&envelope["signatures"][0]["sig"])?;
    let is_signed = PublicKey::read(files)?.verifies(&signed_bytes(&payload), &signature);
    ensure!(is_signed, "the signature of the provenance does not verify");
    ensure!(envelope["payloadType"] == PAYLOAD, "the provenance is of another type");
    let statement: Value = serde_json::from_slice(&payload)?;
    let source = &statement["predicate"]["buildDefinition"]["resolvedDependencies"][0];
    ensure!(source["digest"]["gitCommit"] == commit, "the provenance names another commit");

    let digest = digest.strip_prefix("sha256:").context("the image's digest is not of SHA-256")?;
    let mut expected = vec![(image, digest.to_owned())];
    for name in files.names() {
        expected.push((name, oci::sha256(&files.read(name)?)));
    }
    let subjects = statement["subject"].as_array().context("the provenance has no subjects")?;
    for (name, digest) in &expected {
        let is_named = subjects
            .iter()
            .any(|subject| subject["name"] == *name && subject["digest"]["sha256"] == *digest);
        ensure!(is_named, "the provenance has another digest of {name}, or none");
    }
    ensure!(subjects.len() == expected.len(), "the provenance names what the release lacks");
    Ok(())
}

/// What is signed of a payload: DSSE's pre-authentication encoding.
fn signed_bytes(payload: &[u8]) -> Vec<u8> {
    let header = format!("DSSEv1 {} {PAYLOAD} {} ", PAYLOAD.len(), payload.len());
    [header.as_bytes(), payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::signature;

    const COMMIT: &str = "1234";
    const IMAGE: (&str, &str) = ("ghcr.io/some/where:1", "sha256:00");

    /// A file with its signature and provenance.
    fn signed(directory: &tempfile::TempDir) -> Files {
        let mut files = Files::create(directory.path().join("files")).unwrap();
        files.add("agent", "program").unwrap();
        let key = Key::generate().unwrap();
        signature::write(&files, &key).unwrap();
        let statement = statement(&files, "some/where", COMMIT, IMAGE).unwrap();
        write(&files, &statement, &key).unwrap();
        files
    }

    fn error(files: &Files, commit: &str, image: (&str, &str)) -> String {
        verify(files, commit, image).unwrap_err().to_string()
    }

    #[test]
    fn another_file_image_or_commit_does_not_verify() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = signed(&directory);
        verify(&files, COMMIT, IMAGE).unwrap();

        let commit = error(&files, "5678", IMAGE);
        assert!(commit.contains("another commit"), "{commit}");
        let image = error(&files, COMMIT, (IMAGE.0, "sha256:01"));
        assert!(image.contains("another digest of ghcr.io/some/where:1"), "{image}");
        fs::write(files.directory().join("agent"), "Program").unwrap();
        let file = error(&files, COMMIT, IMAGE);
        assert!(file.contains("another digest of agent"), "{file}");
        fs::write(files.directory().join("agent"), "program").unwrap();
        files.add("chart", "values").unwrap();
        let file = error(&files, COMMIT, IMAGE);
        assert!(file.contains("another digest of chart, or none"), "{file}");
    }

    #[test]
    fn a_subject_without_a_file_does_not_verify() {
        let directory = tempfile::tempdir().unwrap();
        let files = signed(&directory);
        let key = Key::generate().unwrap();
        signature::write(&files, &key).unwrap();
        let mut statement = statement(&files, "some/where", COMMIT, IMAGE).unwrap();
        statement["subject"].as_array_mut().unwrap().push(subject("chart", "00"));
        write(&files, &statement, &key).unwrap();
        let error = error(&files, COMMIT, IMAGE);
        assert!(error.contains("what the release lacks"), "{error}");
    }

    #[test]
    fn a_changed_envelope_does_not_verify() {
        let directory = tempfile::tempdir().unwrap();
        let statement = json!({ "subject": [] }).to_string();
        for (field, value, expected) in [
            ("payload", STANDARD.encode(statement), "signature of the provenance"),
            ("payloadType", "text/plain".to_owned(), "of another type"),
        ] {
            let files = signed(&directory);
            let mut envelope: Value =
                serde_json::from_slice(&files.read(ENVELOPE).unwrap()).unwrap();
            envelope[field] = value.into();
            fs::write(files.directory().join(ENVELOPE), envelope.to_string()).unwrap();
            let error = error(&files, COMMIT, IMAGE);
            assert!(error.contains(expected), "{error}");
        }
    }
}
