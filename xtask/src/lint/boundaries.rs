//! Checks which parts of the agent use aya, the map ABI, Kubernetes types and unsafe code, and that the controller's rules
//! are pure: the compiler allows these imports everywhere, the architecture does not.
//!
//! The check reads identifiers, not types. It skips comments, and test code at the end of a file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use super::features::product::code;

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

/// What of the agent does not know how maps and programs are reached.
const ABOVE_THE_KERNEL: &[&str] = &[
    "core/model",
    "core/store",
    "core/rules",
    "core/engine",
    "core/control",
    "core/cli",
    "features/explain",
];

const RULES: &[Rule] = &[
    Rule {
        what: "aya: only bpf/, loader/ and dataplane/ know how programs and maps are reached",
        is_use: |word, rest| {
            matches!(word, "aya" | "aya_obj" | "aya_log") && rest.starts_with("::")
        },
        only: ABOVE_THE_KERNEL,
        rooms: &[],
    },
    Rule {
        what: "a type of the map ABI: only reconcile/ and below know how maps are laid out",
        is_use: |word, rest| {
            word == "mcs_common" && names(rest).any(|name| !VALUES.contains(&name))
        },
        only: ABOVE_THE_KERNEL,
        rooms: &[],
    },
    Rule {
        what: "a Kubernetes type: source/ turns objects into the model's",
        is_use: |word, rest| {
            matches!(word, "k8s_openapi" | "kube") && rest.starts_with("::")
                || word == "mcs_kube" && names(rest).any(|name| !VALUES.contains(&name))
        },
        only: &[],
        rooms: &[
            ("core/source", "it reads objects"),
            ("features/adopt", "it reads objects"),
            (
                "features/cleanup_nodes",
                "it changes the agent's DaemonSet, and reads nothing that the agent serves",
            ),
        ],
    },
    Rule {
        what: "unsafe code: raw system calls are in bpf/",
        is_use: |word, _| word == "unsafe",
        only: &[],
        rooms: &[
            ("core/kernel/bpf", "bpf(2), getsockopt(2) and mapped memory"),
            ("core/control/process.rs", "mallopt(3) and malloc_trim(3)"),
            (
                "core/kernel/loader/program_log.rs",
                "tokio has no safe call that waits for a descriptor",
            ),
        ],
    },
    Rule {
        what: "a call of libc: raw system calls are in bpf/",
        is_use: |word, rest| word == "libc" && calls(rest),
        only: &[],
        rooms: &[
            ("core/kernel/bpf", "bpf(2) and others"),
            ("core/control/process.rs", "mallopt(3) and malloc_trim(3)"),
        ],
    },
];

