//! The IP families that every export has: a VIP of another family would lead to some of the endpoints only.

use super::voice::{Voice, conflict};
use crate::clusterset::{Conflict, ConflictReason, IpFamily};

/// The common families in the order of the oldest export, and the voices that share one. An export that shares
/// none with the older ones is left out, and is a conflict.
pub(super) fn intersect<'a>(
    voices: &[Voice<'a>],
    conflicts: &mut Vec<Conflict>,
) -> (Vec<IpFamily>, Vec<Voice<'a>>) {
    let mut families = voices.first().map(|voice| distinct(voice.spec)).unwrap_or_default();
    let mut left_out = Vec::new();
    let mut kept = Vec::new();
    for voice in voices {
        let theirs = distinct(voice.spec);
        let common: Vec<_> =
            families.iter().copied().filter(|family| theirs.contains(family)).collect();
        if common.is_empty() {
            left_out.push(*voice);
        } else {
            families = common;
            kept.push(*voice);
        }
    }
    let shown = || families.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    conflicts.extend(conflict(voices, ConflictReason::IPFamilyConflict, left_out.iter(), shown));
    (families, kept)
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
