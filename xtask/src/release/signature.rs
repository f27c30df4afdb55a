//! Signs what a release has with a key that is thrown away, and verifies that: ECDSA on P-256 with SHA-256, as cosign does.
//!
//! The workflow signs with cosign, without a key of ours. This shows that every file can be signed, and that a changed one
//! does not verify. It verifies what a reader of the directory has: files, signatures and the public key.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{KeyPair, SigningKey as _};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};

use super::files::Files;

/// The public key's file.
const KEY: &str = "throw-away.pub";
/// What stands before the point of a public key on P-256 (RFC 5480, in DER).
const P256: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// A key that nothing keeps.
pub(super) struct Key(KeyPair);

impl Key {
    pub(super) fn generate() -> Result<Self> {
        Ok(Self(KeyPair::generate().context("cannot make a key")?))
    }

    pub(super) fn sign(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        self.0.sign(bytes).context("cannot sign")
    }
}

/// The public key that lies beside the files.
pub(super) struct PublicKey(UnparsedPublicKey<Vec<u8>>);

impl PublicKey {
    pub(super) fn read(files: &Files) -> Result<Self> {
        let pem = pem::parse(files.read(KEY)?).with_context(|| format!("{KEY} is no PEM"))?;
        let point = pem.contents().strip_prefix(P256);
        let point = point.with_context(|| format!("{KEY} is no public key on P-256"))?;
        Ok(Self(UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point.to_owned())))
    }

    pub(super) fn verifies(&self, bytes: &[u8], signature: &[u8]) -> bool {
        self.0.verify(bytes, signature).is_ok()
    }
}

/// Writes a signature beside every file, as `cosign sign-blob` does, and the public key.
pub(super) fn write(files: &Files, key: &Key) -> Result<()> {
    let directory = files.directory();
    for name in files.names() {
        let signature = key.sign(&files.read(name)?)?;
        fs::write(directory.join(file(name)), STANDARD.encode(signature))?;
    }
    Ok(fs::write(directory.join(KEY), key.0.public_key_pem())?)
}

/// Fails unless the signature of every file verifies, and does not with one byte more. Returns how many there are.
pub(super) fn verify(files: &Files) -> Result<usize> {
    let key = PublicKey::read(files)?;
    for name in files.names() {
        let signature = STANDARD
            .decode(files.read(&file(name))?)
            .with_context(|| format!("the signature of {name} is not base64"))?;
        let mut bytes = files.read(name)?;
        ensure!(key.verifies(&bytes, &signature), "the signature of {name} does not verify");
        bytes.push(0);
        ensure!(!key.verifies(&bytes, &signature), "a longer {name} verifies too");
    }
    Ok(files.names().len())
}

/// The file with the signature of another one.
fn file(name: &str) -> String {
    format!("{name}.sig")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(directory: &tempfile::TempDir) -> Files {
        let mut files = Files::create(directory.path().join("files")).unwrap();
        files.add("agent", "program").unwrap();
        files.add("chart", "values").unwrap();
        write(&files, &Key::generate().unwrap()).unwrap();
        files
    }

    #[test]
    fn a_changed_file_does_not_verify() {
        let directory = tempfile::tempdir().unwrap();
        let files = signed(&directory);
        assert_eq!(verify(&files).unwrap(), 2);

        fs::write(files.directory().join("agent"), "Program").unwrap();
        let error = verify(&files).unwrap_err();
        assert_eq!(error.to_string(), "the signature of agent does not verify");
    }

    #[test]
    fn what_is_written_is_what_is_verified() {
        type Change = fn(&Files);

        let directory = tempfile::tempdir().unwrap();
        let change: [(&str, Change); 4] = [
            ("the signature of agent does not verify", |files| {
                let of_another = files.read("chart.sig").unwrap();
                fs::write(files.directory().join("agent.sig"), of_another).unwrap();
            }),
            ("agent.sig", |files| fs::remove_file(files.directory().join("agent.sig")).unwrap()),
            ("the signature of agent does not verify", |files| {
                let another = Key::generate().unwrap().0.public_key_pem();
                fs::write(files.directory().join(KEY), another).unwrap();
            }),
            ("throw-away.pub is no public key on P-256", |files| {
                let of_another_curve = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
                fs::write(files.directory().join(KEY), of_another_curve.public_key_pem()).unwrap();
            }),
        ];
        for (expected, change) in change {
            let files = signed(&directory);
            change(&files);
            let error = verify(&files).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}, not {expected}");
        }
    }

    #[test]
    fn openssl_verifies_what_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let files = signed(&directory);
        let signature = STANDARD.decode(files.read("agent.sig").unwrap()).unwrap();
        let file = files.directory().join("signature");
        fs::write(&file, signature).unwrap();
        let verifies = || {
            let mut openssl = std::process::Command::new("openssl");
            openssl.args(["dgst", "-sha256", "-verify", KEY, "-signature", "signature", "agent"]);
            openssl.current_dir(files.directory()).output()
        };
        // A build machine may lack it.
        let Ok(output) = verifies() else { return };
        assert!(output.status.success(), "{output:?}");
        fs::write(files.directory().join("agent"), "Program").unwrap();
        assert!(!verifies().unwrap().status.success());
    }
}
