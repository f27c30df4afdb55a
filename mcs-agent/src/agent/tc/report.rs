use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    devices::{Role, TcMode},
    loader::Mechanism,
};

/// How devices stand, as the agent saw it last.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TcReport {
    /// `--tc`.
    pub mode: TcMode,
    /// How programs are attached.
    pub attach: Mechanism,
    /// Whether devices have been looked at since the agent started.
    pub looked: bool,
    /// Why the latest look failed, if it did.
    pub problem: Option<String>,
    /// Every device that was asked for, or that one would expect to be.
    pub devices: Vec<DeviceReport>,
}

impl TcReport {
    pub(super) const fn new(mode: TcMode, attach: Mechanism) -> Self {
        Self { mode, attach, looked: false, problem: None, devices: Vec::new() }
    }
}

/// How one device stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Its name.
    pub name: String,
    /// Its interface index.
    pub index: u32,
    /// Its kind, as `ip link add type` names it; empty for hardware.
    pub kind: String,
    /// What it is for.
    pub role: Role,
    /// The programs that belong on it; none if it is left alone.
    pub hooks: Vec<String>,
    /// How they are attached; absent if none is.
    pub attached_by: Option<Mechanism>,
    /// The ids of those that are attached.
    pub programs: BTreeMap<String, u32>,
    /// Why it is left alone.
    pub left_alone: Option<String>,
    /// Why a program is not attached, or still is; tried again.
    pub error: Option<String>,
}

impl DeviceReport {
    /// `to_pod, from_pod`, or `-`.
    pub fn hooks(&self) -> String {
        if self.hooks.is_empty() { "-".to_owned() } else { self.hooks.join(", ") }
    }
}
