//! Checks which parts of the agent use aya, the map ABI, Kubernetes types and unsafe code, and that the controller's rules
//! are pure: the compiler allows these imports everywhere, the architecture does not.
//!
//! The check reads identifiers, not types. It skips comments, and test code at the end of a file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

/// The sources with their rules.
const SOURCES: [(&str, &[Rule]); 2] =
    [("mcs-agent/src", RULES), ("mcs-controller/src", CONTROLLER_RULES)];

/// Something that only some files may use.
struct Rule {
    /// What to say of it.
    what: &'static str,
    /// Whether a word of code, with what follows it, is such a use.
    is_use: fn(word: &str, rest: &str) -> bool,
    /// The files that the rule is about, as paths below the source. None means all.
    only: &'static [&'static str],
    /// Where it is allowed, each with the reason.
    rooms: &'static [(&'static str, &'static str)],
}

const RULES: &[Rule] = &[
    Rule {
        what: "aya: only bpf/, loader/ and dataplane/ know how programs and maps are reached",
        is_use: |word, rest| {
            matches!(word, "aya" | "aya_obj" | "aya_log") && rest.starts_with("::")
        },
        only: &["model", "store", "desired", "engine", "agent", "explain", "cli"],
        rooms: &[],
    },
    Rule {
        what: "a type of the map ABI: only reconcile/ and below know how maps are laid out",
        is_use: |word, rest| {
            word == "mcs_common" && names(rest).any(|name| !VALUES.contains(&name))
        },
        only: &["model", "store", "desired", "engine", "agent", "explain", "cli"],
        rooms: &[("cli/flows.rs", "it prints flags of flows")],
    },
    Rule {
        what: "a Kubernetes type: source/ turns objects into the model's",
        is_use: |word, rest| {
            matches!(word, "k8s_openapi" | "kube") && rest.starts_with("::")
                || word == "mcs_kube" && names(rest).any(|name| !VALUES.contains(&name))
        },
        only: &[],
        rooms: &[
            ("source", "it reads objects"),
            (
                "node_cleanup.rs",
                "it changes the agent's DaemonSet, and reads nothing that the agent serves",
            ),
        ],
    },
    Rule {
        what: "unsafe code: raw system calls are in bpf/",
        is_use: |word, _| word == "unsafe",
        only: &[],
        rooms: &[
            ("bpf", "bpf(2), getsockopt(2) and mapped memory"),
            ("agent/malloc.rs", "mallopt(3) and malloc_trim(3)"),
            ("loader/program_log.rs", "tokio has no safe call that waits for a descriptor"),
        ],
    },
    Rule {
        what: "a call of libc: raw system calls are in bpf/",
        is_use: |word, rest| word == "libc" && calls(rest),
        only: &[],
        rooms: &[
            ("bpf", "bpf(2) and others"),
            ("agent/malloc.rs", "mallopt(3) and malloc_trim(3)"),
        ],
    },
];

const CONTROLLER_RULES: &[Rule] = &[
    Rule {
        what: "a Kubernetes type, I/O or a clock: the rules of a clusterset and its plans are pure",
        is_use: |word, rest| {
            matches!(word, "k8s_openapi" | "kube" | "tokio" | "jiff" | "Instant" | "SystemTime")
                && rest.starts_with("::")
                || word == "mcs_kube" && names(rest).any(|name| !VALUES.contains(&name))
        },
        only: &["clusterset", "plan"],
        rooms: &[],
    },
    Rule {
        what: "unsafe code: the controller needs none",
        is_use: |word, _| word == "unsafe",
        only: &[],
        rooms: &[],
    },
];

/// What of mcs-common and mcs-kube is a plain value, or nothing of Kubernetes.
const VALUES: &[&str] = &[
    "Address",
    "ClusterTraffic",
    "Drain",
    "ObjectKey",
    "SERVICE_NAME_LABEL",
    "Tier",
    "Tiers",
    "Traffic",
    "Unreachable",
    "VIP_RANGES_PROPERTY",
    "dns_name",
    "duration",
    "hanging",
    "one_line_of",
    "program",
    "reach",
    "text",
    "wish",
];

