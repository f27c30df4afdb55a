//! The union of the ports of all exports.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Contribution,
    voice::{Voice, conflict},
};
use crate::clusterset::{ClusterId, Conflict, ConflictReason, ServicePort};

/// The ports of the import, and those that each cluster contributes. Of two different ports with one name, or
/// with one protocol and number, the older export's counts. The other cluster contributes nothing to it:
/// the imports name no target ports, so a client could not tell the two apart.
pub(super) fn unite(
    voices: &[Voice<'_>],
    conflicts: &mut Vec<Conflict>,
) -> (Vec<ServicePort>, BTreeMap<ClusterId, Contribution>) {
    let mut united: Vec<ServicePort> = Vec::new();
    let mut contributions = BTreeMap::new();
    for voice in voices {
        let mut contribution = Contribution::default();
        for port in &voice.spec.ports {
            match united.iter().find(|other| is_rival(other, port)) {
                None => united.push(port.clone()),
                Some(other) if is_same(other, port) => {}
                Some(_) => continue,
            }
            contribution.ports.insert(port.name.clone());
        }
        if let Some(cluster) = voice.cluster {
            contributions.insert(cluster.clone(), contribution);
        }
    }
    conflicts.extend(port_conflict(voices, &united));
    (united, contributions)
}

/// The clusters whose ports are not those of the oldest export. A record has the ports of several clusters,
/// so of a cluster beside it only ports that it lacks are a conflict.
fn port_conflict(voices: &[Voice<'_>], united: &[ServicePort]) -> Option<Conflict> {
    let oldest = voices.first()?;
    let expected: BTreeSet<_> = oldest.spec.ports.iter().collect();
    let disagrees = |voice: &&Voice<'_>| {
        let ports: BTreeSet<_> = voice.spec.ports.iter().collect();
        if oldest.cluster.is_some() { ports != expected } else { !ports.is_subset(&expected) }
    };
    let shown = || united.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    conflict(voices, ConflictReason::PortConflict, voices.iter().filter(disagrees), shown)
}

fn is_rival(one: &ServicePort, other: &ServicePort) -> bool {
    one.name == other.name || (one.protocol, one.port) == (other.protocol, other.port)
}

fn is_same(one: &ServicePort, other: &ServicePort) -> bool {
    one.name == other.name && (one.protocol, one.port) == (other.protocol, other.port)
}
