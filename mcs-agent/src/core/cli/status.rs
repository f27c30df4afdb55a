//! `mcs-agent status`: the health of the agent, from the kernel and the status file.

mod devices;
mod imports;

use std::{
    collections::BTreeSet,
    io,
    process::ExitCode,
    time::{Duration, SystemTime},
};

use ipnet::IpNet;
use mcs_kube::{reasons::Coded, report::Status as CommonStatus};
use serde::Serialize;

use super::{
    ReadArgs, Style, or_none, print,
    view::{RunFiles, as_of},
};
use crate::core::{
    control::{AgentInfo, Attachments, Check, Report, SocketLb, Start, age},
    feature::{Definition, failings, unread},
    kernel::{
        dataplane::{Counts, SignOfLife, counter_meaning, read_counters},
        loader::{AttachedHook, Pins, TcLink, is_held},
    },
    model::{AcceptedVips, KindStatus, Traffic},
};

/// `status -o json`: fields are added, never renamed.
#[derive(Debug, Serialize)]
struct Status {
    /// `healthy` or `degraded`.
    state: &'static str,
    /// The checks that fail.
    #[serde(skip)]
    failing: BTreeSet<Check>,
    /// Whether an agent runs on this bpffs directory.
    running: bool,
    /// Seconds since the agent's last sign of life; absent if there was none.
    sign_of_life_age: Option<u64>,
    /// Whether the programs leave the ClusterSetIPs alone, for want of an agent.
    released: bool,
    /// Every hook as the kernel lists it.
    hooks: Vec<AttachedHook>,
    /// Every pinned link to a device as the kernel lists it.
    tc_links: Vec<TcLink>,
    #[serde(flatten)]
    common: CommonStatus<Report>,
}

