//! The inputs of a merge in order of precedence, and their conflicts.

use std::collections::BTreeMap;

use mcs_kube::reasons::Reason;

use crate::core::clusterset::{ClusterId, Conflict, Export, ServiceSpec};

/// An export, or the record that stands for unreadable exports.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    /// Absent for the record.
    pub(super) cluster: Option<&'a ClusterId>,
    pub(super) spec: &'a ServiceSpec,
}

/// The record and the exports of Services, the oldest first.
pub(super) fn inputs<'a>(
    exports: impl IntoIterator<Item = &'a Export>,
    record: Option<&'a ServiceSpec>,
) -> Vec<Input<'a>> {
    let mut exports: Vec<_> = exports.into_iter().collect();
    exports.sort_by_key(|export| export.precedence());
    let record = record.map(|spec| Input { cluster: None, spec });
    let of_export = |export: &'a Export| {
        export.spec().map(|spec| Input { cluster: Some(&export.cluster), spec })
    };
    record.into_iter().chain(exports.into_iter().filter_map(of_export)).collect()
}

/// The conflict about a property, if not every input has the first one's value.
pub(super) fn disagreement<'a, T: PartialEq>(
    inputs: &[Input<'a>],
    reason: Reason,
    property: impl Fn(&'a ServiceSpec) -> T,
    show: impl Fn(&T) -> String,
) -> Option<Conflict> {
    let value = property(inputs.first()?.spec);
    let disagree = inputs.iter().filter(|input| property(input.spec) != value);
    conflict(inputs, reason, disagree, show(&value), |spec| show(&property(spec)))
}

/// The conflict that the inputs `disagree` cause, if there are any. `value` counts, and `show` displays the value of
/// another input.
pub(super) fn conflict<'a: 'b, 'b>(
    inputs: &[Input<'a>],
    reason: Reason,
    disagree: impl Iterator<Item = &'b Input<'a>>,
    value: String,
    show: impl Fn(&'a ServiceSpec) -> String,
) -> Option<Conflict> {
    let disagree = disagree.filter_map(|input| Some((input.cluster?.clone(), show(input.spec))));
    let disagree: BTreeMap<_, _> = disagree.collect();
    if disagree.is_empty() {
        return None;
    }
    Some(Conflict {
        reason,
        decided_by: inputs.first()?.cluster.cloned(),
        value,
        disagree,
        clusters: inputs.iter().filter(|input| input.cluster.is_some()).count(),
        losses: vec![],
    })
}
