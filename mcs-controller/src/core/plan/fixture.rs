//! The API server of the tests of plans.

use super::*;
use crate::core::clusterset::{Actual, ActualImport, Addresses};

/// What the API server does with a write.
pub(super) fn apply(actual: &mut Actual, write: Write) {
    match write {
        Write::ApplySlice(slice) => {
            let now = slice.actual();
            actual.slices.insert(slice.name, now);
        }
        Write::RestrictSlice(_, _, slice, rules) => {
            let slice = actual.slices.get_mut(&slice).expect("a slice that is there");
            let stay = slice.addresses.all().filter(|address| rules.rejection(*address).is_none());
            slice.addresses = Addresses::of(stay);
            slice.fingerprint += 1;
        }
        Write::ApplyImport(import) => {
            let status = actual.import.take().map(|now| now.status).unwrap_or_default();
            actual.import =
                Some(ActualImport { owner: Owner::Us, import, status, is_record: false });
        }
        Write::SetImportStatus(_, status) => {
            actual.import.as_mut().expect("a status belongs to an import").status = status;
        }
        Write::SetExportConditions(_, conditions) => actual.export_conditions = Some(conditions),
        Write::SetAccepted(_, condition) => {
            let status = &mut actual.import.as_mut().expect("an import of another").status;
            status.conditions.retain(|one| one.condition_type != condition.condition_type);
            status.conditions.push(condition);
        }
        Write::ApplyDerivedService(_, ports) => {
            actual.derived = Some(ActualDerived {
                owner: Owner::Us,
                ports,
                is_ours_alone: true,
                uid: "".into(),
            });
        }
        Write::DeleteDerivedService(_) => {
            assert!(actual.derived.take().is_some_and(|one| one.is_ours()), "a Service of ours");
        }
        Write::CreateExport(_) | Write::DeleteExport(_) | Write::CreateNamespace(_) => {
            unreachable!("no rules, and the namespace is there")
        }
        Write::DeleteImport(_) => {
            assert!(actual.import.take().is_some(), "an import that is there");
        }
        Write::DeleteSlice(_, _, slice) => {
            assert!(actual.slices.remove(&slice).is_some(), "a slice that is there");
        }
    }
}
