//! Which devices get programs, and why others do not.

use std::{collections::BTreeMap, fmt};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::{Device, DeviceList, DevicePattern, DevicePatterns, LinkType, pattern::Decision};

/// `--tc`: on which devices packets are translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TcMode {
    /// Nowhere: no program is attached to a device
    Off,
    /// On devices where no other program can bypass them: not with netkit or eBPF programs of a CNI
    Auto,
    /// On all selected devices
    On,
}

/// `--uplinks`: the devices where packets to a VIP are dropped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Uplinks {
    /// None.
    None,
    /// The devices that the list chooses; without a list, those of the default routes.
    Chosen(DevicePatterns),
}

/// The flags about devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceOptions {
    /// `--tc`.
    pub mode: TcMode,
    /// `--tc-devices`.
    pub pods: DevicePatterns,
    /// `--uplinks`.
    pub uplinks: Uplinks,
}

impl DeviceOptions {
    /// Whether any device of a pod gets programs.
    pub fn wants_pods(&self) -> bool {
        self.mode != TcMode::Off
    }

    /// Whether any uplink gets a program.
    pub fn wants_uplinks(&self) -> bool {
        self.mode != TcMode::Off && self.uplinks != Uplinks::None
    }
}

/// Where a device leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// To a pod: the programs translate packets on it.
    Pod,
    /// Off the node: the program drops packets to a VIP that were not translated.
    Uplink,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pod => "pod",
            Self::Uplink => "uplink",
        })
    }
}

/// A device that a flag names, or that the agent chooses without one, and its role.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceChoice {
    /// The device.
    pub device: Device,
    /// Where it leads.
    pub role: Role,
    /// Why it gets no programs all the same.
    pub left_alone: Option<Reason>,
}

impl DeviceChoice {
    /// The problem of an uplink that gets no program although no flag excludes it.
    pub fn unguarded(&self) -> Option<String> {
        let reason = self.left_alone.as_ref()?;
        let unwanted = self.role == Role::Uplink && !matches!(reason, Reason::Excluded { .. });
        unwanted.then(|| {
            format!(
                "packets to VIPs may leave by it ({reason}): accept that with --uplinks=!{}",
                self.device.name
            )
        })
    }
}

/// Why a device gets no programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// A pattern excludes it.
    Excluded {
        /// The pattern.
        pattern: String,
    },
    /// Its packets begin with a header that the programs cannot read.
    LinkType {
        /// As `ip link show` names it.
        name: String,
    },
    /// The packets of a pod do not pass the host's side of such a device.
    NoHostSide {
        /// `macvlan` and so on.
        kind: String,
    },
    /// `--tc=auto`, and netkit has hooks of its own.
    Netkit,
    /// `--tc=auto`, and a program of others is on the device.
    Foreign {
        /// The program and its place.
        program: String,
    },
}

impl Reason {
    fn excluded(pattern: &DevicePattern) -> Self {
        Self::Excluded { pattern: pattern.to_string() }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Excluded { pattern } => write!(f, "excluded by {pattern}"),
            Self::LinkType { name } => write!(
                f,
                "link type {name}: only Ethernet and devices without a link header are understood"
            ),
            Self::NoHostSide { kind } => {
                write!(f, "{kind}: a pod's packets do not pass the host's side of it")
            }
            Self::Netkit => f.write_str(
                "netkit has hooks of its own, which may pass packets by ours (--tc=on if they do \
                 not)",
            ),
            Self::Foreign { program } => {
                write!(f, "{program} may pass packets by ours (--tc=on if it does not)")
            }
        }
    }
}

