//! Reports and links of devices, for tests.

use super::{DeviceReport, TcReport};
use crate::core::kernel::{
    devices::{Role, TcMode},
    loader::{Mechanism, TcLink},
};

/// A device. It is left alone if there are no hooks. Program ids are ten times the index.
fn device(name: &str, index: u32, role: Role, hooks: &[&str]) -> DeviceReport {
    DeviceReport {
        name: name.to_owned(),
        index,
        kind: "veth".to_owned(),
        role,
        hooks: hooks.iter().map(|&hook| hook.to_owned()).collect(),
        attached_by: (!hooks.is_empty()).then_some(Mechanism::Tcx),
        programs: hooks.iter().map(|&hook| (hook.to_owned(), index * 10)).collect(),
        left_alone: hooks.is_empty().then(|| "excluded".to_owned()),
        ahead: None,
        beside: None,
        error: None,
    }
}

/// A pod's device, one that is left alone, and an uplink.
pub(crate) fn report() -> TcReport {
    TcReport {
        hidden_default_route: false,
        no_uplink: None,
        mode: TcMode::Auto,
        attach: Mechanism::Tcx,
        looked: true,
        problem: None,
        repairs: 0,
        devices: vec![
            device("cali1", 4, Role::Pod, &["to_pod", "from_pod"]),
            device("cali2", 5, Role::Pod, &[]),
            device("eth0", 2, Role::Uplink, &["uplink"]),
        ],
    }
}

/// The links of the devices in [`report`]: `to_pod`, `from_pod`, `uplink`.
pub(crate) fn links() -> Vec<TcLink> {
    let link =
        |device, hook| TcLink { hook, device, attached: true, link_id: 1, program_id: device * 10 };
    vec![link(4, "to_pod"), link(4, "from_pod"), link(2, "uplink")]
}
