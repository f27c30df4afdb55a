//! A test that the relative links of every Markdown file lead to a file and heading that exist.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

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

/// The anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
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

#[test]
fn relative_links_lead_somewhere() {
    let documents = documents();
    assert!(documents.len() > 5, "git lists {documents:?}");
    let problems: Vec<_> = documents
        .iter()
        .flat_map(|document| {
            let text = fs::read_to_string(root().join(document)).unwrap();
            let lines: Vec<_> = prose(&text).map(str::to_owned).collect();
            lines.into_iter().flat_map(move |line| {
                targets(&line).filter_map(|target| broken(document, target)).collect::<Vec<_>>()
            })
        })
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn anchors_are_those_of_github() {
    assert_eq!(anchor(" Flags of `run`"), "flags-of-run");
    assert_eq!(anchor("What was tried where"), "what-was-tried-where");
    assert_eq!(anchor("End to end, on your clusters"), "end-to-end-on-your-clusters");
}
