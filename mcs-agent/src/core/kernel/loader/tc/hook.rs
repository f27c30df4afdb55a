//! The hooks of the packet path, and the programs for them.

use std::{collections::BTreeMap, os::fd::OwnedFd};

use aya_obj::generated::bpf_attach_type;

use super::TcError;
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
    const fn program(self, link_type: &LinkType) -> &'static str {
        match (self, link_type) {
            (Self::ToPod, LinkType::Bare) => "to_pod_bare",
            (Self::FromPod, LinkType::Bare) => "from_pod_bare",
            (Self::Uplink, LinkType::Bare) => "uplink_bare",
            (hook, _) => hook.name(),
        }
    }
}

/// The programs of a hook, as the object names them.
pub(crate) const fn program_names(hook: TcHook) -> [&'static str; 2] {
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

/// A loaded program.
#[derive(Debug)]
pub(crate) struct Classifier {
    pub(crate) program: OwnedFd,
    pub(crate) id: u32,
}

/// The programs of the packet path. An error is what the kernel said of a program that it refuses.
#[derive(Debug, Default)]
pub struct Classifiers {
    pub(crate) by_name: BTreeMap<&'static str, Result<Classifier, String>>,
}

impl Classifiers {
    /// The program for a hook of a device.
    pub(super) fn get(&self, hook: TcHook, link_type: &LinkType) -> Result<&Classifier, TcError> {
        let program = hook.program(link_type);
        match self.by_name.get(program) {
            Some(Ok(classifier)) => Ok(classifier),
            Some(Err(said)) => Err(TcError::Refused { program, said: said.clone() }),
            None => Err(TcError::NotLoaded { hook: hook.name() }),
        }
    }

    /// The programs that the kernel has taken.
    pub(crate) fn loaded(&self) -> Vec<&'static str> {
        self.by_name.iter().filter(|(_, loaded)| loaded.is_ok()).map(|(name, _)| *name).collect()
    }
}

#[cfg(test)]
impl Classifiers {
    /// `from_pod`, with the id 7, and `from_pod_bare`, which the kernel refuses.
    pub(crate) fn taken_and_refused() -> Self {
        let program = std::fs::File::open("/dev/null").unwrap().into();
        Self {
            by_name: BTreeMap::from([
                ("from_pod", Ok(Classifier { program, id: 7 })),
                ("from_pod_bare", Err("too large".to_owned())),
            ]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_the_kernel_refuses_is_missing_for_its_devices_alone() {
        let classifiers = Classifiers::taken_and_refused();
        assert_eq!(classifiers.loaded(), ["from_pod"]);
        let get = |hook, link_type| classifiers.get(hook, &link_type).map(|found| found.id);
        assert_eq!(get(TcHook::FromPod, LinkType::Ethernet).unwrap(), 7);
        let refused = get(TcHook::FromPod, LinkType::Bare).unwrap_err().to_string();
        assert!(refused.contains("from_pod_bare") && refused.contains("too large"), "{refused}");
        assert!(matches!(
            get(TcHook::ToPod, LinkType::Ethernet),
            Err(TcError::NotLoaded { hook: "to_pod" })
        ));
    }
}