pub(super) fn run(args: &ReadArgs, features: &[Definition]) -> anyhow::Result<ExitCode> {
    let pins = Pins::new(&args.bpffs.bpffs);
    let status = args.output.show(
        || Ok(Status::read(&pins, features)),
        |status: &Status, style| status.print(features, style),
    )?;
    Ok(if status.common.degraded.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Status {
    fn read(pins: &Pins, features: &[Definition]) -> Self {
        let mut degraded = Vec::new();
        let (mut report, mut start) = (None, None);
        let mut running = false;
        let alive = SignOfLife::read(&pins.alive()).ok();
        match is_held(pins.root()) {
            Ok(locked) => {
                running = locked;
                degraded.extend(contention(pins, running, alive));
                let left = RunFiles::read(pins);
                let has_reported = left.report.is_ok() && !left.is_former;
                let stuck = alive.filter(|_| running && has_reported);
                degraded.extend(stuck.and_then(SignOfLife::missed));
                degraded.extend(
                    left.start.as_ref().and_then(|start| unreported(start, running, has_reported)),
                );
                match left.report {
                    Ok(found) => {
                        let as_of =
                            as_of(running, left.is_former, &found.common.agent, SystemTime::now());
                        degraded.extend(as_of.map(|as_of| format!("what follows is {as_of}")));
                        degraded.extend(unread(features, &found));
                        report = Some(found);
                    }
                    Err(error) => degraded.push(format!("{error:#}")),
                }
                start = left.start;
            }
            Err(error) => {
                let advice = match error.kind() {
                    io::ErrorKind::PermissionDenied => "run as root",
                    _ => "start `mcs-agent run`, or give the agent's --bpffs",
                };
                degraded.push(format!("cannot read {}: {error}; {advice}", pins.root().display()));
            }
        }
        let attachments = Attachments::read(pins);
        let failings = match &report {
            Some(report) => failings(features, report, &attachments),
            None => attachments.problems.clone(),
        };
        let failing = failings.iter().map(|(check, _)| *check).collect();
        degraded.extend(failings.into_iter().map(|(_, failing)| failing));
        let Attachments { hooks, links: tc_links, .. } = attachments;
        let counters = read_counters(&pins.state()).unwrap_or_default();
        let state = if degraded.is_empty() { "healthy" } else { "degraded" };
        let sign_of_life_age = alive.map(|alive| alive.age.as_secs());
        let released = alive.is_some_and(|alive| alive.release_in == Some(Duration::ZERO));
        Self {
            state,
            failing,
            running,
            sign_of_life_age,
            released,
            hooks,
            tc_links,
            common: CommonStatus { degraded, counters, report, start },
        }
    }

    fn print(&self, features: &[Definition], style: Style) -> anyhow::Result<()> {
        print(&format!("State: {}", self.state))?;
        for reason in &self.common.degraded {
            print(&format!("  {reason}"))?;
        }
        print_links(&self.failing)?;
        if let Some(report) = &self.common.report {
            print_report(report, features)?;
        }
        // Without an agent there are none, and no report.
        if self.common.report.is_some() || self.hooks.iter().any(|hook| hook.program_id.is_some()) {
            print("\nHooks:")?;
            style.table(
                &["NAME", "CGROUP", "PROGRAM"],
                self.hooks.iter().map(|hook| {
                    vec![hook.name.clone(), or_none(hook.cgroup_id), or_none(hook.program_id)]
                }),
            )?;
        }
        if let Some(report) = &self.common.report {
            devices::print_table(&report.tc, &self.tc_links, style)?;
            print_objects(report, style)?;
        }
        print_counters(&self.common.counters, style)
    }
}

/// Where codes are explained.
fn print_links(codes: &BTreeSet<impl Coded>) -> anyhow::Result<()> {
    codes.iter().try_for_each(|code| print(&format!("  see {}", code.link())))
}

/// Prints the counters that are not zero, or all of them.
fn print_counters(counters: &Counts, style: Style) -> anyhow::Result<()> {
    let counted: Vec<_> = counters.iter().filter(|(_, count)| style.wide || **count > 0).collect();
    if counters.is_empty() {
        // They cannot be read.
        return Ok(());
    }
    if counted.is_empty() {
        return print("\nCounters: all are zero");
    }
    print("\nCounters:")?;
    style.table(
        &["NAME", "COUNT", "MEANING"],
        counted.into_iter().map(|(name, count)| {
            vec![name.clone(), count.to_string(), counter_meaning(name).to_owned()]
        }),
    )
}

/// Which addresses can be ClusterSetIPs, and which can be those of Services.
fn addresses(report: &Report) -> String {
    let list = |ranges: &mut dyn Iterator<Item = &IpNet>| {
        ranges.map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    let allowed = match AcceptedVips::new(&report.vip_cidrs, &report.common.node.vip_ranges) {
        None => "any, since no --vip-cidr and no ClusterProperty has ranges".to_owned(),
        Some(accepted) => accepted.to_string(),
    };
    let services = match &report.common.node.service_ranges {
        None => "unknown; set --service-cidr".to_owned(),
        Some(ranges) => list(&mut ranges.iter()),
    };
    format!("ClusterSetIPs: {allowed}; Service range: {services}")
}

/// Problems with the lock of the bpffs directory: no agent has it, or a second one waits for it.
fn contention(pins: &Pins, running: bool, alive: Option<SignOfLife>) -> Vec<String> {
    let mut reasons = Vec::new();
    if !running {
        reasons.push(format!("no agent runs here: the attached programs {}", orphaned(alive)));
    } else if alive.is_some_and(|alive| alive.release_in == Some(Duration::ZERO)) {
        reasons.push(
            "the attached programs leave the ClusterSetIPs alone until the agent is synced \
             (--orphan=release)"
                .to_owned(),
        );
    }
    if is_held(&pins.state()).unwrap_or(false) {
        reasons
            .push("a second agent waits for this directory: it needs another --bpffs".to_owned());
    }
    reasons
}

/// Says that the agent that started last has not reported, or why it has ended.
fn unreported(start: &Start, running: bool, has_reported: bool) -> Option<String> {
    let AgentInfo { version, pid, host, started, .. } = &start.agent;
    let what = match (&start.failure, running, has_reported) {
        (_, true, true) | (None, false, true) => return None,
        (_, true, false) => "has not reported yet".to_owned(),
        (Some(failure), false, _) => format!("has ended: {failure}"),
        (None, false, false) => "ended before its first report: its log may say why".to_owned(),
    };
    let age = age(*started);
    Some(format!("mcs-agent {version}, process {pid} on {host}, which started {age} ago, {what}"))
}

/// What programs without an agent do.
fn orphaned(alive: Option<SignOfLife>) -> String {
    match alive.and_then(|alive| Some((alive.age, alive.release_in?))) {
        None => "continue with the maps as they are".to_owned(),
        Some((age, Duration::ZERO)) => format!(
            "leave the ClusterSetIPs alone, {} s after its last sign of life (--orphan=release)",
            age.as_secs()
        ),
        Some((_, left)) => format!(
            "continue with the maps as they are for {} s, and leave the ClusterSetIPs alone then (--orphan=release)",
            left.as_secs().max(1)
        ),
    }
}

fn print_report(report: &Report, features: &[Definition]) -> anyhow::Result<()> {
    let agent = &report.common.agent;
    let refusal = if report.features.set_retval { "ECONNREFUSED" } else { "EPERM" };
    print(&format!("Agent: {} (process {} on {})", agent.version, agent.pid, agent.host))?;
    print(&format!(
        "Source: {}, {}",
        report.common.source.name,
        if report.synced { "synced" } else { "not synced" }
    ))?;
    for kind in &report.common.source.kinds {
        print(&format!("  {}: {}", kind.resource, kind_state(kind)))?;
    }
    for line in features.iter().flat_map(|feature| (feature.source_lines)(report)) {
        print(&format!("  {line}"))?;
    }
    for (kind, count) in &report.common.source.skipped {
        print(&format!("  ignored: {count} {kind}"))?;
    }
    print(&format!(
        "Node: {}, zone {}, cluster {}",
        or_none(report.node_name.as_deref()),
        or_none(report.common.node.zone.as_deref()),
        or_none(report.common.node.cluster_id.as_deref()),
    ))?;
    if report.common.node.traffic != Traffic::default() {
        print(&format!("Source clusters: {}", report.common.node.traffic))?;
    }
    print(&addresses(report))?;
    print(&format!(
        "Socket hooks: {} below {}; refusals return {refusal}",
        match report.socket_lb {
            SocketLb::All => "all processes",
            SocketLb::Host => "processes in the host's network namespace",
            SocketLb::Off => "no processes",
        },
        report.cgroup_path.display(),
    ))?;
    print(&format!("Packets: {}", devices::summary(&report.tc)))?;
    print(&match report.orphan_release_after {
        None => "Without an agent: the programs continue with the maps as they are".to_owned(),
        Some(after) => {
            format!("Without an agent: the programs leave the ClusterSetIPs alone after {after} s")
        }
    })?;
    let fallbacks = report.features.fallbacks();
    if !fallbacks.is_empty() {
        print(&format!("The kernel lacks: {}", fallbacks.join(", ")))?;
    }
    for listener in &report.listeners {
        let problem = if listener.problem.is_some() { ": not listening" } else { "" };
        print(&format!("HTTP: {} {}{problem}", listener.flags, listener.address))?;
    }
    let (usage, room, max) = (report.usage, report.capacity, report.max_capacity);
    print(&format!(
        "Capacity: {} of {} VIPs, {} of {} frontends, {} of {} endpoints, {} of {} clusters; config \
         maps use {} KiB, state maps {} KiB; --max-memory {} allows {} frontends, {} endpoints, {} \
         clusters",
        usage.vips,
        room.vips,
        usage.frontends,
        room.frontends,
        usage.endpoints,
        room.endpoints,
        usage.clusters,
        room.clusters,
        report.config_map_bytes.div_ceil(1024),
        report.state_map_bytes.div_ceil(1024),
        report.max_memory,
        max.frontends,
        max.endpoints,
        max.clusters,
    ))?;
    if let Some(at) = report.grown_at {
        print(&format!("Growth: the maps became larger {} ago", age(at)))?;
    }
    if let Some(why) = &report.not_grown {
        print(&format!("Growth: {why}; the agent tries again"))?;
    }
    for (departure, count) in usage.departed() {
        if count > 0 {
            print(&format!("VIPs {departure}: {count}: {}", departure.meaning()))?;
        }
    }
    if let Some(flows) = &report.flows {
        print(&format!("Flows: {flows}"))?;
    }
    devices::lines(report)
        .into_iter()
        .chain(features.iter().flat_map(|feature| (feature.lines)(report)))
        .try_for_each(|line| print(&line))
}

fn print_objects(report: &Report, style: Style) -> anyhow::Result<()> {
    if !report.common.source.problems.is_empty() {
        print("\nCannot be read:")?;
        for problem in &report.common.source.problems {
            print(&format!("  {}: {}", problem.place, problem.message))?;
        }
    }
    if !report.common.rejections.is_empty() {
        print("\nRejected:")?;
        style.table(
            &["OBJECT", "REASON", "MESSAGE"],
            report.common.rejections.iter().map(|rejection| {
                vec![
                    rejection.object.to_string(),
                    rejection.reason.to_string(),
                    rejection.message.clone(),
                ]
            }),
        )?;
    }
    if report.rejections_omitted > 0 {
        print(&format!("and {} more rejections", report.rejections_omitted))?;
    }
    print_links(&report.common.rejections.iter().map(|one| one.reason).collect())?;
    let rejected = report
        .common
        .rejections
        .iter()
        .map(|rejection| (&rejection.object.key, &*rejection.message));
    imports::print_tables(&report.imports, &rejected.collect(), style)?;
    print_links(&report.imports.iter().filter_map(|one| one.left_alone).collect())
}

fn kind_state(kind: &KindStatus) -> String {
    match (&kind.version, kind.synced) {
        (Some(version), true) => match kind.known_until {
            None => format!("synced, {version}"),
            Some(known) => format!("as of {} ago, {version}", age(known)),
        },
        (None, true) => "not served".to_owned(),
        (_, false) => "not synced".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(pid: u32, started: u64) -> AgentInfo {
        let (version, host) = ("0.1.0".to_owned(), "n1".to_owned());
        AgentInfo { version, pid, host, started, updated: 1000 }
    }

    #[test]
    fn an_agent_that_has_not_reported_is_degraded() {
        let said = |failure: Option<&str>, running, has_reported| {
            let start = Start { agent: agent(8, 1000), failure: failure.map(str::to_owned) };
            unreported(&start, running, has_reported).unwrap_or_default()
        };
        assert!(said(None, true, false).contains("process 8 on n1"));
        assert!(said(None, true, false).ends_with("has not reported yet"));
        assert!(said(Some("no room"), false, false).ends_with("has ended: no room"));
        // It had reported before.
        assert!(said(Some("no source"), false, true).ends_with("has ended: no source"));
        assert!(said(None, false, false).contains("ended before its first report"));
        assert_eq!([said(None, true, true), said(None, false, true)], ["", ""]);
    }
}
