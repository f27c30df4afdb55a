//! Parses version numbers from the output of programs.

use std::{fmt, process::Command};

use crate::process;

/// A dotted version, as far as it is numeric: `1.96.0` of `rustc 1.96.0-nightly`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(Vec<u32>);

impl Version {
    /// The first dotted number in `text`.
    pub(crate) fn find(text: &str) -> Option<Self> {
        text.split(|c: char| !c.is_ascii_digit() && c != '.')
            .map(|word| word.trim_matches('.'))
            .filter(|word| word.contains('.'))
            .find_map(|word| word.split('.').map(|part| part.parse().ok()).collect())
            .map(Self)
    }

    /// What `command`, which asks a program for its version, says.
    pub(crate) fn ask(command: &mut Command) -> Option<Self> {
        Self::find(&process::printed(command).ok()?)
    }

    /// The first of the numbers.
    pub(crate) fn major(&self) -> u32 {
        self.0.first().copied().unwrap_or_default()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&parts.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_among_other_words() {
        let cases = [
            ("bpf-linker 0.13.0", Some("0.13.0")),
            ("rustc 1.96.0-nightly (ac68faa20 2026-05-25)", Some("1.96.0")),
            ("ip utility, iproute2-6.1.0, libbpf 1.1.0", Some("6.1.0")),
            ("OpenBSD netcat (Debian patchlevel 1.219-1)", Some("1.219")),
            ("bpftool v7.1.0\nusing libbpf v1.1", Some("7.1.0")),
            ("see README. version 4", None),
            ("", None),
        ];
        for (text, version) in cases {
            assert_eq!(Version::find(text).map(|v| v.to_string()).as_deref(), version, "{text}");
        }
    }

    #[test]
    fn versions_compare_by_number() {
        let version = |text| Version::find(text).unwrap();
        assert!(version("0.13.0") > version("0.9.15"));
        assert!(version("1.95.0") > version("1.95"));
        assert!(version("1.95") > version("1.94.1"));
        assert_eq!(version("22.1.8").major(), 22);
    }
}
