//! What the reading commands read: the pinned maps, the agent's report, and their arguments.

use std::{
    io::{self, Write as _},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{bail, ensure};

use super::suggest;
use crate::core::{
    control::{AgentInfo, Report, Start, age, read_start, unfollowed},
    kernel::{
        dataplane::{KernelMapsReader, read_run_record},
        loader::{Pins, is_held},
    },
    model::ObjectKey,
    tables::{FrontendView, MapContents, MapError, MapReader as _, MapView},
};

/// An agent that runs writes its status file more often than this.
const LATEST: Duration = Duration::from_mins(1);

/// Reads the pinned config maps.
pub(crate) fn read_maps(pins: &Pins) -> anyhow::Result<MapContents> {
    let config = pins.config();
    KernelMapsReader::open(&config).and_then(|maps| maps.read_all()).map_err(|error| {
        let advice = advice(&error);
        let directory = config.display().to_string();
        let error = anyhow::Error::new(error);
        anyhow::anyhow!("cannot read the maps in {directory}: {error:#}; {advice}")
    })
}

fn advice(error: &MapError) -> &'static str {
    match error.source.kind() {
        io::ErrorKind::PermissionDenied => "run as root",
        _ => "start `mcs-agent run`, or give the agent's --bpffs",
    }
}

/// What the maps say. Prints inconsistent entries to standard error.
pub(crate) fn of(contents: &MapContents) -> MapView {
    let view = MapView::of(contents);
    for fault in &view.faults {
        // The listing does not depend on it.
        let _ = writeln!(io::stderr(), "mcs-agent: inconsistent entry in the maps: {fault}");
    }
    view
}

/// Every frontend, by import, then by address and port.
pub(crate) fn frontends(view: MapView) -> Vec<FrontendView> {
    let mut frontends: Vec<_> = view.frontends.into_values().collect();
    frontends.sort_by(|a, b| (&a.import, a.frontend).cmp(&(&b.import, b.frontend)));
    frontends
}

/// An error that says why, unless the import has a frontend.
pub(crate) fn expect_import(
    import: &ObjectKey,
    frontends: &[FrontendView],
    pins: &Pins,
) -> anyhow::Result<()> {
    if frontends.iter().any(|frontend| frontend.import == *import) {
        return Ok(());
    }
    let (report, doubt) = report_and_doubt(pins);
    let imports = report.map(|report| report.imports).unwrap_or_default();
    if let Some(known) = imports.iter().find(|known| known.import == *import) {
        bail!("{import} has no frontend: {}: {}", known.state, known.message);
    }
    let known = frontends.iter().map(|frontend| &frontend.import);
    let known: Vec<_> =
        known.chain(imports.iter().map(|known| &known.import)).map(ToString::to_string).collect();
    let given = import.to_string();
    let said = match doubt {
        Some(doubt) => {
            format!("{import} has no frontend; whether there is such an import: {doubt}")
        }
        None => format!("there is no {import}"),
    };
    match suggest::closest(&given, known.iter().map(String::as_str)) {
        Some(meant) => bail!("{said}: did you mean {meant}?"),
        None => bail!("{said}; `mcs-agent services` lists all"),
    }
}

/// Parses the `NAMESPACE/NAME` of a ServiceImport.
pub(crate) fn parse_key(text: &str) -> anyhow::Result<ObjectKey> {
    let Some((namespace, name)) = text.split_once('/') else {
        bail!("write it as NAMESPACE/NAME");
    };
    ensure!(!namespace.is_empty() && !name.is_empty(), "write it as NAMESPACE/NAME");
    Ok(ObjectKey::new(namespace, name))
}

/// What the agents of these pins have left in their run directory.
pub(crate) struct RunFiles {
    /// The status file.
    pub(crate) report: anyhow::Result<Report>,
    /// Whether it is that of an agent before the one that the pins name, or that started since.
    pub(crate) is_former: bool,
    /// The latest start.
    pub(crate) start: Option<Start>,
}

