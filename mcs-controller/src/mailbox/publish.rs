//! Decides which writes make a mailbox hold what this cluster exports of one service.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    clusterset::{Export, ServiceName, SourceSlice},
    objects::Exported,
};

use super::MailboxView;

/// The content of the mailbox for one service.
#[derive(Clone, PartialEq, Debug)]
pub struct Outgoing {
    /// The export.
    pub export: Export,
    /// The slices of its Service, by their names.
    pub slices: BTreeMap<Arc<str>, Arc<SourceSlice>>,
}

/// One write to a mailbox.
#[derive(Clone, PartialEq, Debug)]
pub enum MailboxWrite {
    /// Creates or replaces the copy of a slice.
    ApplySlice(ServiceName, Arc<SourceSlice>),
    /// Creates or replaces an ExportedService.
    ApplyService(Box<Exported>),
    /// Says that an ExportedService is about to be deleted.
    WithdrawService(Box<Exported>),
    /// Deletes an ExportedService.
    DeleteService(ServiceName),
    /// Deletes the copy of the slice with this name.
    DeleteSlice(ServiceName, Arc<str>),
}

/// The writes for one service, by a publisher of this epoch. A reader that sees only the first writes loses nothing: new
/// slices precede the ExportedService that names them, and the slices that it no longer names are deleted after it. A slice
/// of another family is deleted first, to free its name. A service is withdrawn before its deletion: its absence does not
/// show who deleted it.
pub fn plan_publication(
    name: &ServiceName,
    wanted: Option<&Outgoing>,
    mailbox: &MailboxView,
    epoch: u64,
) -> Vec<MailboxWrite> {
    let none = BTreeMap::new();
    let seen = mailbox.seen_slices(name).unwrap_or(&none);
    let slices = wanted.map_or(&none, |wanted| &wanted.slices);
    let is_written = |slice: &Arc<str>, content: &SourceSlice| {
        seen.get(slice).is_some_and(|copy| copy.stamp.epoch == epoch && content.is_copied_by(copy))
    };
    let mut writes: Vec<_> = slices
        .iter()
        .filter(|(slice, content)| !is_written(slice, content))
        .flat_map(|(slice, content)| {
            // Nobody can change the family of a slice.
            let former = seen.get(slice).filter(|copy| copy.family != content.family);
            let former = former.map(|_| MailboxWrite::DeleteSlice(name.clone(), Arc::clone(slice)));
            former.into_iter().chain([MailboxWrite::ApplySlice(name.clone(), Arc::clone(content))])
        })
        .collect();
    writes.extend(service_writes(name, wanted, mailbox, epoch));
    let gone = seen.keys().filter(|slice| !slices.contains_key(*slice));
    writes.extend(gone.map(|slice| MailboxWrite::DeleteSlice(name.clone(), Arc::clone(slice))));
    writes
}

fn service_writes(
    name: &ServiceName,
    wanted: Option<&Outgoing>,
    mailbox: &MailboxView,
    epoch: u64,
) -> Vec<MailboxWrite> {
    let seen = mailbox.seen().get(name);
    let Some(wanted) = wanted else {
        let withdraw = seen.filter(|seen| seen.is_usable());
        let withdraw =
            withdraw.map(|seen| MailboxWrite::WithdrawService(seen.exported.clone().into()));
        let is_there = seen.is_some() || mailbox.unread().contains_key(name);
        let delete = is_there.then(|| MailboxWrite::DeleteService(name.clone()));
        return withdraw.into_iter().chain(delete).collect();
    };
    let exported =
        Exported { export: wanted.export.clone(), slices: wanted.slices.keys().cloned().collect() };
    let is_written = seen.is_some_and(|seen| {
        seen.stamp.epoch == epoch && seen.is_usable() && seen.exported == exported
    });
    if is_written { vec![] } else { vec![MailboxWrite::ApplyService(exported.into())] }
}

/// Why this version must not replace the ExportedService of a service: a later version has restricted who imports it, and
/// this version would lift the restriction.
pub fn unknown_demands(name: &ServiceName, mailbox: &MailboxView) -> Option<String> {
    let demands = &mailbox.seen().get(name)?.unknown_demands;
    (!demands.is_empty()).then(|| {
        format!(
            "a later version of the controller has published it with {}, which this version does not know. Delete the \
             ExportedService to publish it without",
            demands.join(", ")
        )
    })
}
