//! The contenders: direct, mcs-agent and kube-proxy in their modes.

use std::env;

use crate::prelude::*;

/// The variable that names another mcs-agent.
const AGENT_BEFORE: &str = "MCS_AGENT_BEFORE";
/// The variable that names a newer kube-proxy than that of the API server's version.
const NEWEST_KUBE_PROXY: &str = "MCS_NEWEST_KUBE_PROXY";

/// A way for clients to reach the pods of a service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Contender {
    /// The address of the pod itself, on a node without translation.
    Direct,
    /// The same, with a program that does nothing at every hook of mcs-agent: the least that any programs there cost.
    Empty,
    /// mcs-agent with default flags: sockets are translated, packets are looked up.
    Sockets,
    /// mcs-agent without socket programs.
    Packets,
    /// Another mcs-agent, with default flags.
    SocketsBefore,
    /// Another mcs-agent, without socket programs.
    PacketsBefore,
    /// kube-proxy, nftables mode.
    Nftables,
    /// The newest kube-proxy, nftables mode.
    NftablesNewest,
    /// kube-proxy, iptables mode.
    Iptables,
    /// Cilium's socket programs, without its agent.
    Cilium,
}

impl Contender {
    pub(crate) const ALL: [Self; 10] = [
        Self::Direct,
        Self::Empty,
        Self::Sockets,
        Self::Packets,
        Self::SocketsBefore,
        Self::PacketsBefore,
        Self::Nftables,
        Self::NftablesNewest,
        Self::Iptables,
        Self::Cilium,
    ];
    /// Those that are measured for traffic on connections that are there.
    pub(crate) const MOST: [Self; 7] = [
        Self::Direct,
        Self::Empty,
        Self::Sockets,
        Self::Packets,
        Self::SocketsBefore,
        Self::PacketsBefore,
        Self::Nftables,
    ];
    /// Those whose programs and rules meet traffic without a VIP too.
    pub(crate) const TAXING: [Self; 8] = [
        Self::Direct,
        Self::Empty,
        Self::Sockets,
        Self::Packets,
        Self::SocketsBefore,
        Self::PacketsBefore,
        Self::Nftables,
        Self::Cilium,
    ];
    /// Those with programs of mcs-agent's hooks, and the one without any.
    pub(crate) const OURS: [Self; 6] = [
        Self::Direct,
        Self::Empty,
        Self::Sockets,
        Self::Packets,
        Self::SocketsBefore,
        Self::PacketsBefore,
    ];
    /// Those that are waited for while objects change.
    pub(crate) const FOLLOWING: [Self; 6] = [
        Self::Sockets,
        Self::Packets,
        Self::SocketsBefore,
        Self::PacketsBefore,
        Self::Nftables,
        Self::NftablesNewest,
    ];

    /// How long its daemon does nothing after it has done something, whatever comes: a change that comes
    /// meanwhile would be measured with the rest of that. kube-proxy rests for `minSyncPeriod`.
    /// The agent writes the maps at most once in `--min-sync-period`, of 25 ms.
    pub(crate) const fn rests(self) -> Duration {
        match self {
            Self::Direct | Self::Empty | Self::Cilium => Duration::ZERO,
            Self::Sockets | Self::Packets | Self::SocketsBefore | Self::PacketsBefore => {
                Duration::from_millis(50)
            }
            Self::Nftables | Self::NftablesNewest | Self::Iptables => Duration::from_millis(1200),
        }
    }

    /// Whether it takes part: another mcs-agent and the newest kube-proxy do if the environment names them.
    pub(crate) fn is_there(self) -> bool {
        match self {
            Self::SocketsBefore | Self::PacketsBefore => Self::agent_before().is_some(),
            Self::NftablesNewest => Self::newest_kube_proxy().is_some(),
            _ => true,
        }
    }

    /// The newest kube-proxy.
    pub(crate) fn newest_kube_proxy() -> Option<PathBuf> {
        env::var_os(NEWEST_KUBE_PROXY).map(PathBuf::from)
    }

    /// Another mcs-agent, to compare with.
    pub(crate) fn agent_before() -> Option<PathBuf> {
        env::var_os(AGENT_BEFORE).map(PathBuf::from)
    }

    /// Whether a client goes to the pods by their own addresses.
    pub(crate) const fn is_direct(self) -> bool {
        matches!(self, Self::Direct | Self::Empty)
    }

    /// Whether a daemon of the contender follows the API server.
    pub(crate) const fn has_daemon(self) -> bool {
        !self.is_direct() && !matches!(self, Self::Cilium)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Empty => "empty",
            Self::Sockets => "sockets",
            Self::Packets => "packets",
            Self::SocketsBefore => "sockets-before",
            Self::PacketsBefore => "packets-before",
            Self::Nftables => "nftables",
            Self::NftablesNewest => "nftables-newest",
            Self::Iptables => "iptables",
            Self::Cilium => "cilium",
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
