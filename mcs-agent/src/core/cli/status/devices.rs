//! The packet path in `status`: the devices that the agent chose and why, what the kernel lists for them, and what the
//! agent has repaired.

use crate::core::{
    cli::{Style, or_none, print},
    control::{DeviceReport, Repairs, Report, TcReport, age},
    kernel::{
        devices::{Role, TcMode},
        loader::{Mechanism, Tampering, TcLink},
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

/// `Repairs: ...`.
pub(super) fn lines(report: &Report) -> Vec<String> {
    repairs(&report.repairs, report.tc.repairs)
}

fn repairs(repairs: &Repairs, devices: u64) -> Vec<String> {
    let counts = repairs.counts.iter().map(|(tampering, count)| (*tampering, *count));
    let counts = counts.chain([(Tampering::Device, devices)]).filter(|(_, count)| *count > 0);
    let counts: Vec<_> = counts.map(|(tampering, count)| format!("{tampering} {count}")).collect();
    if counts.is_empty() {
        return Vec::new();
    }
    let latest = repairs.latest.iter().map(|one| format!("  {} ago: {}", age(one.at), one.what));
    [format!("Repairs: {}", counts.join(", "))].into_iter().chain(latest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::control::{
        Repaired,
        tc_fixture::{links, report},
    };

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

    #[test]
    fn repairs_are_counted_and_the_latest_are_listed() {
        assert!(repairs(&Repairs::default(), 0).is_empty());
        let lines = repairs(
            &Repairs {
                counts: [(Tampering::Pin, 2)].into(),
                latest: [Repaired {
                    at: 0,
                    what: "the pin x was removed; pinned again".to_owned(),
                }]
                .into(),
                problems: vec![],
            },
            3,
        );
        assert_eq!(lines[0], "Repairs: pin 2, device 3");
        assert!(lines[1].ends_with("the pin x was removed; pinned again"), "{lines:?}");
    }
}
