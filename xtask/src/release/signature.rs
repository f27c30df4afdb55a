//! Signs what a release has with a key that is thrown away, and verifies that: ECDSA on P-256 with SHA-256, as cosign does.
//!
//! The workflow signs with cosign, without a key of ours. This shows that every file can be signed, and that a changed one
//! does not verify.

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};

use super::files::Files;

/// The public key's file.
const KEY: &str = "throw-away.pub";

/// A key that nothing keeps.
pub(super) struct Key(KeyPair);

impl Key {
    pub(super) fn generate() -> Result<Self> {
        Ok(Self(KeyPair::generate().context("cannot make a key")?))
    }

    pub(super) fn sign(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        self.0.sign(bytes).context("cannot sign")
    }

    pub(super) fn verifies(&self, bytes: &[u8], signature: &[u8]) -> bool {
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, self.0.der_bytes());
        public.verify(bytes, signature).is_ok()
    }
}

/// Signatures of files, by name.
pub(super) struct Signatures<'a> {
    key: &'a Key,
    by_name: BTreeMap<String, Vec<u8>>,
}

impl<'a> Signatures<'a> {
    /// Signs every file.
    pub(super) fn of(files: &Files, key: &'a Key) -> Result<Self> {
        let sign = |name: &String| Ok((name.clone(), key.sign(&files.read(name)?)?));
        let by_name = files.names().iter().map(sign).collect::<Result<_>>()?;
        Ok(Self { key, by_name })
    }

    /// Fails unless the files are those that were signed. Returns how many there are.
    pub(super) fn verify(&self, files: &Files) -> Result<usize> {
        for (name, signature) in &self.by_name {
            let bytes = files.read(name)?;
            ensure!(
                self.key.verifies(&bytes, signature),
                "the signature of {name} does not verify"
            );
        }
        Ok(self.by_name.len())
    }

    /// Writes them beside the files, as `cosign sign-blob` does, with the public key.
    pub(super) fn write(&self, files: &Files) -> Result<()> {
        let directory = files.directory();
        for (name, signature) in &self.by_name {
            fs::write(directory.join(format!("{name}.sig")), STANDARD.encode(signature))?;
        }
        Ok(fs::write(directory.join(KEY), self.key.0.public_key_pem())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_does_not_verify() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = Files::create(directory.path().join("files")).unwrap();
        files.add("agent", "program").unwrap();
        files.add("chart", "values").unwrap();
        let key = Key::generate().unwrap();
        let signatures = Signatures::of(&files, &key).unwrap();
        assert_eq!(signatures.verify(&files).unwrap(), 2);

        fs::write(files.directory().join("agent"), "Program").unwrap();
        let error = signatures.verify(&files).unwrap_err();
        assert_eq!(error.to_string(), "the signature of agent does not verify");
    }

    #[test]
    fn openssl_verifies_what_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = Files::create(directory.path().join("files")).unwrap();
        files.add("agent", "program").unwrap();
        let key = Key::generate().unwrap();
        Signatures::of(&files, &key).unwrap().write(&files).unwrap();
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
