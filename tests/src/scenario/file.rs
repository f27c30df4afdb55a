//! Parses scenario files, and writes the outcomes into them.

use std::{
    collections::BTreeSet,
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};

use super::{
    node::{self, Node},
    play::Outcomes,
};

/// One situation, as its file tells it.
#[derive(Debug)]
pub(super) struct Scenario {
    path: PathBuf,
    preface: String,
    sections: Vec<Section>,
}

/// A marker line and what follows it.
#[derive(Debug)]
struct Section {
    /// Of the marker, from 1.
    line: usize,
    marker: String,
    body: String,
    /// Blank lines and comments after the body, which introduce the next section.
    tail: String,
    step: Step,
}

/// What happens next.
#[derive(Debug)]
pub(super) enum Step {
    /// The agent's flags and the node's addresses are these.
    Node(Box<Node>),
    /// A manifest is written.
    Write { file: String, text: String },
    /// A manifest is deleted.
    Delete { file: String },
    /// The agent reads and writes once. What fails is left to the next step.
    TryOnce,
    /// The agent ends, and a new one takes over.
    Restart,
    /// The agent dies at one of the writes that what happened calls for, and a new one takes over.
    Crash,
    /// Flows of the packet path use these VIPs from now on, and no others.
    Flows { vips: BTreeSet<IpAddr> },
    /// Time passes.
    Wait(Duration),
    /// The agent has done all it can: this is what there is now.
    Expect,
    /// The agent has done all it can: all is as it was at the last [`Step::Expect`].
    ExpectNoChange,
}

impl Scenario {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read the scenario {}", path.display()))?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> anyhow::Result<Self> {
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
            let step = Step::parse(&marker, &body).with_context(|| at(number))?;
            sections.push(Section { line: number, marker, body, tail, step });
        }
        let proves = |section: &Section| section.step.expects();
        ensure!(sections.last().is_some_and(proves), "{}: does not end with expect", at(1));
        Ok(Self { path: path.to_owned(), preface, sections })
    }

    /// What happens, with the line that says so.
    pub(super) fn steps(&self) -> impl Iterator<Item = (usize, &Step)> {
        self.sections.iter().map(|section| (section.line, &section.step))
    }

    /// The node as the scenario begins.
    pub(super) fn node(&self) -> Node {
        match self.sections.first().map(|section| &section.step) {
            Some(Step::Node(node)) => Node::clone(node),
            _ => node::plain(),
        }
    }

    /// A line of the file, for people.
    pub(super) fn at(&self, line: usize) -> String {
        place(&self.path, line)
    }

    /// Compares what came out at each `expect` with what the file says.
    pub(super) fn compare(&self, outcomes: &Outcomes) -> anyhow::Result<()> {
        for (section, outcome) in self.expectations().zip(outcomes) {
            if section.body != *outcome {
                let diff = similar::TextDiff::from_lines(section.body.as_str(), outcome);
                let diff = diff.unified_diff().header("expected", "found").to_string();
                bail!("{}:\n{diff}", self.at(section.line));
            }
        }
        Ok(())
    }

    /// Writes what came out at each `expect` into the file.
    pub(super) fn bless(&self, outcomes: &Outcomes) -> anyhow::Result<()> {
        let text = self.with_outcomes(outcomes);
        fs::write(&self.path, text)
            .with_context(|| format!("cannot write the scenario {}", self.path.display()))
    }

    fn with_outcomes(&self, outcomes: &Outcomes) -> String {
        let mut outcomes = outcomes.iter();
        let mut text = self.preface.clone();
        for Section { marker, body, tail, step, .. } in &self.sections {
            let outcome = if matches!(step, Step::Expect) { outcomes.next() } else { None };
            text.extend(["-- ", marker, " --\n", outcome.unwrap_or(body), tail]);
        }
        text
    }

    fn expectations(&self) -> impl Iterator<Item = &Section> {
        self.sections.iter().filter(|section| matches!(section.step, Step::Expect))
    }
}

