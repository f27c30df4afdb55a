//! The IP families of an import. A VIP of a family leads to the endpoints of the clusters that have the family.

use mcs_kube::reasons::Reason;

use super::input::{Input, conflict};
use crate::core::clusterset::{Conflict, IpFamily, Loss};

/// The families of the import, and the inputs with one of these families. The families are those of the oldest export, then
/// each present family of the import (`living`) that an export still has: a new export or link removes no VIP. An export
/// that lacks one of the families is a conflict.
pub(super) fn choose<'a>(
    inputs: &[Input<'a>],
    living: &[IpFamily],
    conflicts: &mut Vec<Conflict>,
) -> (Vec<IpFamily>, Vec<Input<'a>>) {
    let oldest = inputs.first().map(|input| distinct(input.spec)).unwrap_or_default();
    let has = |input: &Input<'_>, family: &IpFamily| distinct(input.spec).contains(family);
    let is_kept = |family: &&IpFamily| {
        !oldest.contains(family) && inputs.iter().any(|input| has(input, family))
    };
    let kept: Vec<_> = living.iter().filter(is_kept).copied().collect();
    let families = [&*oldest, &*kept].concat();
    let lacks_one = |input: &&Input<'a>| !families.iter().all(|family| has(input, family));
    let lacking = inputs.iter().filter(lacks_one);
    let reason = Reason::IPFamilyConflict;
    let told = conflict(inputs, reason, lacking, shown(&families), |spec| shown(&distinct(spec)));
    let shares_one = |input: &&Input<'a>| families.iter().any(|family| has(input, family));
    let losses = inputs.iter().filter(|input| !shares_one(input)).filter_map(|input| {
        let cause = format!("the service has {} there", shown(&distinct(input.spec)));
        Some(Loss { cluster: input.cluster?.clone(), endpoints: 0, port: None, cause })
    });
    conflicts.extend(told.map(|told| Conflict {
        decided_by: told.decided_by.filter(|_| kept.is_empty()),
        losses: losses.collect(),
        ..told
    }));
    let sharing = inputs.iter().filter(shares_one).copied().collect();
    (families, sharing)
}

fn shown(families: &[IpFamily]) -> String {
    families.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The families of a spec, each once. A Service always has one; IPv4 if a peer writes none.
fn distinct(spec: &crate::core::clusterset::ServiceSpec) -> Vec<IpFamily> {
    let mut families = Vec::new();
    for family in &spec.ip_families {
        if !families.contains(family) {
            families.push(*family);
        }
    }
    if families.is_empty() { vec![IpFamily::V4] } else { families }
}
