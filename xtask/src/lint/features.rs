//! Checks the border between a core and its features: the core names no feature, features name no other, few lines outside of
//! a feature know it, and the crate compiles without it.
//!
//! A feature is a file or folder of `src/features`, and its line in `src/features.rs`; its part in mcs-ebpf has the same name.
//! The check reads paths as they are written: a name that features.rs exports again counts as the list's.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::Path,
};

use anyhow::{Context as _, Result, ensure};

use super::boundaries;

pub(super) mod delete;
pub(super) mod product;

/// Files that may still name a feature: the feature, and the file. Entries only go away.
const LEAKS: &[(&str, &str)] = &[];

/// Features that may name another: the feature with its crate, the other, and why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[];

/// Features that more than [`MOST`] lines outside of them name: the feature with its crate, and how many. Numbers only fall.
const WIDELY_NAMED: &[(&str, usize)] = &[];

/// Features without which their crate does not compile yet, each with its crate. Entries only go away.
const NOT_REMOVABLE: &[&str] = &[];

/// How many lines outside of a feature may name it.
const MOST: usize = 10;

/// The crates that have a core and features.
const CRATES: [&str; 2] = ["mcs-agent", "mcs-controller"];

/// Has the programs' parts of the agent's features. What is no part of a feature is its core.
const PROGRAMS: &str = "mcs-ebpf";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Feature {
    of: &'static str,
    name: String,
}

/// The product code of all crates.
struct Tree {
    files: Vec<File>,
}

struct File {
    /// Below the root of the workspace.
    path: String,
    /// Each with its number, without comments and what strings say.
    lines: Vec<(usize, String)>,
}

/// Where a file of a crate with features is.
enum Place<'a> {
    /// The programs' core calls functions of their list. The other cores are given theirs.
    Core { calls_list: bool },
    /// In a feature, as many modules below `features`.
    Feature(&'a str, usize),
}

/// A line that names a feature.
struct Leak<'a> {
    path: &'a str,
    line: usize,
    /// The feature that the file is part of; none is the core.
    own: Option<String>,
    name: String,
}

/// What the tables allow.
struct Allowed {
    leaks: &'static [(&'static str, &'static str)],
    exceptions: &'static [(&'static str, &'static str, &'static str)],
    widely_named: &'static [(&'static str, usize)],
}

/// Fails if a file names a feature that it may not, or if an entry of a table is no longer needed. Prints the size of each
/// feature, and returns them.
pub(super) fn check(root: &Path) -> Result<Vec<Feature>> {
    let tree = Tree::read(root)?;
    let allowed = Allowed { leaks: LEAKS, exceptions: EXCEPTIONS, widely_named: WIDELY_NAMED };
    let mut found = tree.leaks(&allowed);
    let features = tree.features();
    if !features.is_empty() {
        println!("{:16}{:24}{:>7}{:>9}", "crate", "feature", "lines", "outside");
    }
    found.extend(tree.sizes(&features, &allowed, |line| println!("{line}")));
    ensure!(found.is_empty(), "features:\n  {}", found.join("\n  "));
    Ok(features)
}

impl Feature {
    /// As the tables and the command line name it.
    fn id(&self) -> String {
        format!("{}/{}", self.of, self.name)
    }

    /// Whether a file is in its folder, or its part of the programs.
    fn has(&self, path: &str) -> bool {
        self.crates().any(|of| {
            path.strip_prefix(of)
                .and_then(|path| path.strip_prefix("/src/"))
                .is_some_and(|path| feature_of(path) == Some(&self.name))
        })
    }

    /// The files that list it.
    fn lists(&self) -> impl Iterator<Item = String> {
        self.crates().map(|of| format!("{of}/src/features.rs"))
    }

    fn crates(&self) -> impl Iterator<Item = &'static str> {
        [self.of].into_iter().chain((self.of == CRATES[0]).then_some(PROGRAMS))
    }
}

/// The feature of a file, whose path is below the source of a crate.
fn feature_of(path: &str) -> Option<&str> {
    let path = path.strip_prefix("features/")?;
    Some(path.split_once('/').map_or_else(|| path.trim_end_matches(".rs"), |(name, _)| name))
}

impl Tree {
    fn read(root: &Path) -> Result<Self> {
        let mut texts = BTreeMap::new();
        for entry in fs::read_dir(root)? {
            let entry = entry?;
            let source = entry.path().join("src");
            if !entry.file_name().to_string_lossy().starts_with("mcs-") || !source.is_dir() {
                continue;
            }
            let mut files = Vec::new();
            boundaries::collect(&source, &mut files)?;
            for file in files {
                let text = fs::read_to_string(&file)
                    .with_context(|| format!("cannot read {}", file.display()))?;
                texts.insert(file.strip_prefix(root)?.to_string_lossy().into_owned(), text);
            }
        }
        Ok(Self::of(&texts))
    }

