//! The cost of a write: one token, and more for a large one. The bytes are an estimate, never far below the JSON.

use mcs_kube::Tiers;

use crate::{
    clusterset::{Condition, Import, ImportedSlice, ServicePort},
    mailbox::MailboxWrite,
    plan::Write,
};

/// A slice of 100 endpoints with all texts is smaller.
const TOKEN_BYTES: usize = 32 * 1024;
/// The parts of an object that are not counted.
const OBJECT: usize = 600;
/// A port, a condition or an endpoint without its texts.
const PART: usize = 120;

/// The tokens for this many bytes.
#[expect(clippy::cast_precision_loss, reason = "an object has a few megabytes")]
pub(super) fn tokens(bytes: usize) -> f64 {
    (bytes as f64 / TOKEN_BYTES as f64).max(1.0)
}

/// Of the copy of a slice.
pub(super) fn of_slice(slice: &ImportedSlice) -> f64 {
    let text = |text: &Option<_>| text.as_ref().map_or(0, |text: &std::sync::Arc<str>| text.len());
    let endpoints = slice
        .endpoints
        .iter()
        .map(|one| PART + text(&one.hostname) + text(&one.node) + text(&one.zone) * 2);
    let ports = slice.ports.iter().map(|port| PART + port.name.len() + text(&port.app_protocol));
    tokens(OBJECT + endpoints.chain(ports).sum::<usize>())
}

fn of_tiers(tiers: Option<&Tiers>) -> usize {
    tiers.into_iter().flat_map(|tiers| &tiers.0).map(|tier| (1 + tier.clusters.len()) * PART).sum()
}

/// The bytes of a write that belongs to the import of a service; `None` for slices and deletions.
pub(super) fn of_import(write: &Write) -> Option<usize> {
    let ports = |ports: &[ServicePort]| ports.iter().map(|port| PART + port.name.len()).sum();
    let messages = |conditions: &[Condition]| -> usize {
        conditions.iter().map(|one| PART + one.message.len()).sum()
    };
    Some(
        OBJECT
            + match write {
                Write::ApplyImport(Import { spec, tiers, .. }) => {
                    let pairs = spec.labels.iter().chain(&spec.annotations);
                    let pairs: usize = pairs.map(|(key, value)| key.len() + value.len()).sum();
                    let ports: usize = ports(&spec.ports);
                    pairs + ports + of_tiers(tiers.as_ref())
                }
                Write::SetImportStatus(_, status) => {
                    let tiers = of_tiers(status.tiers.as_ref());
                    status.clusters.len() * PART + messages(&status.conditions) + tiers
                }
                Write::SetExportConditions(_, conditions) => messages(conditions),
                Write::SetAccepted(_, condition) => PART + condition.message.len(),
                Write::ApplyDerivedService(_, derived) => ports(derived),
                Write::CreateExport(_) | Write::CreateNamespace(_) => 0,
                Write::ApplySlice(_)
                | Write::RestrictSlice(..)
                | Write::DeleteExport(_)
                | Write::DeleteImport(_)
                | Write::DeleteDerivedService(_)
                | Write::DeleteSlice(..) => return None,
            },
    )
}

/// Of a write to the mailbox. Deletions cost nothing.
pub(super) fn of_publication(write: &MailboxWrite) -> Option<f64> {
    match write {
        MailboxWrite::ApplySlice(_, slice) => Some(tokens(slice.weight())),
        MailboxWrite::ApplyService(exported) => Some(tokens(exported.weight())),
        MailboxWrite::WithdrawService(_)
        | MailboxWrite::DeleteService(_)
        | MailboxWrite::DeleteSlice(..) => None,
    }
}
