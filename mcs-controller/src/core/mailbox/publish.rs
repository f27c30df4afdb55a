//! Decides which writes make a mailbox hold what this cluster exports of one service.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use super::MailboxView;
use crate::core::{
    clusterset::{Export, ServiceName, SourceSlice},
    objects::Exported,
    plan::{Ending, Ordered, SliceOf},
};

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

/// An object of a service in a mailbox.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MailboxObject {
    /// The ExportedService.
    Service,
    /// The copy of the slice with this name.
    Slice(Arc<str>),
}

/// What the mailbox's API server has refused of a service. Readers get the rest, and the ExportedService names no slice that
/// is not there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Withheld {
    /// Each object, with the answer.
    pub refused: BTreeMap<MailboxObject, String>,
    /// Whether this version must not replace the ExportedService.
    pub is_of_later_version: bool,
}

impl Withheld {
    /// Nothing.
    pub const NONE: &'static Self = &Self { refused: BTreeMap::new(), is_of_later_version: false };

    /// What people are told of it.
    pub fn told(&self) -> Option<String> {
        let (object, words) = self.refused.first_key_value()?;
        let object = match object {
            MailboxObject::Service => "its ExportedService".to_owned(),
            MailboxObject::Slice(name) => format!("slice {name}"),
        };
        let more = match self.refused.len() {
            1 => String::new(),
            all => format!(" {} more objects are refused.", all - 1),
        };
        Some(format!("the mailbox's API server refuses {object}: {words}.{more}"))
    }

    fn has_slice(&self, name: &Arc<str>) -> bool {
        self.refused.contains_key(&MailboxObject::Slice(Arc::clone(name)))
    }

    fn has_service(&self) -> bool {
        self.is_of_later_version || self.refused.contains_key(&MailboxObject::Service)
    }
}

impl MailboxWrite {
    /// The object that it writes.
    pub fn object(&self) -> MailboxObject {
        match self {
            Self::ApplySlice(_, slice) => MailboxObject::Slice(Arc::clone(&slice.name)),
            Self::DeleteSlice(_, slice) => MailboxObject::Slice(Arc::clone(slice)),
            Self::ApplyService(_) | Self::WithdrawService(_) | Self::DeleteService(_) => {
                MailboxObject::Service
            }
        }
    }
}

impl Ordered for MailboxWrite {
    fn applied(&self) -> Option<SliceOf<'_>> {
        match self {
            Self::ApplySlice(_, slice) => Some((&slice.name, None)),
            _ => None,
        }
    }

    fn deleted(&self) -> Option<SliceOf<'_>> {
        match self {
            Self::DeleteSlice(_, slice) => Some((slice, None)),
            _ => None,
        }
    }

    fn is_right_without(&self, failed: &Self, ending: Ending, slices: &BTreeSet<Arc<str>>) -> bool {
        if !ending.is_refusal() {
            return false;
        }
        match (failed, self) {
            // It names slices that are there, and all of them: endpoints may move to the refused slice from one that it drops.
            (Self::ApplySlice(_, slice), Self::ApplyService(exported)) => {
                let is_named = |one: &Arc<str>| exported.slices.contains(one);
                (slices.contains(&slice.name) || !is_named(&slice.name))
                    && slices.iter().all(is_named)
            }
            // Endpoints move between slices, and readers keep the copy of a slice that an ExportedService names. The next
            // plan knows which endpoints go.
            (
                Self::ApplySlice(..) | Self::ApplyService(_) | Self::DeleteService(_),
                Self::DeleteSlice(..),
            ) => false,
            // Without the mark of a withdrawal, readers wait until the Lease no longer counts the service.
            _ => true,
        }
    }
}

