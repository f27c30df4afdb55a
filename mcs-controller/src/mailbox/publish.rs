//! Decides which writes make a mailbox hold what this cluster exports of one service.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    clusterset::{Export, ServiceName, SourceSlice},
    objects::Exported,
};

use super::MailboxView;

/// What of one service is to be in the mailbox.
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
    /// Deletes an ExportedService.
    DeleteService(ServiceName),
    /// Deletes the copy of the slice with this name.
    DeleteSlice(ServiceName, Arc<str>),
}

/// The writes for one service. A reader that sees a part of them misses nothing that it had: new slices come before the
/// ExportedService that names them, and those that it names no longer go after it. A slice of another family makes room
/// first.
pub fn plan_publication(
    name: &ServiceName,
    wanted: Option<&Outgoing>,
    mailbox: &MailboxView,
) -> Vec<MailboxWrite> {
    let none = BTreeMap::new();
    let seen = mailbox.seen_slices(name).unwrap_or(&none);
    let slices = wanted.map_or(&none, |wanted| &wanted.slices);
    let mut writes: Vec<_> = slices
        .iter()
        .filter(|(slice, content)| !seen.get(*slice).is_some_and(|copy| content.is_copied_by(copy)))
        .flat_map(|(slice, content)| {
            // Nobody can change the family of a slice.
            let former = seen.get(slice).filter(|copy| copy.family != content.family);
            let former = former.map(|_| MailboxWrite::DeleteSlice(name.clone(), Arc::clone(slice)));
            former.into_iter().chain([MailboxWrite::ApplySlice(name.clone(), Arc::clone(content))])
        })
        .collect();
    let exported = wanted.map(|wanted| Exported {
        export: wanted.export.clone(),
        slices: wanted.slices.keys().cloned().collect(),
    });
    match (exported, mailbox.seen().get(name)) {
        (Some(exported), seen) if seen != Some(&exported) => {
            writes.push(MailboxWrite::ApplyService(Box::new(exported)));
        }
        (None, Some(_)) => writes.push(MailboxWrite::DeleteService(name.clone())),
        _ => {}
    }
    let gone = seen.keys().filter(|slice| !slices.contains_key(*slice));
    writes.extend(gone.map(|slice| MailboxWrite::DeleteSlice(name.clone(), Arc::clone(slice))));
    writes
}
