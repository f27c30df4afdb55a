//! Which labels and annotations an API server takes. One that it does not take would keep the whole import from being written.

/// Whether the API server takes the label.
pub(super) fn is_valid_label(key: &str, value: &str) -> bool {
    is_valid_key(key) && (value.is_empty() || is_name(value))
}

/// Whether the API server takes a label or an annotation with this key.
pub(super) fn is_valid_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((domain, name)) => is_domain(domain) && is_name(name),
        None => is_name(key),
    }
}

fn is_name(name: &str) -> bool {
    let is_inner = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    name.len() <= 63 && name.bytes().all(is_inner) && has_ends(name)
}

/// A subdomain of DNS (RFC 1123).
fn is_domain(domain: &str) -> bool {
    let is_inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let is_part = |part: &str| part.bytes().all(is_inner) && has_ends(part);
    domain.len() <= 253 && domain.split('.').all(is_part)
}

/// Whether it begins and ends with a letter or a digit.
fn has_ends(text: &str) -> bool {
    let is_end = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    is_end(text.bytes().next()) && is_end(text.bytes().last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_that_kubernetes_takes() {
        let long = "a".repeat(64);
        for (key, value, is_valid) in [
            ("team", "shop", true),
            ("team", "", true),
            ("example.com/Team_1.x", "a-B_c.9", true),
            ("team", "with space", false),
            ("team", "-a", false),
            ("team", &long, false),
            (&long, "a", false),
            ("", "a", false),
            ("Example.com/team", "a", false),
            ("example..com/team", "a", false),
            ("a/b/c", "a", false),
            ("/team", "a", false),
        ] {
            assert_eq!(is_valid_label(key, value), is_valid, "{key}={value}");
        }
    }
}
