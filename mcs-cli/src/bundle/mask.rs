//! Replaces IP addresses in texts by numbers, the same number for the same address.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use serde_json::Value;

/// The replaced addresses.
#[derive(Debug, Default)]
pub(super) struct Mask(HashMap<IpAddr, usize>);

impl Mask {
    /// The text with `ip-1` and so on in place of addresses. Ports, prefix lengths, and loopback and unspecified addresses
    /// stay.
    pub(super) fn text(&mut self, text: &str) -> String {
        let mut masked = String::with_capacity(text.len());
        let mut rest = text;
        let mut before = None;
        while let Some(c) = rest.chars().next() {
            let found = address_at(before, rest);
            let length = match found {
                Some((_, length)) => length,
                // The letter of an escape is not part of an address: `\nfd00::1`.
                None if c == '\\' => {
                    let is_escaped = |c: char| c == '\\' || c.is_ascii_alphabetic();
                    1 + usize::from(rest[1..].starts_with(is_escaped))
                }
                None => c.len_utf8(),
            };
            let (word, after) = rest.split_at(length);
            match found.and_then(|(ip, _)| self.number(ip)) {
                Some(number) => masked.push_str(&number),
                None => masked.push_str(word),
            }
            before = word.chars().next_back().filter(|_| c != '\\');
            rest = after;
        }
        masked
    }

    /// The value with each text masked. At this point no JSON escape hides an address.
    pub(super) fn value(&mut self, value: Value) -> Value {
        match value {
            Value::String(text) => self.text(&text).into(),
            Value::Array(all) => all.into_iter().map(|one| self.value(one)).collect(),
            Value::Object(all) => {
                all.into_iter().map(|(key, one)| (self.text(&key), self.value(one))).collect()
            }
            other => other,
        }
    }

    fn number(&mut self, ip: IpAddr) -> Option<String> {
        let ip = ip.to_canonical();
        let says_nothing = ip.is_loopback() || ip.is_unspecified() || ip == Ipv4Addr::BROADCAST;
        let next = self.0.len() + 1;
        (!says_nothing).then(|| format!("ip-{}", self.0.entry(ip).or_insert(next)))
    }
}

/// The address that a text begins with, and its length. `before`: the character before it.
fn address_at(before: Option<char>, text: &str) -> Option<(IpAddr, usize)> {
    let v6 = || v6_at(before, text).map(|(ip, length)| (ip.into(), length));
    v6().or_else(|| v4_at(before, text).map(|(ip, length)| (ip.into(), length)))
}

/// The longest prefix that is an address. Part of a word is not an address: `mcs::be`.
fn v6_at(before: Option<char>, text: &str) -> Option<(Ipv6Addr, usize)> {
    const LONGEST: usize = 45;
    let is_part = |c: &u8| c.is_ascii_hexdigit() || matches!(c, b'.' | b':');
    let is_inside = |c: char| c.is_alphanumeric() || c == '_';
    if before.is_some_and(is_inside) {
        return None;
    }
    let length = text.bytes().take(LONGEST).take_while(is_part).count();
    if text[..length].matches(':').count() < 2 {
        return None;
    }
    let mut ends = (2..=length).rev().filter(|end| !text[*end..].starts_with(is_inside));
    ends.find_map(|end| Some((text[..end].parse().ok()?, end)))
}

fn v4_at(before: Option<char>, text: &str) -> Option<(Ipv4Addr, usize)> {
    const LONGEST: usize = 15;
    let is_digit = |c: char| c.is_ascii_digit();
    if before.is_some_and(is_digit) || !text.starts_with(is_digit) {
        return None;
    }
    let is_part = |c: &u8| c.is_ascii_digit() || *c == b'.';
    let length = text.bytes().take(LONGEST).take_while(is_part).count();
    // A port or another address can follow the next dot.
    let end = text[..length].match_indices('.').nth(3).map_or(length, |(dot, _)| dot);
    let is_whole = !text[end..].starts_with(is_digit);
    Some((text[..end].parse().ok().filter(|_| is_whole)?, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_number_everywhere() {
        let mut mask = Mask::default();
        for (text, masked) in [
            ("10.0.0.1", "ip-1"),
            ("10.0.0.2:8080 and 10.0.0.1.", "ip-2:8080 and ip-1."),
            (r#"{"ip":"fd00::1","cidr":"10.0.0.0/8"}"#, r#"{"ip":"ip-3","cidr":"ip-4/8"}"#),
            ("[fd00::1]:443, FD00:0::1", "[ip-3]:443, ip-3"),
            ("from 10.0.0.1: refused", "from ip-1: refused"),
            ("https://10.0.0.2:6443/api", "https://ip-2:6443/api"),
            ("key:10.0.0.1 v4:10.0.0.2 v6:fd00::1", "key:ip-1 v4:ip-2 v6:ip-3"),
            ("10.0.0.1:80:text fd00::1:text", "ip-1:80:text ip-3:text"),
            ("10.0.0.1..10.0.0.2 fd00::1..fd00::1", "ip-1..ip-2 ip-3..ip-3"),
            ("10.0.0.1.80 > 10.0.0.2.443: x10.0.0.1x", "ip-1.80 > ip-2.443: xip-1x"),
            (r"a\n10.0.0.1\tfd00::1\ffd00::1", r"a\nip-1\tip-3\fip-3"),
            ("a\nfd00::1\t10.0.0.1", "a\nip-3\tip-1"),
            (r"a\10.0.0.1 a\\fd00::1", r"a\ip-1 a\\ip-3"),
            ("::ffff:10.0.0.1", "ip-1"),
        ] {
            assert_eq!(mask.text(text), masked);
        }
    }

    #[test]
    fn what_is_no_address_stays() {
        let mut mask = Mask::default();
        for text in [
            "2026-01-02T03:04:05Z mcs_agent::core::engine: v1.30.4 1.2.3",
            "127.0.0.1:16450 ::1 0.0.0.0 :: std::fmt mcs::be",
            "10.0.0.1234 300.1.1.1 v1.30.4. é::1é",
            "sha256:0123456789abcdef",
            "",
        ] {
            assert_eq!(mask.text(text), text);
        }
    }
    #[test]
    fn every_text_of_a_value_is_masked() {
        let value = serde_json::json!({"10.0.0.1": ["a\nfd00::1", 1, null]});
        let masked = serde_json::json!({"ip-1": ["a\nip-2", 1, null]});
        assert_eq!(Mask::default().value(value), masked);
    }
}
