//! Tests of every Markdown file: its relative links lead to a file and heading that exist, and the source files and
//! tests that it names exist. A document for users names no tests.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::reasons::anchor;

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Markdown files that git knows, or would add.
fn documents() -> Vec<PathBuf> {
    let mut files = Command::new("git");
    files.current_dir(root()).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
    ]);
    let files = String::from_utf8(files.arg("*.md").output().unwrap().stdout).unwrap();
    files
        .split_terminator('\0')
        .map(PathBuf::from)
        .filter(|file| root().join(file).exists())
        .collect()
}

/// Lines that are not in a fenced block.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The targets of `[text](target)`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0))
}

/// Why `target`, found in `document`, leads nowhere.
fn broken(document: &Path, target: &str) -> Option<String> {
    if target.contains("://") {
        return None;
    }
    let (path, fragment) = target.split_once('#').unwrap_or((target, ""));
    let file = match path {
        "" => root().join(document),
        path => root().join(document).parent()?.join(path),
    };
    if !file.exists() {
        return Some(format!("{}: {target} does not exist", document.display()));
    }
    if fragment.is_empty() {
        return None;
    }
    let text = fs::read_to_string(&file).ok()?;
    let found = prose(&text)
        .filter_map(|line| line.strip_prefix('#'))
        .any(|heading| anchor(heading.trim_start_matches('#')) == fragment);
    (!found).then(|| format!("{}: {target} names no heading", document.display()))
}

/// Source files between backticks, as paths from the root.
fn source_files(line: &str) -> impl Iterator<Item = &str> {
    const ROOTS: [&str; 9] = [
        "deploy/",
        "mcs-agent/",
        "mcs-cli/",
        "mcs-common/",
        "mcs-controller/",
        "mcs-ebpf/",
        "mcs-kube/",
        "tests/",
        "xtask/",
    ];
    const EXTENSIONS: [&str; 6] = ["md", "rs", "sh", "tpl", "txt", "yaml"];
    line.split('`').skip(1).step_by(2).filter(|code| {
        let extension = code.rsplit_once('.').map_or("", |(_, extension)| extension);
        ROOTS.iter().any(|root| code.starts_with(root)) && EXTENSIONS.contains(&extension)
    })
}

/// Asserts that `check` finds no problem in any line of prose.
fn assert_none(check: impl Fn(&Path, &str) -> Vec<String>) {
    let documents = documents();
    assert!(documents.len() > 5, "git lists {documents:?}");
    let mut problems = Vec::new();
    for document in &documents {
        let text = fs::read_to_string(root().join(document)).unwrap();
        problems.extend(prose(&text).flat_map(|line| check(document, line)));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn relative_links_lead_somewhere() {
    assert_none(|document, line| {
        targets(line).filter_map(|target| broken(document, target)).collect()
    });
}

#[test]
fn named_source_files_exist() {
    assert_none(|document, line| {
        let missing = source_files(line).filter(|file| !root().join(file).exists());
        missing.map(|file| format!("{}: {file} does not exist", document.display())).collect()
    });
}

/// Whether a program has the unit test of this path, such as `desired::vip::a_test`.
fn is_unit_test(path: &str) -> bool {
    const CRATES: [&str; 5] =
        ["mcs-agent/src", "mcs-cli/src", "mcs-common/src", "mcs-controller/src", "mcs-kube/src"];
    let (module, test) = path.rsplit_once("::").unwrap_or(("", path));
    // A module `tests` is a file of its own or at the end of its parent's.
    let modules = [module, module.strip_suffix("::tests").unwrap_or(module)];
    CRATES.iter().any(|directory| {
        let files = modules.iter().flat_map(|module| {
            let path = module.replace("::", "/");
            [format!("{path}.rs"), format!("{path}/mod.rs")]
        });
        // A property has arguments.
        let name = format!("fn {test}(");
        files.into_iter().any(|file| {
            let content = fs::read_to_string(root().join(directory).join(file));
            content.is_ok_and(|content| content.contains(&name))
        })
    })
}

#[test]
fn named_unit_tests_exist() {
    assert_none(|document, line| {
        let code = line.split('`').skip(1).step_by(2);
        let paths = code.filter(|code| {
            code.contains("::") && code.chars().all(|c| c.is_ascii_lowercase() || "_:".contains(c))
        });
        let missing = paths.filter(|path| !is_unit_test(path));
        missing.map(|path| format!("{}: no unit test {path}", document.display())).collect()
    });
}

/// Whether a document is for users of the product.
fn is_for_users(document: &Path) -> bool {
    let names =
        ["README.md", "mcs-agent/README.md", "mcs-cli/README.md", "mcs-controller/README.md"];
    document.starts_with("deploy") || names.iter().any(|name| document == *name)
}

/// The cases in a text such as "health: `a case`, `another`; socket: `a third`", each with its suite.
fn cases(text: &str) -> Vec<(&str, &str)> {
    let mut suite = None;
    let mut all = Vec::new();
    for (number, part) in text.split('`').enumerate() {
        if number % 2 == 1 {
            all.extend(suite.map(|suite| (suite, part)));
        } else if let Some((before, after)) = part.rsplit_once(':') {
            let word = before.rsplit([' ', '[', '(']).next().unwrap_or_default();
            suite = Some(word).filter(|word| after.trim().is_empty() && is_suite(word));
        } else if part.contains(';') {
            suite = None;
        }
    }
    all
}

fn is_suite(name: &str) -> bool {
    !name.is_empty() && root().join("tests/src/bin").join(name).is_dir()
}

/// Whether a suite has a case, whose name can have a part that is left open by an ellipsis.
fn is_case(suite: &str, case: &str) -> bool {
    for (of, directory) in [("scenario", "tests/scenarios"), ("clustersets", "tests/clustersets")] {
        if suite == of {
            return root().join(directory).join(format!("{case}.txt")).exists();
        }
    }
    let mut directories = vec![root().join("tests/src/bin").join(suite)];
    let mut texts = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                texts.push(fs::read_to_string(path).unwrap());
            }
        }
    }
    let parts: Vec<&str> = case.split('…').collect();
    texts.iter().any(|text| parts.iter().all(|part| text.contains(part)))
}