impl RunFiles {
    pub(crate) fn read(pins: &Pins) -> Self {
        let run = match read_run_record(&pins.run()) {
            Ok(run) => run,
            Err(error) => return Self { report: Err(error.into()), is_former: false, start: None },
        };
        let report = Report::read(&run.directory).map_err(anyhow::Error::from);
        let start = read_start(&run.directory);
        let is_former = report.as_ref().is_ok_and(|report| {
            !report.is_of(&run)
                || start.as_ref().is_some_and(|start| start.is_after(&report.common.agent))
        });
        Self { report, is_former, start }
    }
}

/// Reads the status file of the agent that these pins name, or of one before it.
pub(crate) fn read_report(pins: &Pins) -> anyhow::Result<Report> {
    RunFiles::read(pins).report
}

/// The report, and why it does not say how things are now.
pub(crate) fn report_and_doubt(pins: &Pins) -> (Option<Report>, Option<String>) {
    let RunFiles { report, is_former, .. } = RunFiles::read(pins);
    match report {
        Ok(report) => {
            let running = is_held(pins.root()).unwrap_or(false);
            let doubt = doubt(&report, running, is_former, SystemTime::now());
            (Some(report), doubt)
        }
        Err(error) => (None, Some(format!("not known: {error:#}"))),
    }
}

fn doubt(report: &Report, running: bool, is_former: bool, now: SystemTime) -> Option<String> {
    let unsynced = || "not known yet: the agent has not read its source".to_owned();
    as_of(running, is_former, &report.common.agent, now)
        .map(|as_of| format!("known {as_of}"))
        .or_else(|| (!report.synced).then(unsynced))
        .or_else(|| unfollowed(&report.common.source))
}

/// Says that the status file by this agent is old, or that of an agent before.
pub(super) fn as_of(
    running: bool,
    is_former: bool,
    agent: &AgentInfo,
    now: SystemTime,
) -> Option<String> {
    let AgentInfo { version, pid, host, updated, .. } = agent;
    let as_of = format!("as of {} ago", age(*updated));
    if is_former {
        return Some(format!(
            "{as_of}, by the agent before: mcs-agent {version}, process {pid} on {host}"
        ));
    }
    if !running {
        return Some(as_of);
    }
    let since = now.duration_since(UNIX_EPOCH + Duration::from_secs(*updated));
    since
        .is_ok_and(|since| since > LATEST)
        .then(|| format!("{as_of}: the agent cannot write its status file; its log says why"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::core::{control::report_fixture, model::KindStatus};

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn agent() -> AgentInfo {
        let (version, host) = ("0.1.0".to_owned(), "n1".to_owned());
        AgentInfo { version, pid: 7, host, started: 900, updated: 1000 }
    }

    #[test]
    fn a_running_agent_with_an_old_status_file_says_so() {
        let as_of = |running, now| as_of(running, false, &agent(), now);
        assert_eq!(as_of(true, at(1060)), None);
        // The clock was set back.
        assert_eq!(as_of(true, at(900)), None);
        assert!(as_of(true, at(1061)).unwrap().contains("cannot write its status file"));
        assert!(as_of(false, at(1000)).is_some());
    }

    #[test]
    fn the_report_of_an_agent_before_says_whose_it_is() {
        for running in [true, false] {
            let said = as_of(running, true, &agent(), SystemTime::now()).unwrap();
            assert!(
                said.ends_with("by the agent before: mcs-agent 0.1.0, process 7 on n1"),
                "{said}"
            );
        }
    }

    #[test]
    fn a_report_of_another_time_is_doubted() {
        let report = |synced, known_until| {
            let mut report = Report { synced, ..report_fixture() };
            report.common.agent = agent();
            let resource = "endpointslices.discovery.k8s.io".to_owned();
            let kind = KindStatus { resource, version: None, synced: true, known_until };
            Arc::make_mut(&mut report.common.source).kinds = vec![kind];
            report
        };
        let lost = report(true, Some(950));
        for (report, running, is_former, expected) in [
            (report(true, None), true, false, ""),
            (report(true, None), false, false, "as of "),
            (report(true, None), true, true, "by the agent before"),
            (report(false, None), true, false, "not known yet"),
            (lost, true, false, "cannot be followed"),
        ] {
            let said = doubt(&report, running, is_former, at(1001)).unwrap_or_default();
            assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{said}");
        }
    }
}
