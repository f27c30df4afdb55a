//! Plays a scenario on an agent and maps.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, ensure};
use mcs_agent::core::model::{Capacity, ImportReport, Rejection, SourceProblem};
use mcs_agent::core::tables::MapView;

use super::{Backing, Faults, Scenario, agent::Agent, file::Step, node::Node};
use crate::script::Outcomes;

/// Plays a scenario in an empty directory, on maps that nothing was written to.
pub(super) fn play<M: Backing>(
    scenario: &Scenario,
    directory: &Path,
    new_maps: impl FnOnce(Capacity) -> anyhow::Result<M>,
    faults: Faults,
) -> anyhow::Result<Outcomes> {
    let node = scenario.node();
    let mut agent = Agent::start(directory.to_owned(), node, new_maps, faults)?;
    let mut outcomes = Outcomes::new();
    let mut positions = MapView::default();
    for (line, step) in scenario.steps() {
        let context = || scenario.at(line);
        match step {
            Step::Node(node) => agent.set_node(Node::clone(node)).with_context(context)?,
            Step::Write { file, text } => {
                fs::write(directory.join(file), text).with_context(context)?;
            }
            Step::Delete { file } => {
                fs::remove_file(directory.join(file)).with_context(context)?;
            }
            Step::Flows { vips } => agent.flows.clone_from(vips),
            Step::Wait(time) => agent.wait(*time),
            Step::TryOnce => agent.try_once().with_context(context)?,
            Step::Restart => agent.restart().with_context(context)?,
            Step::Crash => agent.crash().with_context(context)?,
            Step::Expect => {
                agent.settle().with_context(context)?;
                outcomes.push(render(&agent)?);
                positions = agent.view()?;
            }
            Step::ExpectNoChange => {
                agent.settle().with_context(context)?;
                let (outcome, now) = (render(&agent)?, agent.view()?);
                let same = outcomes.last() == Some(&outcome) && now == positions;
                ensure!(same, "{}: {outcome}\n{now:?}\ninstead of\n{positions:?}", context());
            }
        }
    }
    Ok(outcomes)
}

/// Renders what clients find, and what `status` says.
fn render<M: Backing>(agent: &Agent<M>) -> anyhow::Result<String> {
    let mut text = agent.view()?.to_string();
    let mut line = |line: String| writeln!(text, "{line}");
    if !agent.engine.synced() {
        line("not synced: nothing is pruned".to_owned())?;
    }
    for deferred in &agent.deferred {
        line(format!("pending {deferred}"))?;
    }
    for report in agent.engine.desired().imports.iter() {
        let ImportReport { import, state, message, .. } = &**report;
        let colon = if message.is_empty() { "" } else { ": " };
        line(format!("import {import} {state}{colon}{message}"))?;
    }
    for Rejection { object, reason, message } in &agent.engine.desired().rejections {
        line(format!("rejected {object} {reason}: {message}"))?;
    }
    let source = agent.engine.source();
    for SourceProblem { place, message } in &source.problems {
        line(format!("problem {place}: {message}"))?;
    }
    for (kind, count) in &source.skipped {
        line(format!("skipped {count} {kind}"))?;
    }
    if text.is_empty() {
        text.push_str("nothing\n");
    }
    Ok(text)
}