    /// The product code of files.
    fn of(texts: &BTreeMap<String, String>) -> Self {
        let declared: BTreeSet<_> =
            texts.iter().flat_map(|(path, text)| product::test_modules(path, text)).collect();
        let is_product = |path: &&String| !product::is_test(path, &declared);
        let files = texts.keys().filter(is_product);
        let files =
            files.map(|path| File { path: path.clone(), lines: product::lines(&texts[path]) });
        Self { files: files.collect() }
    }

    fn features(&self) -> Vec<Feature> {
        let of = |file: &File| {
            let (of, path) = file.path.split_once("/src/")?;
            let of = CRATES.into_iter().find(|name| *name == of)?;
            Some(Feature { of, name: feature_of(path)?.to_owned() })
        };
        self.files.iter().filter_map(of).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Where a core or a feature names a feature, unless that is allowed; and what is allowed in vain.
    fn leaks(&self, allowed: &Allowed) -> Vec<String> {
        let mut all = Vec::new();
        for file in &self.files {
            let Some((of, place)) = file.place() else { continue };
            let own = match place {
                Place::Core { .. } => None,
                Place::Feature(own, _) => Some(format!("{of}/{own}")),
            };
            let named = file.named(&place, &self.names(of)).into_iter();
            all.extend(named.map(|(line, name)| Leak {
                path: &file.path,
                line,
                own: own.clone(),
                name,
            }));
        }
        let is_allowed = |leak: &&Leak<'_>| {
            allowed.leaks.iter().any(|entry| leak.is_listed(entry))
                || allowed.exceptions.iter().any(|entry| leak.is_excepted(entry))
        };
        let mut found: Vec<_> =
            all.iter().filter(|leak| !is_allowed(leak)).map(Leak::to_string).collect();
        let vain =
            allowed.leaks.iter().filter(|entry| !all.iter().any(|leak| leak.is_listed(entry)));
        found.extend(
            vain.map(|(name, path)| format!("{path} does not name {name}, {}", take_from("LEAKS"))),
        );
        let vain = allowed
            .exceptions
            .iter()
            .filter(|entry| !all.iter().any(|leak| leak.is_excepted(entry)));
        found.extend(vain.map(|(own, name, _)| {
            format!("{own} does not name {name}, {}", take_from("EXCEPTIONS"))
        }));
        found
    }

    /// The names of a crate's features.
    fn names(&self, of: &str) -> BTreeSet<&str> {
        let paths = self.files.iter().filter_map(|file| file.path.split_once("/src/"));
        paths.filter(|(name, _)| *name == of).filter_map(|(_, path)| feature_of(path)).collect()
    }

    /// Says how large each feature is. Returns which are named by too many lines, and numbers of the table that are too high.
    fn sizes(
        &self,
        features: &[Feature],
        allowed: &Allowed,
        mut say: impl FnMut(String),
    ) -> Vec<String> {
        let mut found = Vec::new();
        for feature in features {
            let own = self.files.iter().filter(|file| feature.has(&file.path));
            let own: usize = own.map(|file| file.lines.len()).sum();
            let (outside, files) = self.outside(feature);
            say(format!("{:16}{:24}{own:>7}{outside:>9}", feature.of, feature.name));
            let id = feature.id();
            let limit = allowed.widely_named.iter().find(|(name, _)| *name == id);
            match limit {
                None if outside > MOST => found.push(format!(
                    "{outside} lines outside of {id} name it, of at most {MOST}; move them there: {files}"
                )),
                Some((_, limit)) if outside > *limit => found.push(format!(
                    "{outside} lines outside of {id} name it, {limit} did; move the new ones there: {files}"
                )),
                Some(_) if outside <= MOST => found.push(format!(
                    "{outside} lines outside of {id} name it, {}", take_from("WIDELY_NAMED")
                )),
                Some((_, limit)) if outside < *limit => found.push(format!(
                    "{outside} lines outside of {id} name it, lower the {limit} in WIDELY_NAMED in lint/features.rs"
                )),
                _ => {}
            }
        }
        let is_gone = |id: &str| features.iter().all(|feature| feature.id() != id);
        let gone = allowed.widely_named.iter().filter(|(id, _)| is_gone(id));
        found.extend(gone.map(|(id, _)| format!("{id} is gone, {}", take_from("WIDELY_NAMED"))));
        let parts = self.names(PROGRAMS);
        let alone = parts.iter().filter(|name| is_gone(&format!("{}/{name}", CRATES[0])));
        found.extend(alone.map(|name| {
            format!("{PROGRAMS}/src/features/{name}: name it like the agent's feature that it is part of")
        }));
        found
    }

