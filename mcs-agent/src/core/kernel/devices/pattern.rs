//! The patterns of `--tc-devices` and `--uplinks`.

use std::{fmt, str::FromStr};

use glob::Pattern;
use thiserror::Error;

use super::Device;

/// One word of `--tc-devices` or `--uplinks`: a glob of names, `kind=KIND`, or either with a `!`
/// before it, which excludes what it matches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DevicePattern {
    text: String,
    excludes: bool,
    matches: Matches,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Matches {
    Name(Pattern),
    Kind(String),
}

/// Why a word is not a pattern.
#[derive(Debug, Error)]
pub enum PatternError {
    /// The word is empty, or has nothing after `!` or `kind=`.
    #[error("a pattern is a name (`veth*`) or a kind (`kind=veth`), perhaps after `!`")]
    Empty,
    /// The key is not `kind`.
    #[error("{key}= is not known: a pattern is a name (`veth*`) or a kind (`kind=veth`)")]
    UnknownKey {
        /// The text before the `=`.
        key: String,
    },
    /// The glob is invalid.
    #[error("no glob")]
    Glob(#[from] glob::PatternError),
}

impl FromStr for DevicePattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let (excludes, what) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let matches = match what.split_once('=') {
            Some((_, "")) => return Err(PatternError::Empty),
            Some(("kind", kind)) => Matches::Kind(kind.to_owned()),
            Some((key, _)) => return Err(PatternError::UnknownKey { key: key.to_owned() }),
            None if what.is_empty() => return Err(PatternError::Empty),
            None => Matches::Name(Pattern::new(what)?),
        };
        Ok(Self { text: text.to_owned(), excludes, matches })
    }
}

impl fmt::Display for DevicePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl DevicePattern {
    fn matches(&self, device: &Device) -> bool {
        match &self.matches {
            Matches::Name(pattern) => pattern.matches(&device.name),
            Matches::Kind(kind) => *kind == device.kind,
        }
    }
}

/// A list of patterns. The first one that matches decides. A list that only excludes narrows the choice that the
/// agent makes without a list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DevicePatterns(pub Vec<DevicePattern>);

/// What a list decides about a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Decision<'a> {
    Taken,
    Excluded(&'a DevicePattern),
    NotNamed,
}

impl DevicePatterns {
    /// Decides about `device`. Without a list the agent chooses a `usual` one.
    pub(super) fn decide(&self, device: &Device, usual: bool) -> Decision<'_> {
        match self.0.iter().find(|pattern| pattern.matches(device)) {
            Some(pattern) if pattern.excludes => Decision::Excluded(pattern),
            Some(_) => Decision::Taken,
            None if usual && self.0.iter().all(|pattern| pattern.excludes) => Decision::Taken,
            None => Decision::NotNamed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::kernel::devices::LinkType;

    fn patterns(words: &str) -> DevicePatterns {
        let words = words.split(',').filter(|word| !word.is_empty());
        DevicePatterns(words.map(|word| word.parse().unwrap()).collect())
    }

    fn device(name: &str, kind: &str) -> Device {
        Device {
            index: 7,
            name: name.to_owned(),
            kind: kind.to_owned(),
            link_type: LinkType::Ethernet,
            peer_elsewhere: false,
            peer: None,
        }
    }

    #[test]
    fn the_first_that_matches_decides() {
        let veth = device("veth12", "veth");
        let cases = [
            ("", true, "taken"),
            ("", false, "not named"),
            ("veth*", false, "taken"),
            ("veth?", true, "not named"),
            ("veth1[0-4]", false, "taken"),
            ("kind=veth", false, "taken"),
            ("kind=tun", true, "not named"),
            ("cali*,kind=veth", false, "taken"),
            ("!veth1*,veth*", true, "excluded by !veth1*"),
            ("veth*,!veth1*", true, "taken"),
            ("!kind=veth,*", true, "excluded by !kind=veth"),
            ("!eth*", true, "taken"),
            ("!eth*", false, "not named"),
            ("!eth*,cali*", true, "not named"),
        ];
        for (words, usual, expected) in cases {
            let patterns = patterns(words);
            let said = match patterns.decide(&veth, usual) {
                Decision::Taken => "taken".to_owned(),
                Decision::Excluded(pattern) => format!("excluded by {pattern}"),
                Decision::NotNamed => "not named".to_owned(),
            };
            assert_eq!(said, expected, "{words:?}, usual: {usual}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        let cases = [
            ("", "a pattern is"),
            ("!", "a pattern is"),
            ("kind=", "a pattern is"),
            ("!kind=", "a pattern is"),
            ("type=veth", "type= is not known"),
            ("veth[", "no glob"),
        ];
        for (word, expected) in cases {
            let error = word.parse::<DevicePattern>().unwrap_err().to_string();
            assert!(error.starts_with(expected), "{word:?}: {error}");
        }
    }
}
