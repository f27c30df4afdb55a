//! The devices in the status report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::core::kernel::{
    devices::{Role, TcMode},
    loader::{Mechanism, TcLink},
};

/// All devices, as of the latest check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TcReport {
    /// `--tc`.
    pub mode: TcMode,
    /// How programs are attached.
    pub attach: Mechanism,
    /// Whether the agent has checked devices since it started.
    pub looked: bool,
    /// Why the latest check failed, if it did.
    pub problem: Option<String>,
    /// How many programs the agent has attached again after another process detached them.
    #[serde(default)]
    pub repairs: u64,
    /// Whether a default route names no device, and no uplink is guarded.
    #[serde(default)]
    pub hidden_default_route: bool,
    /// A network card of a node where no device is an uplink.
    #[serde(default)]
    pub no_uplink: Option<String>,
    /// Every device that the flags name, or that the agent chooses by default.
    pub devices: Vec<DeviceReport>,
}

impl TcReport {
    pub(super) const fn new(mode: TcMode, attach: Mechanism) -> Self {
        Self {
            mode,
            attach,
            looked: false,
            problem: None,
            repairs: 0,
            hidden_default_route: false,
            no_uplink: None,
            devices: Vec::new(),
        }
    }

    /// Why packets to VIPs may leave the node, or pass by the programs of pods.
    pub fn unguarded(&self) -> Vec<String> {
        let hidden = self.hidden_default_route.then(|| {
            "a default route leads to a nexthop object whose device is unknown, and packets to VIPs may leave by it: name the \
             device with --uplinks=DEVICE"
                .to_owned()
        });
        let no_uplink = self.no_uplink.as_ref().map(|device| {
            format!(
                "no device is an uplink: no default route leads to one, or --uplinks names none that is there. Packets to VIPs may leave by \
                 {device}: name the devices that lead off the node with --uplinks, or accept that with --uplinks=none"
            )
        });
        let uplinks = self.devices.iter().filter_map(DeviceReport::unguarded);
        hidden.into_iter().chain(no_uplink).chain(uplinks).chain(self.passed()).collect()
    }

    /// The devices of pods where a program of others came after ours. A node can have hundreds: one is named.
    fn passed(&self) -> Option<String> {
        let mut devices = self.devices.iter().filter(|device| device.beside.is_some());
        let DeviceReport { name, beside, .. } = devices.next()?;
        let others = match devices.count() {
            0 => String::new(),
            others => format!(" (and {others} more devices)"),
        };
        Some(format!(
            "{name}{others}: {} came after our programs and may pass packets by them, so that packets from a VIP show its \
             backend: start the pod anew, take ours off with --tc-devices=!{name}, or set --tc=on if it passes none by",
            beside.as_deref().unwrap_or_default()
        ))
    }

    /// The failings of the packet path.
    pub fn failings(&self, links: &[TcLink]) -> Vec<String> {
        if self.mode == TcMode::Off {
            return Vec::new();
        }
        let mut failings = Vec::new();
        if !self.looked {
            failings.push("the agent has not checked devices since it started".to_owned());
        }
        failings.extend(self.problem.iter().map(|problem| format!("devices: {problem}")));
        failings.extend(self.devices.iter().flat_map(|device| device.failings(links)));
        failings
    }
}

/// One device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Its name.
    pub name: String,
    /// Its interface index.
    pub index: u32,
    /// Its kind in the words of `ip link add type`; empty for hardware.
    pub kind: String,
    /// Whether it leads to a pod or is an uplink.
    pub role: Role,
    /// The programs that it should have; empty if it is left alone.
    pub hooks: Vec<String>,
    /// How its programs are attached; absent if none is.
    pub attached_by: Option<Mechanism>,
    /// The ids of the attached programs.
    pub programs: BTreeMap<String, u32>,
    /// Why it gets no programs.
    pub left_alone: Option<String>,
    /// A program or filter of others that runs before ours, and may consume packets.
    #[serde(default)]
    pub ahead: Option<String>,
    /// A program of others that came after ours, which stay (`--tc=auto`).
    #[serde(default)]
    pub beside: Option<String>,
    /// Why a program cannot be attached or detached; the agent tries again.
    pub error: Option<String>,
}

impl DeviceReport {
    /// `to_pod, from_pod`, or `-`.
    pub fn hooks(&self) -> String {
        if self.hooks.is_empty() { "-".to_owned() } else { self.hooks.join(", ") }
    }

    /// The kernel's link for one of its hooks.
    pub fn link<'a>(&self, hook: &str, links: &'a [TcLink]) -> Option<&'a TcLink> {
        links.iter().find(|link| link.device == self.index && link.hook == hook)
    }

    /// The failings of this device.
    pub fn failings(&self, links: &[TcLink]) -> Vec<String> {
        let error = self.error.iter().map(|error| format!("{}: {error}", self.name));
        let detached = self.detached(links).map(|hook| {
            format!(
                "{hook} is not attached to {}: the agent attaches it again within seconds",
                self.name
            )
        });
        error.chain(detached).collect()
    }

    /// Why packets to VIPs may leave by this uplink, although it has its program.
    fn unguarded(&self) -> Option<String> {
        let is_guard = self.role == Role::Uplink && !self.hooks.is_empty();
        let ahead = self.ahead.as_ref().filter(|_| is_guard)?;
        let name = &self.name;
        Some(format!("{name}: {ahead} runs before the guard, so packets to VIPs may leave"))
    }

    /// The hooks that the agent attached by tcx and that are no longer attached. Filters are not checked: they are
    /// visible only in the agent's network namespace.
    pub(crate) fn detached(&self, links: &[TcLink]) -> impl Iterator<Item = &String> {
        let by_tcx = self.attached_by == Some(Mechanism::Tcx);
        let hooks = self.programs.keys().filter(move |_| by_tcx);
        hooks.filter(|hook| self.link(hook, links).is_none_or(|link| !link.attached))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::fixture::{links, report},
        *,
    };

    #[test]
    fn a_device_without_its_programs_is_a_failing_and_one_left_alone_is_none() {
        let mut report = report();
        assert_eq!(report.failings(&links()), Vec::<String>::new());
        let mut severed = links();
        severed[1].attached = false;
        severed.remove(2);
        let said = report.failings(&severed).join("; ");
        assert!(said.contains("from_pod is not attached to cali1"), "{said}");
        assert!(said.contains("uplink is not attached to eth0"), "{said}");
        assert!(!said.contains("to_pod"), "{said}");
        report.devices[0].error = Some("cannot attach".to_owned());
        for device in &mut report.devices {
            device.ahead = Some("the eBPF program x".to_owned());
        }
        let ahead = report.unguarded();
        assert!(matches!(&*ahead, [one] if one.starts_with("eth0: ")), "{ahead:?}");
        report.hidden_default_route = true;
        assert_eq!(report.unguarded().len(), 2);
        report.no_uplink = Some("eth1".to_owned());
        assert!(report.unguarded()[1].contains("may leave by eth1"));
        for device in &mut report.devices[..2] {
            device.beside = Some("the eBPF program y".to_owned());
        }
        let passed = report.unguarded().pop().unwrap();
        assert!(passed.starts_with("cali1 (and 1 more devices): the eBPF program y"), "{passed}");
        report.looked = false;
        let said = report.failings(&links()).join("; ");
        assert!(
            said.contains("has not checked devices") && said.contains("cali1: cannot"),
            "{said}"
        );
        report.mode = TcMode::Off;
        assert!(report.failings(&[]).is_empty());
    }
}
