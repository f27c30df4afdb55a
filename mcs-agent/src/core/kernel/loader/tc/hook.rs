//! The hooks of the packet path, and the programs for them.

use aya_obj::generated::bpf_attach_type;

use crate::core::kernel::{
    devices::{LinkType, Role},
    netlink::Direction,
};

/// A place for a program on a device, named as the program is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TcHook {
    /// Packets that a pod receives.
    ToPod,
    /// Packets that a pod sends.
    FromPod,
    /// Packets that leave the node.
    Uplink,
}

/// Where a program runs among the programs of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Position {
    First,
    Last,
}

impl TcHook {
    /// Every hook.
    pub const ALL: [Self; 3] = [Self::ToPod, Self::FromPod, Self::Uplink];

    /// The hooks of a device, in the order in which they are attached: the hook that shows the VIP comes before the hook that
    /// hides it. They are detached in the reverse order.
    pub const fn of(role: Role) -> &'static [Self] {
        match role {
            Role::Pod => &[Self::ToPod, Self::FromPod],
            Role::Uplink => &[Self::Uplink],
        }
    }

    /// The name of the program, of its pin, and in `status`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ToPod => "to_pod",
            Self::FromPod => "from_pod",
            Self::Uplink => "uplink",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hook| hook.name() == name)
    }

    /// The side of the device.
    pub const fn direction(self) -> Direction {
        match self {
            Self::FromPod => Direction::Ingress,
            Self::ToPod | Self::Uplink => Direction::Egress,
        }
    }

    /// In these positions the programs of others see the backend's address, in both directions.
    pub(super) const fn position(self) -> Position {
        match self {
            Self::FromPod | Self::Uplink => Position::First,
            Self::ToPod => Position::Last,
        }
    }

    /// The program's name in the object.
    pub(super) const fn program(self, link_type: &LinkType) -> &'static str {
        match (self, link_type) {
            (Self::ToPod, LinkType::Bare) => "to_pod_bare",
            (Self::FromPod, LinkType::Bare) => "from_pod_bare",
            (Self::Uplink, LinkType::Bare) => "uplink_bare",
            (hook, _) => hook.name(),
        }
    }
}

/// The programs of a hook, as the object names them.
const fn program_names(hook: TcHook) -> [&'static str; 2] {
    [hook.program(&LinkType::Ethernet), hook.program(&LinkType::Bare)]
}

/// Whether a program of this name belongs to an mcs-agent, this one or another.
pub(super) fn is_ours_by_name(name: &str) -> bool {
    TcHook::ALL.into_iter().any(|hook| program_names(hook).contains(&name))
}

/// The attach types of tcx.
pub(super) const fn attach_type(direction: Direction) -> bpf_attach_type {
    match direction {
        Direction::Ingress => bpf_attach_type::BPF_TCX_INGRESS,
        Direction::Egress => bpf_attach_type::BPF_TCX_EGRESS,
    }
}