#[test]
fn documents_for_users_name_no_tests() {
    assert_none(|document, line| {
        let code = line.split('`').skip(1).step_by(2);
        let units = code.filter(|code| code.contains("::") && is_unit_test(code));
        let of_suites = cases(line).into_iter().filter(|(suite, case)| is_case(suite, case));
        let named = units.chain(of_suites.map(|(_, case)| case));
        let named = named.filter(|_| is_for_users(document));
        named
            .map(|test| format!("{}: {test} belongs to tests/ledger.md", document.display()))
            .collect()
    });
}

#[test]
fn named_cases_exist() {
    assert_none(|document, line| {
        let missing = cases(line).into_iter().filter(|(suite, case)| !is_case(suite, case));
        let missing = missing.filter(|_| document.ends_with("ledger.md"));
        missing.map(|(suite, case)| format!("{suite} has no case {case}")).collect()
    });
}

/// Each way to be wrong has a case, or says why it has none.
#[test]
fn ways_to_be_wrong_are_answered() {
    let text = fs::read_to_string(root().join("tests/ledger.md")).unwrap();
    let (_, section) = text.split_once("## Ways to be wrong\n").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split('|').map(str::trim).collect()).collect();
    let is_answered = |answer: &str| {
        let units = answer.split('`').skip(1).step_by(2).filter(|code| is_unit_test(code));
        let has_case = !cases(answer).is_empty() || units.count() > 0;
        let code = |read: &str| root().join(read.split('`').nth(1).unwrap_or("nothing")).is_file();
        let is_read = answer.strip_prefix("read only: ").is_some_and(code);
        has_case || is_read || answer.strip_prefix("not shown: ").is_some_and(|why| !why.is_empty())
    };
    let open = rows.iter().skip(1).filter(|row| row.len() != 6 || !is_answered(row[3]));
    assert_eq!(open.collect::<Vec<_>>(), Vec::<&Vec<&str>>::new());
    for line in 1..=18 {
        let is_there = rows.iter().any(|row| row[1] == line.to_string());
        assert!(is_there, "line {line} has no row");
    }
}

#[test]
fn cases_follow_their_suite() {
    let text =
        "| `x` | [health: `one`, `two`; `a::unit`; socket: `three`] | scenario: bound; `four`";
    assert_eq!(cases(text), [("health", "one"), ("health", "two"), ("socket", "three")]);
}

#[test]
fn anchors_are_those_of_github() {
    assert_eq!(anchor(" Flags of `run`"), "flags-of-run");
    assert_eq!(anchor("What was tried where"), "what-was-tried-where");
    assert_eq!(anchor("End to end, on your clusters"), "end-to-end-on-your-clusters");
}