const CONTROLLER_RULES: &[Rule] = &[
    Rule {
        what: "a Kubernetes type, I/O or a clock: the rules of a clusterset and its plans are pure",
        is_use: |word, rest| {
            matches!(word, "k8s_openapi" | "kube" | "tokio" | "jiff" | "clock" | "SystemTime")
                && rest.starts_with("::")
                || word == "mcs_kube" && names(rest).any(|name| !VALUES.contains(&name))
        },
        only: &["core/clusterset", "core/plan"],
        rooms: &[],
    },
    Rule {
        what: "a clock of its own: clock.rs has the one that a played clusterset lets pass",
        is_use: |word, rest| {
            matches!(word, "Instant" | "Timestamp" | "SystemTime") && rest.starts_with("::now")
        },
        only: &[],
        rooms: &[("core/clock.rs", "it has the clock")],
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
    "EndpointConditions",
    "NamespaceRules",
    "ObjectKey",
    "SERVICE_NAME_LABEL",
    "ServiceType",
    "Tier",
    "Tiers",
    "Traffic",
    "Unreachable",
    "VIP_RANGES_PROPERTY",
    "names",
    "duration",
    "hanging",
    "one_line_of",
    "program",
    "reach",
    "reasons",
    "report",
    "shorten",
    "text",
    "wish",
];

/// Maps in memory and faults on purpose, with the file that declares their module. The release build has none of them.
const DOUBLES: &[(&str, &str)] =
    &[("core/engine.rs", "mod testing;"), ("core/tables.rs", "mod testing;")];

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
    let before_tests = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let code = code(before_tests);
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
        Some(list) => list,
        None => path.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default(),
    };
    let mut open = 1;
    let end = list.find(|c| {
        open += i32::from(c == '{') - i32::from(c == '}');
        open == 0
    });
    let mut inner = 0;
    let parts = list[..end.unwrap_or(list.len())].split(move |c| {
        inner += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && inner == 0
    });
    parts
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
            ("core/control/engine.rs", "use aya::maps::Map;", 1),
            ("core/control.rs", "fn f(map: aya_obj::Map) {}", 1),
            ("core/kernel/loader/pins.rs", "use aya::maps::Map;", 0),
            ("core/controls.rs", "use aya::maps::Map;", 0),
            ("core/model/key.rs", "use mcs_common::Address;", 0),
            ("core/model/key.rs", "use mcs_common::{Address, text};", 0),
            ("core/model/key.rs", "use mcs_common::{\n    Address,\n    FrontendKey,\n};", 1),
            ("core/tables/plan.rs", "use mcs_common::FrontendKey;", 0),
            ("core/cli/status.rs", "use k8s_openapi::api::core::v1::Node;", 1),
            ("core/rules.rs", "fn f(client: &kube::Client) {}", 1),
            ("core/source/objects.rs", "use kube::Client;", 0),
            ("core/model/object.rs", "pub use mcs_kube::ObjectKey;", 0),
            ("core/control/config.rs", "use mcs_kube::ApiAccess;", 1),
            ("core/control/config.rs", "use mcs_kube::{reach::{self, Outcome}, told::x};", 1),
            ("core/control/config.rs", "use mcs_kube::{reach::{self, Outcome}, report::Start};", 0),
            ("core/kernel/netlink.rs", "let id = unsafe { libc::getpid() };", 2),
            ("core/kernel/netlink.rs", "let family = libc::AF_INET;", 0),
            ("core/kernel/bpf/pin.rs", "let id = unsafe { libc::getpid() };", 0),
        ];
        for (path, text, expected) in cases {
            assert_eq!(of(path, text), expected, "{path}: {text}");
        }
    }

    #[test]
    fn the_rules_of_a_clusterset_are_pure() {
        let of = |path, text| violations(CONTROLLER_RULES, path, text, &mut Vec::new()).len();
        assert_eq!(of("core/clusterset/merge.rs", "use mcs_kube::ObjectKey;"), 0);
        assert_eq!(of("core/clusterset/merge.rs", "use mcs_kube::ApiAccess;"), 1);
        assert_eq!(of("core/plan.rs", "let now = Instant::now();"), 1);
        assert_eq!(of("core/plan.rs", "let now = clock::now();"), 1);
        assert_eq!(of("core/objects/slice.rs", "use mcs_kube::ObjectKey;"), 0);
    }

    #[test]
    fn comments_strings_and_tests_are_no_use() {
        let texts = [
            "// aya::Map is not used here",
            "let what = \"unsafe, \\\" kube::Client\"; // libc::getpid()",
            "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    use aya::maps::Map;\n}",
        ];
        for text in texts {
            assert_eq!(of("core/control/engine.rs", text), 0, "{text}");
        }
    }

    #[test]
    fn an_exception_that_nobody_uses_is_noticed() {
        let mut used = Vec::new();
        assert!(violations(RULES, "core/kernel/bpf/pin.rs", "unsafe {}", &mut used).is_empty());
        assert_eq!(used.len(), 1);
        assert!(violations(RULES, "core/kernel/bpf/pin.rs", "fn f() {}", &mut used).is_empty());
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
