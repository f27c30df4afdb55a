//! The CNIs, and who comes first.

use crate::prelude::*;

/// A CNI as it is set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Setting {
    pub(crate) cni: Cni,
    /// What the table calls it.
    name: &'static str,
    /// Options of its daemon, where it has one. A change of them takes no other cluster.
    options: &'static [(&'static str, &'static str)],
    /// Whether it has kube-proxy's place.
    pub(crate) replaces_proxy: bool,
    /// What becomes of packets that no socket hook has translated.
    pub(crate) packets: Packets,
}

/// What becomes of packets of pods to a ClusterSetIP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packets {
    /// The agent has programs on the devices of pods.
    Translated,
    /// It has none there, so the uplink drops them.
    Dropped,
}

/// Whether the agents of the nodes are there before the CNI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    AgentFirst,
    CniFirst,
}

const KUBE_PROXY_STAYS: (&str, &str) = ("kube-proxy-replacement", "false");
const NO_KUBE_PROXY: (&str, &str) = ("kube-proxy-replacement", "true");
const TCX: (&str, &str) = ("enable-tcx", "true");
const LEGACY: (&str, &str) = ("enable-tcx", "false");

/// Cilium, which has programs on the devices of pods, so that the agent leaves those alone.
const fn cilium(
    name: &'static str,
    replaces_proxy: bool,
    options: &'static [(&'static str, &'static str)],
) -> Setting {
    Setting { cni: Cni::Cilium, name, options, replaces_proxy, packets: Packets::Dropped }
}

/// In the order of the table.
pub(crate) const SETTINGS: [Setting; 6] = [
    Setting {
        cni: Cni::BridgeMasq,
        name: "bridge-masq",
        options: &[],
        replaces_proxy: false,
        packets: Packets::Translated,
    },
    Setting {
        cni: Cni::Macvlan,
        name: "macvlan",
        options: &[],
        replaces_proxy: false,
        packets: Packets::Dropped,
    },
    cilium("cilium beside kube-proxy, tcx", false, &[KUBE_PROXY_STAYS, TCX]),
    cilium("cilium beside kube-proxy, legacy", false, &[KUBE_PROXY_STAYS, LEGACY]),
    cilium("cilium for kube-proxy, tcx", true, &[NO_KUBE_PROXY, TCX]),
    cilium("cilium for kube-proxy, legacy", true, &[NO_KUBE_PROXY, LEGACY]),
];

impl Setting {
    /// Sets the options of the node's daemon, which a start of it reads.
    pub(crate) fn apply(self, node: Node) -> Result {
        self.options.iter().try_for_each(|(option, value)| node.set_cilium(option, value))
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for Packets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Translated => "all answered",
            Self::Dropped => "dropped at the uplink, and counted",
        })
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AgentFirst => "the agent first",
            Self::CniFirst => "the CNI first",
        })
    }
}