/// Decides about each device, in the order of the list, and leaves out those without a role. `foreign` names a program of
/// others for the index of the device that it is on.
pub fn select(
    list: &DeviceList,
    options: &DeviceOptions,
    foreign: &BTreeMap<u32, String>,
) -> Vec<DeviceChoice> {
    if options.mode == TcMode::Off {
        return Vec::new();
    }
    let select = |device: &Device| {
        let leads_away = list.default_routes.contains(&device.index);
        let uplink = uplink(device, options, leads_away);
        let pod = pod(device, options, leads_away, foreign);
        let (role, wanted) = match (uplink, pod) {
            // A device that is excluded as an uplink may be named as a pod's. Any other uplink is no pod's device: where a
            // node is a container, its own interface looks like a pod's.
            (None | Some(Err(Reason::Excluded { .. })), Some(pod)) => (Role::Pod, pod),
            (Some(uplink), _) => (Role::Uplink, uplink),
            (None, None) => return None,
        };
        Some(DeviceChoice { device: device.clone(), role, left_alone: wanted.err() })
    };
    list.devices.iter().filter_map(select).collect()
}

/// Whether the device has a role, and if so, why it gets no programs all the same.
type RoleDecision = Option<Result<(), Reason>>;

fn uplink(device: &Device, options: &DeviceOptions, leads_away: bool) -> RoleDecision {
    let Uplinks::Chosen(patterns) = &options.uplinks else { return None };
    match patterns.decide(device, leads_away) {
        Decision::Taken => Some(is_understood(device)),
        Decision::Excluded(pattern) if leads_away => Some(Err(Reason::excluded(pattern))),
        Decision::Excluded(_) | Decision::NotNamed => None,
    }
}

fn pod(
    device: &Device,
    options: &DeviceOptions,
    leads_away: bool,
    foreign: &BTreeMap<u32, String>,
) -> RoleDecision {
    let has_host_side = ["veth", "netkit"].contains(&device.kind.as_str());
    let usual = has_host_side && device.peer_elsewhere && !leads_away;
    match options.pods.decide(device, usual) {
        Decision::Taken => Some(
            is_passed(device)
                .and_then(|()| is_understood(device))
                .and_then(|()| is_ours_alone(device, options, foreign)),
        ),
        Decision::Excluded(pattern) if usual => Some(Err(Reason::excluded(pattern))),
        Decision::Excluded(_) | Decision::NotNamed => None,
    }
}

fn is_passed(device: &Device) -> Result<(), Reason> {
    match device.kind.as_str() {
        "ipvlan" | "ipvtap" | "macvlan" | "macvtap" => {
            Err(Reason::NoHostSide { kind: device.kind.clone() })
        }
        _ => Ok(()),
    }
}

fn is_understood(device: &Device) -> Result<(), Reason> {
    match &device.link_type {
        LinkType::Ethernet | LinkType::Bare => Ok(()),
        LinkType::Loopback => Err(Reason::LinkType { name: "loopback".to_owned() }),
        LinkType::Other(name) => Err(Reason::LinkType { name: name.clone() }),
    }
}

