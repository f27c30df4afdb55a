//! The union of the ports of all exports.

use std::collections::{BTreeMap, BTreeSet};

use mcs_kube::reasons::Reason;

use super::{
    Contribution,
    input::{Input, conflict},
};
use crate::core::clusterset::{ClusterId, Conflict, Loss, ServicePort};

/// The ports of the import, and the ports that each cluster contributes. If two different ports share a name, or protocol
/// and number, the older export's port counts, and the other cluster does not contribute to it: imports name no target
/// ports, so a client could not distinguish the two.
pub(super) fn unite(
    inputs: &[Input<'_>],
    conflicts: &mut Vec<Conflict>,
) -> (Vec<ServicePort>, BTreeMap<ClusterId, Contribution>) {
    let mut united: Vec<ServicePort> = Vec::new();
    let mut contributions = BTreeMap::new();
    let mut losses = Vec::new();
    for input in inputs {
        let mut contribution = Contribution::default();
        let mut lost = Vec::new();
        for port in &input.spec.ports {
            match united.iter().find(|other| is_rival(other, port)) {
                None => united.push(port.clone()),
                Some(other) if is_same(other, port) => {}
                Some(other) => {
                    lost.push((other.label(), difference(other, port)));
                    continue;
                }
            }
            contribution.ports.insert(port.name.clone());
        }
        if let Some(cluster) = input.cluster {
            losses.extend(losses_of(cluster, lost, contribution.ports.is_empty()));
            contributions.insert(cluster.clone(), contribution);
        }
    }
    let conflict = port_conflict(inputs, &united);
    conflicts.extend(conflict.map(|conflict| Conflict { losses, ..conflict }));
    (united, contributions)
}

/// The endpoints of a cluster that clients do not reach because it lost these ports. `is_all`: it has no other port.
fn losses_of(cluster: &ClusterId, lost: Vec<(String, String)>, is_all: bool) -> Vec<Loss> {
    let told = |port, cause| Loss { cluster: cluster.clone(), endpoints: 0, port, cause };
    if is_all && !lost.is_empty() {
        let causes: Vec<_> = lost.into_iter().map(|(_, cause)| cause).collect();
        return vec![told(None, causes.join(", "))];
    }
    lost.into_iter().map(|(port, cause)| told(Some(port), cause)).collect()
}

/// How the port of a cluster differs from the port that it lost to.
fn difference(port: &ServicePort, there: &ServicePort) -> String {
    let port_label = port.label();
    if port.name == there.name {
        format!("port {port_label} is {}/{} there", there.port, there.protocol)
    } else if there.name.is_empty() {
        format!("port {port_label} has no name there")
    } else {
        format!("port {port_label} is named {} there", there.name)
    }
}

/// The conflict of clusters whose ports differ from the oldest export's. A record has the ports of several clusters, so
/// only a port that the record lacks conflicts with it.
fn port_conflict(inputs: &[Input<'_>], united: &[ServicePort]) -> Option<Conflict> {
    let oldest = inputs.first()?;
    let expected: BTreeSet<_> = oldest.spec.ports.iter().collect();
    let disagrees = |input: &&Input<'_>| {
        let ports: BTreeSet<_> = input.spec.ports.iter().collect();
        if oldest.cluster.is_some() { ports != expected } else { !ports.is_subset(&expected) }
    };
    let disagree = inputs.iter().filter(disagrees);
    conflict(inputs, Reason::PortConflict, disagree, shown(united), |spec| shown(&spec.ports))
}

fn shown(ports: &[ServicePort]) -> String {
    let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
    if ports.is_empty() { "none".to_owned() } else { ports.join(", ") }
}

fn is_rival(one: &ServicePort, other: &ServicePort) -> bool {
    one.name == other.name || (one.protocol, one.port) == (other.protocol, other.port)
}

fn is_same(one: &ServicePort, other: &ServicePort) -> bool {
    one.name == other.name && (one.protocol, one.port) == (other.protocol, other.port)
}
