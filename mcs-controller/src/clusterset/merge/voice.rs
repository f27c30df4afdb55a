//! Who has a say in a merge, in order of precedence.

use std::collections::BTreeMap;

use crate::clusterset::{ClusterId, Conflict, ConflictReason, Export, ServiceSpec};

/// An export, or the record that stands for exports which cannot be read.
#[derive(Clone, Copy)]
pub(super) struct Voice<'a> {
    /// Absent for the record.
    pub(super) cluster: Option<&'a ClusterId>,
    pub(super) spec: &'a ServiceSpec,
}

/// The record and the exports of Services, the oldest first.
pub(super) fn voices<'a>(
    exports: impl IntoIterator<Item = &'a Export>,
    record: Option<&'a ServiceSpec>,
) -> Vec<Voice<'a>> {
    let mut exports: Vec<_> = exports.into_iter().collect();
    exports.sort_by_key(|export| export.precedence());
    let record = record.map(|spec| Voice { cluster: None, spec });
    let of_export = |export: &'a Export| {
        export.spec().map(|spec| Voice { cluster: Some(&export.cluster), spec })
    };
    record.into_iter().chain(exports.into_iter().filter_map(of_export)).collect()
}

/// The conflict about a property, if not every voice has the first one's value.
pub(super) fn disagreement<'a, T: PartialEq>(
    voices: &[Voice<'a>],
    reason: ConflictReason,
    property: impl Fn(&'a ServiceSpec) -> T,
    show: impl Fn(&T) -> String,
) -> Option<Conflict> {
    let value = property(voices.first()?.spec);
    let disagree = voices.iter().filter(|voice| property(voice.spec) != value);
    conflict(voices, reason, disagree, show(&value), |spec| show(&property(spec)))
}

/// The conflict that these voices cause, if there are any. `value` counts, and `show` tells what a voice has instead.
pub(super) fn conflict<'a: 'b, 'b>(
    voices: &[Voice<'a>],
    reason: ConflictReason,
    disagree: impl Iterator<Item = &'b Voice<'a>>,
    value: String,
    show: impl Fn(&'a ServiceSpec) -> String,
) -> Option<Conflict> {
    let disagree = disagree.filter_map(|voice| Some((voice.cluster?.clone(), show(voice.spec))));
    let disagree: BTreeMap<_, _> = disagree.collect();
    if disagree.is_empty() {
        return None;
    }
    Some(Conflict {
        reason,
        decided_by: voices.first()?.cluster.cloned(),
        value,
        disagree,
        clusters: voices.iter().filter(|voice| voice.cluster.is_some()).count(),
        losses: vec![],
    })
}
