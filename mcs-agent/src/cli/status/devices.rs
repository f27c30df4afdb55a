//! The packet path in `status`: what the agent chose and why, and what the kernel says of it.

use crate::{
    agent::{DeviceReport, TcReport},
    cli::output::{print, table},
    devices::{Role, TcMode},
    loader::{Mechanism, TcLink},
};

/// `auto, by tcx; 3 devices of pods, 1 uplink, 2 left alone`.
pub(super) fn summary(report: &TcReport) -> String {
    let mode = match report.mode {
        TcMode::Off => return "off".to_owned(),
        TcMode::Auto => "auto",
        TcMode::On => "on",
    };
    let count = |matches: &dyn Fn(&DeviceReport) -> bool| {
        report.devices.iter().filter(|device| matches(device)).count()
    };
    let asked = |role| move |device: &DeviceReport| device.role == role && !device.hooks.is_empty();
    format!(
        "{mode}, by {}; {} devices of pods, {} uplinks, {} left alone",
        report.attach,
        count(&asked(Role::Pod)),
        count(&asked(Role::Uplink)),
        count(&|device| device.left_alone.is_some()),
    )
}

/// What keeps the packet path from being as it should.
pub(super) fn failings(report: &TcReport, links: &[TcLink]) -> Vec<String> {
    if report.mode == TcMode::Off {
        return Vec::new();
    }
    let mut failings = Vec::new();
    if !report.looked {
        failings.push("devices have not been looked at since the agent started".to_owned());
    }
    failings.extend(report.problem.iter().map(|problem| format!("devices: {problem}")));
    for device in &report.devices {
        failings.extend(device.error.iter().map(|error| format!("{}: {error}", device.name)));
        failings.extend(detached(device, links).map(|hook| {
            format!(
                "{hook} is not attached to {}: the agent attaches it again within seconds",
                device.name
            )
        }));
    }
    failings
}

/// What the agent attached by tcx and is attached no more. (Filters can be seen from the agent's
/// network namespace alone.)
fn detached<'a>(device: &'a DeviceReport, links: &'a [TcLink]) -> impl Iterator<Item = &'a String> {
    let by_tcx = device.attached_by == Some(Mechanism::Tcx);
    let hooks = device.programs.keys().filter(move |_| by_tcx);
    hooks.filter(|hook| link(device, hook, links).is_none_or(|link| !link.attached))
}

fn link<'a>(device: &DeviceReport, hook: &str, links: &'a [TcLink]) -> Option<&'a TcLink> {
    links.iter().find(|link| link.device == device.index && link.hook == hook)
}

pub(super) fn print_table(report: &TcReport, links: &[TcLink]) -> anyhow::Result<()> {
    if report.devices.is_empty() {
        return Ok(());
    }
    print("\nDevices:")?;
    table(
        &["DEVICE", "ROLE", "HOOKS", "ATTACHED BY", "PROGRAMS", "WHY NOT"],
        report.devices.iter().map(|device| {
            vec![
                device.name.clone(),
                device.role.to_string(),
                device.hooks(),
                device.attached_by.map_or_else(|| "-".to_owned(), |by| by.to_string()),
                programs(device, links),
                why_not(device),
            ]
        }),
    )
}

/// The ids of what is attached, in the order of the hooks.
fn programs(device: &DeviceReport, links: &[TcLink]) -> String {
    let ids = device.hooks.iter().map(|hook| {
        let id = match device.attached_by {
            Some(Mechanism::Tcx) => {
                link(device, hook, links).filter(|link| link.attached).map(|link| link.program_id)
            }
            _ => device.programs.get(hook).copied(),
        };
        id.map_or_else(|| "-".to_owned(), |id| id.to_string())
    });
    let ids: Vec<_> = ids.collect();
    if ids.is_empty() { "-".to_owned() } else { ids.join(", ") }
}

fn why_not(device: &DeviceReport) -> String {
    device.left_alone.as_ref().or(device.error.as_ref()).cloned().unwrap_or_default()
}
