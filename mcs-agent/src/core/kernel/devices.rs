//! Network devices: which of them get the programs of the packet path, and why the others do not. Pure functions;
//! [`netlink`](crate::core::kernel::netlink) lists the devices.

mod pattern;
mod select;

use std::collections::BTreeSet;

pub use pattern::{DevicePattern, DevicePatterns, PatternError};
pub use select::{DeviceChoice, DeviceOptions, Reason, Role, TcMode, Uplinks, select};

/// A device of the agent's network namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// Its interface index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// `veth`, `bridge` and so on, as `ip link add type` names it; empty for hardware.
    pub kind: String,
    /// The header that its packets begin with.
    pub link_type: LinkType,
    /// Whether its other end is in another network namespace.
    pub peer_elsewhere: bool,
    /// The interface index of its other end, or of the device below it, there.
    pub peer: Option<u32>,
}

/// The header that the packets of a device begin with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkType {
    /// An Ethernet header.
    Ethernet,
    /// The IP header (tun, `WireGuard`).
    Bare,
    /// The loopback device.
    Loopback,
    /// Something else, by its name in `ip link show`.
    Other(String),
}

/// The devices of a network namespace at one time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceList {
    /// Every device.
    pub devices: Vec<Device>,
    /// The indices of devices that default routes lead to, of both families and all tables.
    pub default_routes: BTreeSet<u32>,
    /// Whether the kernel names no device of a default route: it leads to a nexthop object, and `nexthop_compat_mode` is 0.
    pub has_hidden_default: bool,
}

impl DeviceList {
    /// A network card: a node without one is a network namespace.
    pub fn hardware(&self) -> Option<&Device> {
        let is_hardware =
            |device: &&Device| device.kind.is_empty() && device.link_type == LinkType::Ethernet;
        self.devices.iter().find(is_hardware)
    }
}
