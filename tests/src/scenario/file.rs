//! The steps of scenario files.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use anyhow::{Context as _, bail, ensure};

use super::node::{self, Node};
use crate::script::{self, Script};

/// One situation, as its file tells it.
pub(super) type Scenario = Script<Step>;

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
    /// The node as the scenario begins.
    pub(super) fn node(&self) -> Node {
        match self.steps().next() {
            Some((_, Step::Node(node))) => Node::clone(node),
            _ => node::plain(),
        }
    }
}

impl script::Step for Step {
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

    fn has_outcome(&self) -> bool {
        matches!(self, Self::Expect)
    }

    fn proves(&self) -> bool {
        matches!(self, Self::Expect | Self::ExpectNoChange)
    }
}

fn file_name(name: &str) -> anyhow::Result<String> {
    ensure!(!name.contains('/'), "`{name}` is no file of the directory");
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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