fn is_ours_alone(
    device: &Device,
    options: &DeviceOptions,
    foreign: &BTreeMap<u32, String>,
) -> Result<(), Reason> {
    if options.mode == TcMode::On {
        return Ok(());
    }
    if device.kind == "netkit" {
        return Err(Reason::Netkit);
    }
    match foreign.get(&device.index) {
        Some(program) => Err(Reason::Foreign { program: program.clone() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETH0: u32 = 2;

    /// A node in a container, with one of each sort of device.
    fn list_devices() -> DeviceList {
        let device = |index, name: &str, kind: &str, link_type, peer_elsewhere| Device {
            index,
            name: name.to_owned(),
            kind: kind.to_owned(),
            link_type,
            peer_elsewhere,
            peer: None,
        };
        let ethernet = LinkType::Ethernet;
        DeviceList {
            devices: vec![
                device(1, "lo", "", LinkType::Loopback, false),
                device(ETH0, "eth0", "veth", ethernet.clone(), true),
                device(3, "eth1", "", ethernet.clone(), false),
                device(4, "cali1", "veth", ethernet.clone(), true),
                device(5, "local", "veth", ethernet.clone(), false),
                device(6, "lxc1", "netkit", ethernet.clone(), true),
                device(7, "wg0", "wireguard", LinkType::Bare, false),
                device(8, "ppp0", "ppp", LinkType::Other("ppp".to_owned()), false),
                device(9, "macv", "macvlan", ethernet.clone(), true),
                device(10, "tap0", "tun", ethernet, false),
            ],
            default_routes: [ETH0].into(),
            has_hidden_default: false,
        }
    }

    fn options(tc: TcMode, pods: &str, uplinks: &str) -> DeviceOptions {
        let patterns = |words: &str| {
            let words = words.split(',').filter(|word| !word.is_empty());
            DevicePatterns(words.map(|word| word.parse().unwrap()).collect())
        };
        let uplinks = match uplinks {
            "none" => Uplinks::None,
            words => Uplinks::Chosen(patterns(words)),
        };
        DeviceOptions { mode: tc, pods: patterns(pods), uplinks }
    }

    fn summary(selected: &[DeviceChoice]) -> String {
        let lines = selected.iter().map(|one| {
            let role = match &one.left_alone {
                None => one.role.to_string(),
                Some(reason) => {
                    let reason = reason.to_string();
                    let word = reason.split([' ', ':']).next().unwrap();
                    format!("no {}, {word}", one.role)
                }
            };
            format!("{}: {role}", one.device.name)
        });
        lines.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn devices_are_chosen() {
        use TcMode::{Auto, Off, On};
        let cases = [
            (Off, "*", "*", ""),
            (Auto, "", "", "eth0: uplink; cali1: pod; lxc1: no pod, netkit"),
            (On, "", "", "eth0: uplink; cali1: pod; lxc1: pod"),
            (Auto, "", "none", "cali1: pod; lxc1: no pod, netkit"),
            (Auto, "eth0", "none", "eth0: pod"),
            (Auto, "eth0", "", "eth0: uplink"),
            (Auto, "eth0", "!eth0", "eth0: pod"),
            (Auto, "cali*", "!eth0", "eth0: no uplink, excluded; cali1: pod"),
            (Auto, "!cali*", "none", "cali1: no pod, excluded; lxc1: no pod, netkit"),
            (Auto, "kind=veth", "eth1", "eth0: pod; eth1: uplink; cali1: pod; local: pod"),
            (Auto, "kind=tun,wg*", "none", "wg0: pod; tap0: pod"),
            (
                On,
                "macv,ppp0,lo",
                "none",
                "lo: no pod, link; ppp0: no pod, link; macv: no pod, macvlan",
            ),
            (On, "none", "ppp0,wg0,macv", "wg0: uplink; ppp0: no uplink, link; macv: uplink"),
        ];
        for (mode, pods, uplinks, expected) in cases {
            let selected = select(&list_devices(), &options(mode, pods, uplinks), &BTreeMap::new());
            assert_eq!(summary(&selected), expected, "{mode:?} {pods:?} {uplinks:?}");
        }
    }

    #[test]
    fn an_uplink_that_cannot_be_guarded_is_told() {
        let told = |uplinks| {
            let selected =
                select(&list_devices(), &options(TcMode::Auto, "", uplinks), &BTreeMap::new());
            selected.iter().filter_map(DeviceChoice::unguarded).collect::<Vec<_>>()
        };
        let ppp = "packets to VIPs may leave by it (link type ppp: only Ethernet and devices \
                   without a link header are understood): accept that with --uplinks=!ppp0";
        assert_eq!(list_devices().hardware().map(|device| &*device.name), Some("eth1"));
        assert_eq!(told("eth0,ppp0"), [ppp]);
        assert!(told("").is_empty());
        assert!(told("!eth0").is_empty());
    }

    #[test]
    fn a_foreign_program_keeps_auto_away_from_pods_alone() {
        let foreign = BTreeMap::from([ETH0, 4].map(|index| (index, "its program".to_owned())));
        let selected = |mode| select(&list_devices(), &options(mode, "cali*", ""), &foreign);
        assert_eq!(summary(&selected(TcMode::On)), "eth0: uplink; cali1: pod");
        assert_eq!(summary(&selected(TcMode::Auto)), "eth0: uplink; cali1: no pod, its");
    }
}