    /// How many lines of its crates name a feature outside of its folders, and how many in which file. Other crates may call what
    /// they have alike.
    fn outside(&self, feature: &Feature) -> (usize, String) {
        let name = &*feature.name;
        let is_near = |file: &&File| {
            feature.crates().any(|of| file.path.starts_with(&format!("{of}/")))
                && !feature.has(&file.path)
        };
        let mut counts = Vec::new();
        for file in self.files.iter().filter(|file| is_near(file)) {
            let names = |line: &str| product::tokens(line).any(|word| product::names(word, name));
            let count = file.lines.iter().filter(|(_, line)| names(line)).count();
            counts.extend((count > 0).then_some((count, &file.path)));
        }
        counts.sort_by_key(|(count, _)| Reverse(*count));
        let files: Vec<_> =
            counts.iter().map(|(count, path)| format!("{path} ({count})")).collect();
        (counts.iter().map(|(count, _)| count).sum(), files.join(", "))
    }
}

impl Leak<'_> {
    fn is_listed(&self, (name, path): &(&str, &str)) -> bool {
        self.name == *name && self.path == *path
    }

    fn is_excepted(&self, (own, name, _): &(&str, &str, &str)) -> bool {
        self.own.as_deref() == Some(own) && self.name == *name
    }
}

impl fmt::Display for Leak<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, own, name } = self;
        let advice = match own {
            None => "the core is given the list; move this to the feature",
            Some(_) => "move what both features use to the core",
        };
        write!(f, "{path}:{line} names the feature {name}: {advice}")
    }
}

fn take_from(table: &str) -> String {
    format!("take it from {table} in lint/features.rs")
}

impl File {
    /// Its crate and its place, if the rules are about it.
    fn place(&self) -> Option<(&str, Place<'_>)> {
        let (of, path) = self.path.split_once("/src/")?;
        if let Some(name) = feature_of(path) {
            let depth = path.trim_end_matches("/mod.rs").split('/').count() - 1;
            return Some((of, Place::Feature(name, depth)));
        }
        let has_core = CRATES.contains(&of) && (path == "core.rs" || path.starts_with("core/"));
        let is_core = has_core || of == PROGRAMS && path != "features.rs";
        is_core.then_some((of, Place::Core { calls_list: of == PROGRAMS }))
    }

