//! The desired state: the result of the rules.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use super::{Departure, Frontend, FrontendId, ImportReport, ObjectKey, Protocol, Rejection};

/// The VIPs and frontends that the objects ask for, and what the rules say about the objects.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DesiredState {
    /// The agent serves these addresses, and refuses every port of them that is no frontend.
    pub vips: BTreeSet<IpAddr>,
    /// Addresses that are no VIPs any more, and that the maps keep for a while if they have them.
    pub departed: BTreeMap<IpAddr, Departure>,
    /// The address of each is in `vips`.
    pub frontends: BTreeMap<FrontendId, Frontend>,
    /// One per ServiceImport, sorted by name.
    pub imports: Arc<Vec<Arc<ImportReport>>>,
    /// Sorted by object.
    pub rejections: Vec<Rejection>,
}

impl DesiredState {
    /// The frontends of a VIP.
    pub fn frontends_of(&self, ip: IpAddr) -> impl Iterator<Item = &Frontend> {
        let first = FrontendId { ip, port: 0, protocol: Protocol::Tcp };
        let frontends = self.frontends.range(first..).take_while(move |(id, _)| id.ip == ip);
        frontends.map(|(_, frontend)| frontend)
    }

    /// Whether the import has a frontend of this VIP.
    pub fn serves(&self, import: &ObjectKey, ip: IpAddr) -> bool {
        self.frontends_of(ip).any(|frontend| frontend.import == *import)
    }

    /// The report of an import.
    pub fn report(&self, import: &ObjectKey) -> Option<&ImportReport> {
        Some(&self.imports[self.report_index(import)?])
    }

    /// Replaces the report of an import, if it has one. Clones of the list keep the former report; an equal report copies
    /// nothing.
    pub(crate) fn set_report(&mut self, report: ImportReport) {
        if let Some(index) = self.report_index(&report.import)
            && *self.imports[index] != report
        {
            Arc::make_mut(&mut self.imports)[index] = Arc::new(report);
        }
    }

    fn report_index(&self, import: &ObjectKey) -> Option<usize> {
        self.imports.binary_search_by(|report| report.import.cmp(import)).ok()
    }
}

/// The part of the desired state that can differ from before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DesiredChanges {
    /// Any part.
    Everything,
    /// Only the backends of these frontends.
    Backends(BTreeSet<FrontendId>),
}

impl Default for DesiredChanges {
    fn default() -> Self {
        Self::Backends(BTreeSet::new())
    }
}

impl DesiredChanges {
    /// Adds more changes.
    pub fn extend(&mut self, more: Self) {
        match (self, more) {
            (Self::Backends(ids), Self::Backends(more)) => ids.extend(more),
            (all, _) => *all = Self::Everything,
        }
    }
}
