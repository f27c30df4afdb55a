//! The IP families of an import. A VIP of a family leads to the endpoints of the clusters that have the family.

use super::voice::{Voice, conflict};
use crate::clusterset::{Conflict, ConflictReason, IpFamily, Loss};

/// The families, and the voices that have one of them. The families are those of the oldest export, and after them each one that
/// the import has already (`living`) while anybody exports it: who comes later, or is linked later, takes no VIP away. An
/// export that lacks one of them is a conflict.
pub(super) fn choose<'a>(
    voices: &[Voice<'a>],
    living: &[IpFamily],
    conflicts: &mut Vec<Conflict>,
) -> (Vec<IpFamily>, Vec<Voice<'a>>) {
    let oldest = voices.first().map(|voice| distinct(voice.spec)).unwrap_or_default();
    let has = |voice: &Voice<'_>, family: &IpFamily| distinct(voice.spec).contains(family);
    let is_kept = |family: &&IpFamily| {
        !oldest.contains(family) && voices.iter().any(|voice| has(voice, family))
    };
    let kept: Vec<_> = living.iter().filter(is_kept).copied().collect();
    let families = [&*oldest, &*kept].concat();
    let lacks_one = |voice: &&Voice<'a>| !families.iter().all(|family| has(voice, family));
    let lacking = voices.iter().filter(lacks_one);
    let reason = ConflictReason::IPFamilyConflict;
    let told = conflict(voices, reason, lacking, shown(&families), |spec| shown(&distinct(spec)));
    let shares_one = |voice: &&Voice<'a>| families.iter().any(|family| has(voice, family));
    let losses = voices.iter().filter(|voice| !shares_one(voice)).filter_map(|voice| {
        let cause = format!("the service has {} there", shown(&distinct(voice.spec)));
        Some(Loss { cluster: voice.cluster?.clone(), endpoints: 0, port: None, cause })
    });
    conflicts.extend(told.map(|told| Conflict {
        decided_by: told.decided_by.filter(|_| kept.is_empty()),
        losses: losses.collect(),
        ..told
    }));
    let sharing = voices.iter().filter(shares_one).copied().collect();
    (families, sharing)
}

fn shown(families: &[IpFamily]) -> String {
    families.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The families of a spec, each once. A Service always has one; IPv4 if a peer writes none.
fn distinct(spec: &crate::clusterset::ServiceSpec) -> Vec<IpFamily> {
    let mut families = Vec::new();
    for family in &spec.ip_families {
        if !families.contains(family) {
            families.push(*family);
        }
    }
    if families.is_empty() { vec![IpFamily::V4] } else { families }
}