/// Maps in memory and faults on purpose, with the file that declares their module. The release build has none of them.
const DOUBLES: &[(&str, &str)] = &[("engine.rs", "mod testing;"), ("reconcile.rs", "mod testing;")];

/// Fails if a file uses what its part may not, or if an exception is no longer used.
pub(super) fn check(root: &Path) -> Result<()> {
    let mut found = Vec::new();
    for (source, rules) in SOURCES {
        check_source(root, source, rules, &mut found)?;
    }
    ensure!(found.is_empty(), "boundaries:\n  {}", found.join("\n  "));
    Ok(())
}

fn check_source(root: &Path, source: &str, rules: &[Rule], found: &mut Vec<String>) -> Result<()> {
    let directory = root.join(source);
    let mut files = Vec::new();
    collect(&directory, &mut files)?;
    let mut used = Vec::new();
    for file in &files {
        let path = file.strip_prefix(&directory)?.to_string_lossy().into_owned();
        let text =
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        for violation in violations(rules, &path, &text, &mut used) {
            found.push(format!("{source}/{path}: {violation}"));
        }
    }
    for rule in rules {
        let unused = rule.rooms.iter().filter(|(room, _)| !used.contains(&(rule.what, *room)));
        found.extend(unused.map(|(room, _)| {
            format!("{room} does not use it, take it from lint/boundaries.rs: {}", rule.what)
        }));
    }
    Ok(())
}

/// The Rust files below a directory, without tests.
pub(super) fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let mut entries: Vec<_> = fs::read_dir(directory)
        .with_context(|| format!("cannot read {}", directory.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    entries.sort();
    for path in entries {
        if path.file_stem().is_some_and(|name| name == "tests") {
            continue;
        }
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The violations of the rules in a file. Notes the exceptions that it uses.
fn violations(
    rules: &[Rule],
    path: &str,
    text: &str,
    used: &mut Vec<(&'static str, &'static str)>,
) -> Vec<&'static str> {
    let mut violations = Vec::new();
    let code = code(text);
    for rule in rules.iter().filter(|rule| rule.is_about(path)) {
        let applies = words(&code).any(|(word, rest)| (rule.is_use)(word, rest));
        let room = rule.rooms.iter().find(|(room, _)| is_below(path, room));
        match room {
            _ if !applies => {}
            Some((room, _)) => used.push((rule.what, *room)),
            None => violations.push(rule.what),
        }
    }
    let doubles =
        DOUBLES.iter().filter(|(file, module)| *file == path && is_released(text, module));
    violations.extend(doubles.map(|_| "a test double is part of the release build"));
    violations
}

impl Rule {
    fn is_about(&self, path: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| is_below(path, part))
    }
}

/// Whether `path` is this file, or belongs to this module.
fn is_below(path: &str, part: &str) -> bool {
    path.strip_prefix(part)
        .is_some_and(|rest| rest.is_empty() || rest == ".rs" || rest.starts_with('/'))
}

/// Whether a module is declared without a condition on the line before.
fn is_released(text: &str, module: &str) -> bool {
    let mut before = "";
    for line in text.lines().map(str::trim) {
        if line.trim_start_matches("pub(crate) ").trim_start_matches("pub ") == module {
            return !before.starts_with("#[cfg(");
        }
        before = line;
    }
    false
}

/// The text without comments, literals of strings, and the tests at its end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let mut code = String::new();
    for line in text.lines() {
        let mut quoted = false;
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\\' if quoted => drop(chars.next()),
                '"' => quoted = !quoted,
                '/' if !quoted && chars.peek() == Some(&'/') => break,
                _ if quoted => {}
                _ => code.push(c),
            }
        }
        code.push('\n');
    }
    code
}

/// Every identifier, with what follows it.
fn words(code: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = code;
    std::iter::from_fn(move || {
        rest = &rest[rest.find(is_part)?..];
        let (word, after) = rest.split_at(rest.find(|c| !is_part(c)).unwrap_or(rest.len()));
        rest = after;
        Some((word, after))
    })
}

