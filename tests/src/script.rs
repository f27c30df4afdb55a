//! Text files that tell something step by step, and what has come out at each `expect`.
//!
//! A step begins with a line `-- WORDS --`. Lines that begin with `#` introduce the next one.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};

/// The outcome at each `expect`, in order.
pub(crate) type Outcomes = Vec<String>;

/// What happens next.
pub(crate) trait Step: Sized {
    /// Reads the words between the dashes, and the text below.
    fn parse(marker: &str, body: &str) -> anyhow::Result<Self>;

    /// Whether the text below is what comes out.
    fn has_outcome(&self) -> bool;

    /// Whether a file can end with it.
    fn proves(&self) -> bool {
        self.has_outcome()
    }
}

/// One file.
#[derive(Debug)]
pub(crate) struct Script<S> {
    path: PathBuf,
    preface: String,
    sections: Vec<Section<S>>,
}

/// A marker line and what follows it.
#[derive(Debug)]
struct Section<S> {
    /// Of the marker, from 1.
    line: usize,
    marker: String,
    body: String,
    /// Blank lines and comments after the body, which introduce the next section.
    tail: String,
    step: S,
}

/// The files of a directory of the crate.
pub(crate) fn files(directory: &str) -> anyhow::Result<Vec<PathBuf>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let entries =
        fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

impl<S: Step> Script<S> {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read the scenario {}", path.display()))?;
        Self::parse(path, &text)
    }

    pub(crate) fn parse(path: &Path, text: &str) -> anyhow::Result<Self> {
        let at = |line| place(path, line);
        let mut lines = text.split_inclusive('\n').zip(1..).peekable();
        let mut preface = String::new();
        while let Some((line, number)) = lines.next_if(|(line, _)| marker(line).is_none()) {
            let context = || format!("{}: text before the first `-- ... --`", at(number));
            ensure!(is_tail(line), context());
            preface += line;
        }
        let mut sections = Vec::new();
        while let Some((line, number)) = lines.next() {
            let mut body = String::new();
            while let Some((line, _)) = lines.next_if(|(line, _)| marker(line).is_none()) {
                body += line;
            }
            let tail = body.split_off(body_length(&body));
            let marker = marker(line).unwrap_or_default().to_owned();
            let step = S::parse(&marker, &body).with_context(|| at(number))?;
            sections.push(Section { line: number, marker, body, tail, step });
        }
        let proves = |section: &Section<S>| section.step.proves();
        ensure!(sections.last().is_some_and(proves), "{}: does not end with expect", at(1));
        Ok(Self { path: path.to_owned(), preface, sections })
    }

    /// What happens, with the line that says so.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (usize, &S)> {
        self.sections.iter().map(|section| (section.line, &section.step))
    }

    /// A line of the file, for people.
    pub(crate) fn at(&self, line: usize) -> String {
        place(&self.path, line)
    }

    /// Compares what came out at each `expect` with what the file says.
    pub(crate) fn compare(&self, outcomes: &Outcomes) -> anyhow::Result<()> {
        let expectations = self.sections.iter().filter(|section| section.step.has_outcome());
        for (section, outcome) in expectations.zip(outcomes) {
            if section.body != *outcome {
                let diff = similar::TextDiff::from_lines(section.body.as_str(), outcome);
                let diff = diff.unified_diff().header("expected", "found").to_string();
                bail!("{}:\n{diff}", self.at(section.line));
            }
        }
        Ok(())
    }

    /// Writes what came out at each `expect` into the file.
    pub(crate) fn bless(&self, outcomes: &Outcomes) -> anyhow::Result<()> {
        let text = self.with_outcomes(outcomes);
        fs::write(&self.path, text)
            .with_context(|| format!("cannot write the scenario {}", self.path.display()))
    }

    pub(crate) fn with_outcomes(&self, outcomes: &Outcomes) -> String {
        let mut outcomes = outcomes.iter();
        let mut text = self.preface.clone();
        for Section { marker, body, tail, step, .. } in &self.sections {
            let outcome = if step.has_outcome() { outcomes.next() } else { None };
            text.extend(["-- ", marker, " --\n", outcome.unwrap_or(body), tail]);
        }
        text
    }
}

fn place(path: &Path, line: usize) -> String {
    format!("{}, line {line}", path.display())
}

/// The words between the dashes of `-- write web.yaml --`.
fn marker(line: &str) -> Option<&str> {
    line.trim_end().strip_prefix("-- ")?.strip_suffix(" --")
}

fn is_tail(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}

/// Bytes up to the end of the last line that is more than a comment.
fn body_length(text: &str) -> usize {
    let tail = text.split_inclusive('\n').rev().take_while(|line| is_tail(line));
    text.len() - tail.map(str::len).sum::<usize>()
}