/// The writes for one service, by a publisher of this epoch. A reader that sees only the first writes loses nothing: new
/// slices precede the ExportedService that names them, and the slices that it no longer names are deleted after it. A slice
/// of another family is deleted first, to free its name. A service is withdrawn before its deletion: its absence does not
/// show who deleted it.
///
/// What the API server has refused is sent again at the end. Meanwhile the ExportedService names the slices that are there;
/// endpoints of a refused slice stay in the slice that had them; and while the ExportedService is refused, it keeps its
/// former content with the present slices, and slices that go are emptied first, as readers keep what it names.
pub fn plan_publication(
    name: &ServiceName,
    wanted: Option<&Outgoing>,
    mailbox: &MailboxView,
    epoch: u64,
    withheld: &Withheld,
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
    let is_refused = |write: &mut MailboxWrite| withheld.refused.contains_key(&write.object());
    let again: Vec<_> = writes.extract_if(.., is_refused).collect();
    let gone = leftovers(slices, seen, withheld);
    let service = mailbox.seen().get(name);
    // Readers keep what the former ExportedService names.
    let is_kept = withheld.has_service() && service.is_some();
    for (copy, rest) in &gone {
        let is_narrower = rest.endpoints.len() < copy.endpoints.len();
        let (is_empty, is_old) = (rest.endpoints.is_empty(), copy.stamp.epoch != epoch);
        if is_narrower && is_kept || (is_narrower || is_old) && !is_empty {
            writes.push(MailboxWrite::ApplySlice(name.clone(), rest.clone().into()));
        }
    }
    let there = |slice: &&Arc<str>| !withheld.has_slice(slice) || seen.contains_key(*slice);
    let kept = gone.iter().filter(|(_, rest)| !rest.endpoints.is_empty());
    let named = slices.keys().filter(there).chain(kept.map(|(copy, _)| &copy.name));
    let [now, last] =
        service_writes(name, wanted, named.cloned().collect(), (mailbox, epoch), withheld);
    let is_named =
        |slice: &Arc<str>| service.is_some_and(|service| service.exported.slices.contains(slice));
    let deleted = gone.iter().filter(|(copy, rest)| {
        let stays = is_kept && now.is_empty() && is_named(&copy.name);
        rest.endpoints.is_empty() && !stays
    });
    let deleted =
        deleted.map(|(copy, _)| MailboxWrite::DeleteSlice(name.clone(), Arc::clone(&copy.name)));
    let deleted: Vec<_> = deleted.collect();
    // Readers take nothing of a former epoch: a refused slice keeps its former content, with a stamp of this one.
    let former = again.iter().filter_map(|write| match write {
        MailboxWrite::ApplySlice(_, content) => {
            let copy = seen.get(&content.name)?;
            let is_old = copy.stamp.epoch != epoch && copy.family == content.family;
            is_old.then(|| MailboxWrite::ApplySlice(name.clone(), Arc::clone(copy)))
        }
        _ => None,
    });
    let former: Vec<_> = former.collect();
    let services = now.into_iter().chain(deleted).chain(former);
    writes.into_iter().chain(services).chain(again).chain(last).collect()
}

/// The slices of a mailbox that the Service no longer has, each with what stays of it: the endpoints of slices that are
/// refused.
fn leftovers<'a>(
    wanted: &BTreeMap<Arc<str>, Arc<SourceSlice>>,
    seen: &'a BTreeMap<Arc<str>, Arc<SourceSlice>>,
    withheld: &Withheld,
) -> Vec<(&'a Arc<SourceSlice>, SourceSlice)> {
    let addresses = |slice: &Arc<SourceSlice>| -> BTreeSet<IpAddr> {
        slice.endpoints.iter().map(|endpoint| endpoint.address).collect()
    };
    let mut waiting = BTreeSet::new();
    for (name, slice) in wanted.iter().filter(|(name, _)| withheld.has_slice(name)) {
        let there = seen.get(name).map(addresses).unwrap_or_default();
        waiting.extend(addresses(slice).difference(&there).copied());
    }
    let gone = seen.values().filter(|copy| !wanted.contains_key(&copy.name));
    let gone = gone.map(|copy| {
        let stays = copy.endpoints.iter().filter(|one| waiting.contains(&one.address));
        let endpoints = stays.cloned().collect();
        (copy, SourceSlice { endpoints, ..SourceSlice::clone(copy) })
    });
    gone.collect()
}

/// The writes of the ExportedService that names these slices, and the one that comes after everything else.
fn service_writes(
    name: &ServiceName,
    wanted: Option<&Outgoing>,
    named: BTreeSet<Arc<str>>,
    (mailbox, epoch): (&MailboxView, u64),
    withheld: &Withheld,
) -> [Vec<MailboxWrite>; 2] {
    let seen = mailbox.seen().get(name);
    let Some(wanted) = wanted else {
        let withdraw = seen.filter(|seen| seen.is_usable());
        let withdraw =
            withdraw.map(|seen| MailboxWrite::WithdrawService(seen.exported.clone().into()));
        let is_there = seen.is_some() || mailbox.unread().contains_key(name);
        let delete = is_there.then(|| MailboxWrite::DeleteService(name.clone()));
        return [withdraw.into_iter().chain(delete).collect(), vec![]];
    };
    if withheld.is_of_later_version {
        return [vec![], vec![]];
    }
    let slices: Vec<_> = named.into_iter().collect();
    let write = |export: &Export| {
        let exported = Exported { export: export.clone(), slices: slices.clone() };
        let is_written = seen.is_some_and(|seen| {
            seen.stamp.epoch == epoch && seen.is_usable() && seen.exported == exported
        });
        (!is_written).then(|| MailboxWrite::ApplyService(exported.into()))
    };
    let wish: Vec<_> = write(&wanted.export).into_iter().collect();
    if !withheld.has_service() {
        return [wish, vec![]];
    }
    let former = seen.filter(|seen| seen.is_usable()).map(|seen| &seen.exported.export);
    let former = former.filter(|former| **former != wanted.export).and_then(write);
    [former.into_iter().collect(), wish]
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