/// The names that a path has right after its first word: one, or those in braces.
fn names(rest: &str) -> impl Iterator<Item = &str> {
    let path = rest.strip_prefix("::").unwrap_or_default();
    let list = match path.strip_prefix('{') {
        Some(list) => list.split('}').next().unwrap_or_default(),
        None => path.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default(),
    };
    list.split(',')
        .map(|name| name.trim().split("::").next().unwrap_or_default())
        .filter(|name| !name.is_empty() && *name != "self")
}

/// Whether a path leads to a function that is called.
fn calls(rest: &str) -> bool {
    let Some(name) = rest.strip_prefix("::") else { return false };
    let length = name.find(|c: char| !c.is_lowercase() && c != '_' && !c.is_ascii_digit());
    length.is_some_and(|length| length > 0 && name[length..].starts_with('('))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, text: &str) -> usize {
        violations(RULES, path, text, &mut Vec::new()).len()
    }

    #[test]
    fn what_a_part_may_not_use_is_found() {
        let cases = [
            ("agent/engine.rs", "use aya::maps::Map;", 1),
            ("agent.rs", "fn f(map: aya_obj::Map) {}", 1),
            ("loader/pins.rs", "use aya::maps::Map;", 0),
            ("agents.rs", "use aya::maps::Map;", 0),
            ("model/key.rs", "use mcs_common::Address;", 0),
            ("model/key.rs", "use mcs_common::{Address, text};", 0),
            ("model/key.rs", "use mcs_common::{\n    Address,\n    FrontendKey,\n};", 1),
            ("reconcile/plan.rs", "use mcs_common::FrontendKey;", 0),
            ("cli/status.rs", "use k8s_openapi::api::core::v1::Node;", 1),
            ("desired.rs", "fn f(client: &kube::Client) {}", 1),
            ("source/objects.rs", "use kube::Client;", 0),
            ("model/object.rs", "pub use mcs_kube::ObjectKey;", 0),
            ("agent/config.rs", "use mcs_kube::ApiAccess;", 1),
            ("netlink.rs", "let id = unsafe { libc::getpid() };", 2),
            ("netlink.rs", "let family = libc::AF_INET;", 0),
            ("bpf/pin.rs", "let id = unsafe { libc::getpid() };", 0),
        ];
        for (path, text, expected) in cases {
            assert_eq!(of(path, text), expected, "{path}: {text}");
        }
    }

    #[test]
    fn the_rules_of_a_clusterset_are_pure() {
        let of = |path, text| violations(CONTROLLER_RULES, path, text, &mut Vec::new()).len();
        assert_eq!(of("clusterset/merge.rs", "use mcs_kube::ObjectKey;"), 0);
        assert_eq!(of("clusterset/merge.rs", "use mcs_kube::ApiAccess;"), 1);
        assert_eq!(of("plan.rs", "let now = Instant::now();"), 1);
        assert_eq!(of("objects/slice.rs", "use mcs_kube::ObjectKey;"), 0);
    }

    #[test]
    fn comments_strings_and_tests_are_no_use() {
        let texts = [
            "// aya::Map is not used here",
            "let what = \"unsafe, \\\" kube::Client\"; // libc::getpid()",
            "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    use aya::maps::Map;\n}",
        ];
        for text in texts {
            assert_eq!(of("agent/engine.rs", text), 0, "{text}");
        }
    }

    #[test]
    fn an_exception_that_nobody_uses_is_noticed() {
        let mut used = Vec::new();
        assert!(violations(RULES, "bpf/pin.rs", "unsafe {}", &mut used).is_empty());
        assert_eq!(used.len(), 1);
        assert!(violations(RULES, "bpf/pin.rs", "fn f() {}", &mut used).is_empty());
        assert_eq!(used.len(), 1);
    }

    #[test]
    fn a_double_needs_a_condition() {
        assert!(is_released("mod plan;\nmod memory;\n", "mod memory;"));
        assert!(is_released("pub(crate) mod memory;\n", "mod memory;"));
        let conditional = "#[cfg(any(test, feature = \"testing\"))]\nmod memory;\n";
        assert!(!is_released(conditional, "mod memory;"));
    }
}
