//! Signs the files of a release with a key that is thrown away, and verifies that: ECDSA on P-256 with SHA-256, as cosign does.
//!
//! The workflow signs with cosign, without a key of ours. This shows that every file can be signed, and that a changed one
//! does not verify.

use anyhow::{Context as _, Result, ensure};
use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _,
        UnparsedPublicKey,
    },
};

use super::files::Files;

/// Returns how many files were signed.
pub(super) fn sign_and_verify(files: &Files) -> Result<usize> {
    let random = SystemRandom::new();
    let kind = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let key = EcdsaKeyPair::generate_pkcs8(kind, &random).ok().context("cannot make a key")?;
    let pair = EcdsaKeyPair::from_pkcs8(kind, key.as_ref(), &random);
    let pair = pair.ok().context("cannot use the key")?;
    let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, pair.public_key().as_ref());
    for name in files.names() {
        let mut bytes = files.read(name)?;
        let signature = pair.sign(&random, &bytes).ok().context("cannot sign")?;
        let verifies = |bytes: &[u8]| public.verify(bytes, signature.as_ref()).is_ok();
        ensure!(verifies(&bytes), "the signature of {name} does not verify");
        bytes.push(0);
        ensure!(!verifies(&bytes), "the signature of {name} verifies other bytes");
    }
    Ok(files.names().len())
}
