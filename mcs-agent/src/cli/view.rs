//! What the reading commands read: the pinned maps, the agent's report, and their arguments.

use std::io::{self, Write as _};

use anyhow::{bail, ensure};

use super::suggest;
use crate::{
    agent::{Report, Start},
    dataplane::{KernelMapsReader, read_run_record},
    loader::Pins,
    model::ObjectKey,
    reconcile::{FrontendView, MapContents, MapError, MapReader as _, MapView},
};

/// Reads the pinned config maps.
pub(super) fn read_maps(pins: &Pins) -> anyhow::Result<MapContents> {
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
pub(super) fn of(contents: &MapContents) -> MapView {
    let view = MapView::of(contents);
    for fault in &view.faults {
        // The listing does not depend on it.
        let _ = writeln!(io::stderr(), "mcs-agent: inconsistent entry in the maps: {fault}");
    }
    view
}

/// Every frontend, by import, then by address and port.
pub(super) fn frontends(view: MapView) -> Vec<FrontendView> {
    let mut frontends: Vec<_> = view.frontends.into_values().collect();
    frontends.sort_by(|a, b| (&a.import, a.frontend).cmp(&(&b.import, b.frontend)));
    frontends
}

/// An error that says why, unless the import has a frontend.
pub(super) fn expect_import(
    import: &ObjectKey,
    frontends: &[FrontendView],
    pins: &Pins,
) -> anyhow::Result<()> {
    if frontends.iter().any(|frontend| frontend.import == *import) {
        return Ok(());
    }
    let imports = read_report(pins).map(|report| report.imports).unwrap_or_default();
    if let Some(known) = imports.iter().find(|known| known.import == *import) {
        bail!("{import} has no frontend: {}: {}", known.state, known.message);
    }
    let known = frontends.iter().map(|frontend| &frontend.import);
    let known: Vec<_> =
        known.chain(imports.iter().map(|known| &known.import)).map(ToString::to_string).collect();
    let given = import.to_string();
    match suggest::closest(&given, known.iter().map(String::as_str)) {
        Some(meant) => bail!("there is no {import}: did you mean {meant}?"),
        None => bail!("there is no {import}; `mcs-agent services` lists all"),
    }
}

/// Parses the `NAMESPACE/NAME` of a ServiceImport.
pub(super) fn parse_key(text: &str) -> anyhow::Result<ObjectKey> {
    let Some((namespace, name)) = text.split_once('/') else {
        bail!("write it as NAMESPACE/NAME");
    };
    ensure!(!namespace.is_empty() && !name.is_empty(), "write it as NAMESPACE/NAME");
    Ok(ObjectKey::new(namespace, name))
}

/// What the agents of these pins have left in their run directory.
pub(super) struct Left {
    /// The status file.
    pub(super) report: anyhow::Result<Report>,
    /// Whether it is that of an agent before the one that the pins name, or that started since.
    pub(super) is_former: bool,
    /// The latest start.
    pub(super) start: Option<Start>,
}

impl Left {
    pub(super) fn read(pins: &Pins) -> Self {
        let run = match read_run_record(&pins.run()) {
            Ok(run) => run,
            Err(error) => return Self { report: Err(error.into()), is_former: false, start: None },
        };
        let report = Report::read(&run.directory).map_err(anyhow::Error::from);
        let start = Start::read(&run.directory);
        let is_former = report.as_ref().is_ok_and(|report| {
            !report.is_of(&run) || start.as_ref().is_some_and(|start| start.is_after(report))
        });
        Self { report, is_former, start }
    }
}

/// Reads the status file of the agent that these pins name, or of one before it.
pub(super) fn read_report(pins: &Pins) -> anyhow::Result<Report> {
    Left::read(pins).report
}