impl Step {
    fn parse(marker: &str, body: &str) -> anyhow::Result<Self> {
        let step = match marker.split_whitespace().collect::<Vec<_>>()[..] {
            ["node"] => return Ok(Self::Node(Box::new(node::parse(body)?))),
            ["write", file] => {
                return Ok(Self::Write { file: file_name(file)?, text: body.to_owned() });
            }
            ["expect"] => return Ok(Self::Expect),
            ["delete", file] => Self::Delete { file: file_name(file)? },
            ["flows", ref vips @ ..] => {
                let vips = vips.iter().map(|vip| vip.parse()).collect::<Result<_, _>>();
                Self::Flows { vips: vips.context("a VIP is no address")? }
            }
            ["wait", seconds] => {
                let seconds = seconds.parse().context("`wait` takes seconds")?;
                Self::Wait(Duration::from_secs(seconds))
            }
            ["try", "once"] => Self::TryOnce,
            ["restart"] => Self::Restart,
            ["crash"] => Self::Crash,
            ["expect", "no", "change"] => Self::ExpectNoChange,
            _ => bail!(
                "`{marker}` is none of node, write FILE, delete FILE, flows VIP..., wait SECONDS, try \
                 once, restart, crash, expect and expect no change"
            ),
        };
        ensure!(body.is_empty(), "`{marker}` takes no text");
        Ok(step)
    }

    fn expects(&self) -> bool {
        matches!(self, Self::Expect | Self::ExpectNoChange)
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

fn file_name(name: &str) -> anyhow::Result<String> {
    ensure!(!name.contains('/'), "`{name}` is no file of the directory");
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# About.

-- node --
zone: a
# Why.
-- write web.yaml --
kind: A
# Of A.
---
kind: B

# Then.

-- delete web.yaml --

-- expect --
vip 10.0.0.1

-- expect --
-- try once --
-- crash --
-- restart --
-- expect no change --
";

    fn parse(text: &str) -> anyhow::Result<Scenario> {
        Scenario::parse(Path::new("a.txt"), text)
    }

    #[test]
    fn a_file_is_a_sequence_of_steps() {
        let scenario = parse(TEXT).unwrap();
        assert_eq!(scenario.node().context.facts.zone.as_deref(), Some("a"));
        let steps: Vec<_> = scenario.steps().collect();
        let [
            (3, Step::Node(_)),
            (6, Step::Write { file, text }),
            (14, Step::Delete { .. }),
            rest @ ..,
        ] = &steps[..]
        else {
            panic!("{steps:?}")
        };
        assert_eq!(
            (file.as_str(), text.as_str()),
            ("web.yaml", "kind: A\n# Of A.\n---\nkind: B\n")
        );
        let [
            (_, Step::Expect),
            (_, Step::Expect),
            (_, Step::TryOnce),
            (_, Step::Crash),
            (_, Step::Restart),
            (_, Step::ExpectNoChange),
        ] = rest
        else {
            panic!("{rest:?}")
        };
    }

    #[test]
    fn what_comes_out_is_compared_and_can_be_written() {
        let scenario = parse(TEXT).unwrap();
        let as_told = ["vip 10.0.0.1\n", ""].map(str::to_owned).to_vec();
        scenario.compare(&as_told).unwrap();
        assert_eq!(scenario.with_outcomes(&as_told), TEXT);

        let other = ["vip 10.0.0.1\n", "nothing\n"].map(str::to_owned).to_vec();
        let error = scenario.compare(&other).unwrap_err().to_string();
        assert!(error.contains("a.txt, line 19") && error.contains("+nothing"), "{error}");
        let blessed = scenario.with_outcomes(&other);
        assert_eq!(blessed, TEXT.replace("-- try", "nothing\n-- try"));
    }

    #[test]
    fn what_is_no_scenario_is_refused() {
        let cases = [
            ("", "does not end with expect"),
            ("-- expect --\n-- restart --\n", "does not end with expect"),
            ("kind: A\n-- expect --\n", "line 1: text before the first"),
            ("-- expct --\n-- expect --\n", "`expct` is none of"),
            ("-- write --\n-- expect --\n", "`write` is none of"),
            ("-- write a/b.yaml --\n-- expect --\n", "`a/b.yaml` is no file"),
            ("\n-- restart --\nkind: A\n-- expect --\n", "line 2: `restart` takes no text"),
            ("-- node --\nzoone: a\n-- expect --\n", "unknown field"),
        ];
        for (text, part) in cases {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }
}
