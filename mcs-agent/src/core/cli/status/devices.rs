//! The packet path in `status`: the devices that the agent chose and why, and what the kernel lists for them.

use crate::core::{
    cli::{Style, or_none, print},
    control::{DeviceReport, TcReport},
    kernel::{
        devices::{Role, TcMode},
        loader::{Mechanism, TcLink},
    },
};

/// `auto, by tcx; devices of pods 3, uplinks 1, left alone 2`.
pub(super) fn summary(report: &TcReport) -> String {
    let mode = match report.mode {
        TcMode::Off => return "off".to_owned(),
        TcMode::Auto => "auto",
        TcMode::On => "on",
    };
    let count = |matches: &dyn Fn(&DeviceReport) -> bool| {
        report.devices.iter().filter(|device| matches(device)).count()
    };
    let selected =
        |role| move |device: &DeviceReport| device.role == role && !device.hooks.is_empty();
    format!(
        "{mode}, by {}; devices of pods {}, uplinks {}, left alone {}",
        report.attach,
        count(&selected(Role::Pod)),
        count(&selected(Role::Uplink)),
        count(&|device| device.left_alone.is_some()),
    )
}

pub(super) fn print_table(report: &TcReport, links: &[TcLink], style: Style) -> anyhow::Result<()> {
    if report.devices.is_empty() {
        return Ok(());
    }
    print("\nDevices:")?;
    style.table(
        &["DEVICE", "ROLE", "HOOKS", "ATTACHED BY", "PROGRAMS", "WHY NOT"],
        report.devices.iter().map(|device| {
            vec![
                device.name.clone(),
                device.role.to_string(),
                device.hooks(),
                or_none(device.attached_by),
                programs(device, links),
                why_not(device),
            ]
        }),
    )?;
    for device in &report.devices {
        if let Some(ahead) = &device.ahead {
            print(&format!("  {}: {ahead} runs before our programs", device.name))?;
        }
        if let Some(beside) = &device.beside {
            print(&format!("  {}: {beside} came after our programs, which stay", device.name))?;
        }
    }
    Ok(())
}

/// The ids of the attached programs, in the order of the hooks.
fn programs(device: &DeviceReport, links: &[TcLink]) -> String {
    let ids = device.hooks.iter().map(|hook| {
        let id = match device.attached_by {
            Some(Mechanism::Tcx) => {
                device.link(hook, links).filter(|link| link.attached).map(|link| link.program_id)
            }
            _ => device.programs.get(hook).copied(),
        };
        or_none(id)
    });
    let ids: Vec<_> = ids.collect();
    if ids.is_empty() { "-".to_owned() } else { ids.join(", ") }
}

fn why_not(device: &DeviceReport) -> String {
    device.left_alone.as_ref().or(device.error.as_ref()).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::control::tc_fixture::{links, report};

    #[test]
    fn the_summary_counts_devices_by_role() {
        let counts = "by tcx; devices of pods 1, uplinks 1, left alone 1";
        assert_eq!(summary(&report()), format!("auto, {counts}"));
        assert_eq!(summary(&TcReport { mode: TcMode::Off, ..report() }), "off");
    }

    #[test]
    fn program_ids_come_from_the_kernel() {
        let mut links = links();
        links[0].program_id = 77;
        links[1].attached = false;
        assert_eq!(programs(&report().devices[0], &links), "77, -");
    }
}