    /// The lines with features that it names by their paths.
    fn named(&self, place: &Place<'_>, features: &BTreeSet<&str>) -> BTreeSet<(usize, String)> {
        let is_named = |path: &[&str]| {
            let [before @ .., last] = path else { return false };
            let before = before.strip_prefix(&["self"]).unwrap_or(before);
            let is_sibling = match place {
                Place::Core { .. } => false,
                Place::Feature(own, _) if own == last => return false,
                // One more in a module within the file.
                Place::Feature(_, depth) => {
                    before.len() >= *depth && before.iter().all(|part| *part == "super")
                }
            };
            let is_feature = features.contains(last);
            // A glob names all of them.
            let is_glob = !features.is_empty() && *last == "*";
            let is_listed = matches!(place, Place::Core { calls_list: false });
            is_feature && is_sibling
                || (is_feature || is_glob || is_listed) && before.last() == Some(&"features")
        };
        let paths = product::paths(&self.lines).into_iter();
        let named = paths.filter(|(_, path)| is_named(path));
        named.filter_map(|(line, path)| Some((line, path.last()?.to_string()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Allowed = Allowed { leaks: &[], exceptions: &[], widely_named: &[] };

    fn tree(files: &[(&str, &str)]) -> Tree {
        let of = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        let features = [
            ("mcs-agent/src/features/trace/mod.rs", "fn f() {}\n\n// Why.\nfn g() {}\n"),
            ("mcs-agent/src/features/peer_reach/mod.rs", "fn f() {}\n"),
            ("mcs-ebpf/src/features/trace.rs", "fn f() {}\n"),
        ];
        Tree::of(&files.iter().chain(&features).map(of).collect())
    }

    #[test]
    fn a_leak_is_named_by_its_line() {
        let cases = [
            ("core/report.rs", "use std::fmt;\nuse crate::features::trace::Ring;", Some(2)),
            (
                "core/report.rs",
                "use crate::{\n    core::a,\n    features::{trace::{A, B}},\n};",
                Some(3),
            ),
            ("core/report.rs", "fn f() {\n    g!(features::peer_reach::f())\n}", Some(2)),
            ("core.rs", "use super::features::{peer_reach};", Some(1)),
            ("core.rs", "use crate::features::*;", Some(1)),
            ("core/report.rs", "use crate::features::LIST; // features::trace", Some(1)),
            ("core/cli.rs", "self.features.each(); // features::trace", None),
            ("core/report.rs", "const A: &str = \"features::trace\";", None),
            (
                "core/report.rs",
                "#[cfg(test)]\nmod tests {\n    use crate::features::trace;\n}",
                None,
            ),
            ("core/report/tests.rs", "use crate::features::trace;", None),
            ("main.rs", "use crate::features::trace;", None),
            ("features.rs", "use self::features::trace;", None),
            ("features/trace/ring.rs", "use super::super::peer_reach::A;", Some(1)),
            ("features/trace/ring.rs", "use super::{super::peer_reach::A, B};", Some(1)),
            ("features/trace/ring.rs", "use super::peer_reach::A;", None),
            ("features/trace/mod.rs", "mod ring {\n    use super::*;\n}", None),
            ("features/trace/ring.rs", "use crate::features::trace::A;", None),
            ("features/trace/ring/mod.rs", "use super::super::peer_reach;", Some(1)),
            ("features/page.rs", "use super::trace;", Some(1)),
            ("features/page.rs", "use crate::{core::feature::Core, features::trace};", Some(1)),
        ];
        for (path, text, line) in cases {
            let found = tree(&[(&format!("mcs-agent/src/{path}"), text)]).leaks(&NOTHING);
            assert_eq!(found.len(), usize::from(line.is_some()), "{path}: {text}: {found:?}");
            let place = format!("mcs-agent/src/{path}:{} names", line.unwrap_or_default());
            assert!(found.iter().all(|leak| leak.starts_with(&place)), "{found:?}");
        }
        let program = ("mcs-ebpf/src/main.rs", "features::trace::began(); features::began();");
        assert_eq!(tree(&[program]).leaks(&NOTHING).len(), 1);
    }

    #[test]
    fn what_is_allowed_has_to_be_needed() {
        const ALLOWED: Allowed = Allowed {
            leaks: &[("trace", "mcs-agent/src/core/report.rs")],
            exceptions: &[("mcs-agent/page", "trace", "it shows it")],
            widely_named: &[],
        };
        let text = "use crate::features::trace;";
        let files =
            [("mcs-agent/src/core/report.rs", text), ("mcs-agent/src/features/page/mod.rs", text)];
        assert_eq!(tree(&files).leaks(&ALLOWED), [""; 0]);
        let found = tree(&[]).leaks(&ALLOWED);
        assert_eq!(
            found,
            [
                "mcs-agent/src/core/report.rs does not name trace, take it from LEAKS in lint/features.rs",
                "mcs-agent/page does not name trace, take it from EXCEPTIONS in lint/features.rs",
            ]
        );
    }

    #[test]
    fn the_number_of_lines_that_name_a_feature_falls() {
        let sizes = |lines: usize, widely_named| {
            let text = "struct TraceRing;\nfn tracing() {} // trace\n".to_owned()
                + &"trace();\n".repeat(lines);
            let tree = tree(&[("mcs-ebpf/src/lib.rs", &text)]);
            let mut said = Vec::new();
            let allowed = Allowed { widely_named, ..NOTHING };
            let found = tree.sizes(&tree.features(), &allowed, |line| said.push(line));
            assert_eq!(said.len(), 2);
            // Two lines, and one of the programs.
            assert!(said[1].split_whitespace().eq([
                "mcs-agent",
                "trace",
                "3",
                &(lines + 1).to_string()
            ]));
            assert!(found.len() <= 1, "{found:?}");
            found.concat()
        };
        assert_eq!(sizes(9, &[]), "");
        assert!(
            sizes(10, &[]).ends_with("of at most 10; move them there: mcs-ebpf/src/lib.rs (11)")
        );
        assert_eq!(sizes(10, &[("mcs-agent/trace", 11)]), "");
        assert!(sizes(11, &[("mcs-agent/trace", 11)]).contains("11 did"));
        assert!(sizes(10, &[("mcs-agent/trace", 12)]).contains("lower the 12"));
        assert!(sizes(9, &[("mcs-agent/trace", 11)]).contains("take it from WIDELY_NAMED"));
        assert!(sizes(9, &[("mcs-agent/gone", 11)]).contains("is gone"));
    }

    #[test]
    fn a_part_of_the_programs_belongs_to_a_feature() {
        let tree = tree(&[("mcs-ebpf/src/features/alone/mod.rs", "")]);
        let found = tree.sizes(&tree.features(), &NOTHING, drop);
        assert!(found.len() == 1 && found[0].starts_with("mcs-ebpf/src/features/alone:"));
    }
}
