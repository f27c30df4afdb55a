//! Replaces IP addresses in texts by numbers, the same one for the same address.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, SocketAddrV4},
};

/// The addresses that were replaced.
#[derive(Debug, Default)]
pub(super) struct Mask(HashMap<IpAddr, usize>);

impl Mask {
    /// The text with `ip-1` and so on in the place of addresses. Ports and the lengths of prefixes stay, and so do addresses
    /// that say nothing: loopback and unspecified ones.
    pub(super) fn text(&mut self, text: &str) -> String {
        let is_part = |c: char| c.is_ascii_hexdigit() || c == '.' || c == ':';
        let mut masked = String::with_capacity(text.len());
        let mut rest = text;
        let mut before = None;
        while let Some(start) = rest.find(is_part) {
            let (other, from) = rest.split_at(start);
            masked.push_str(other);
            before = other.chars().next_back().or(before);
            let end = from.find(|c| !is_part(c)).unwrap_or(from.len());
            let (word, after) = from.split_at(end);
            // Part of a word: `mcs::e`.
            let is_inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            let is_word = !is_inside(before) && !is_inside(after.chars().next());
            match is_word.then(|| self.word(word)).flatten() {
                Some(replaced) => masked.push_str(&replaced),
                None => masked.push_str(word),
            }
            before = word.chars().next_back();
            rest = after;
        }
        masked + rest
    }

    /// A word that is an address, or one with a port, at the end of a sentence or not.
    fn word(&mut self, word: &str) -> Option<String> {
        let address = word.trim_end_matches(['.', ':']);
        let tail = &word[address.len()..];
        if let Ok(ip) = word.parse::<IpAddr>().or_else(|_| address.parse()) {
            let tail = if word.parse::<IpAddr>().is_ok() { "" } else { tail };
            return Some(format!("{}{tail}", self.number(ip)?));
        }
        let with_port = address.parse::<SocketAddrV4>().ok()?;
        Some(format!("{}:{}{tail}", self.number((*with_port.ip()).into())?, with_port.port()))
    }

    fn number(&mut self, ip: IpAddr) -> Option<String> {
        let says_nothing = ip.is_loopback() || ip.is_unspecified() || ip == Ipv4Addr::BROADCAST;
        let next = self.0.len() + 1;
        (!says_nothing).then(|| format!("ip-{}", self.0.entry(ip).or_insert(next)))
    }
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
        ] {
            assert_eq!(mask.text(text), masked);
        }
    }

    #[test]
    fn what_is_no_address_stays() {
        let mut mask = Mask::default();
        for text in [
            "2026-01-02T03:04:05Z mcs_agent::engine: v1.30.4 1.2.3",
            "127.0.0.1:16450 ::1 0.0.0.0 :: std::fmt mcs::be",
            "node-10.0.0.1x",
            "sha256:0123456789abcdef",
            "",
        ] {
            assert_eq!(mask.text(text), text);
        }
    }
}
