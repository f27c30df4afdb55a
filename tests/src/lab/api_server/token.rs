//! Tokens as an API server makes them, with another time.

use k8s_openapi::ByteString;
use rcgen::{KeyPair, SigningKey as _};

use crate::prelude::*;

/// A token with these claims. `key` is the file of the private key.
pub(super) fn sign(key: &Path, claims: &Value) -> Result<String> {
    let pair = KeyPair::from_pem(&fs::read_to_string(key)?)?;
    let header = json!({ "alg": "ES256", "typ": "JWT" });
    let [header, claims] = [&header, claims].map(|part| base64(part.to_string().into_bytes()));
    let text = format!("{}.{}", header?, claims?);
    let signature = pair.sign(text.as_bytes())?;
    let numbers = numbers(&signature).context("the signature is no sequence of two numbers")?;
    Ok(format!("{text}.{}", base64(numbers)?))
}

/// In the alphabet of URLs, without padding.
fn base64(bytes: Vec<u8>) -> Result<String> {
    let text = serde_json::to_value(ByteString(bytes))?;
    let text = text.as_str().context("bytes are written as a text")?;
    Ok(text.trim_end_matches('=').replace('+', "-").replace('/', "_"))
}

/// The two numbers of an ECDSA signature, which JWT (RFC 7518, 3.4) wants with 32 bytes each, from DER.
fn numbers(der: &[u8]) -> Option<Vec<u8>> {
    let mut rest = der.get(2..)?;
    let mut numbers = Vec::new();
    for _ in 0..2 {
        let length = usize::from(*rest.get(1)?);
        let number = rest.get(2..2 + length)?;
        let significant = &number[number.len().saturating_sub(32)..];
        numbers.resize(numbers.len() + 32 - significant.len(), 0);
        numbers.extend(significant);
        rest = &rest[2 + length..];
    }
    Some(numbers)
}
