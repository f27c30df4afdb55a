//! The state of the import of a service in one word, for people and monitoring.

use super::{ConditionStatus, ConditionType, LostVip, ServiceObject, Wanted, WantedImport};

/// The state of the import of a service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ImportState {
    /// It serves.
    Ready,
    /// No VIP is free for it.
    Pending,
    /// Another import has its address.
    AddressShared,
    /// It has an address of a Service that is gone.
    AddressInServiceRange,
    /// No Service of the cluster can have one of its IP families.
    FamilyNotSupported,
    /// Another controller writes the ServiceImport.
    LeftAlone,
    /// It serves, and the exporting clusters disagree.
    Conflict,
    /// It serves, but a conflict keeps endpoints from it.
    EndpointsUnused,
    /// The cluster has no such namespace.
    NoNamespace,
    /// The API server of this cluster refuses an object of it.
    Refused,
}

impl ImportState {
    /// Every state.
    pub const ALL: [Self; 10] = [
        Self::Ready,
        Self::Pending,
        Self::AddressShared,
        Self::AddressInServiceRange,
        Self::FamilyNotSupported,
        Self::LeftAlone,
        Self::Conflict,
        Self::EndpointsUnused,
        Self::NoNamespace,
        Self::Refused,
    ];

    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Pending => "pending",
            Self::AddressShared => "address_shared",
            Self::AddressInServiceRange => "address_in_service_range",
            Self::FamilyNotSupported => "family_not_supported",
            Self::LeftAlone => "left_alone",
            Self::Conflict => "conflict",
            Self::EndpointsUnused => "endpoints_unused",
            Self::NoNamespace => "no_namespace",
            Self::Refused => "refused",
        }
    }

    /// The state of a service. `None`: there is nothing to import.
    pub fn of(wanted: &Wanted) -> Option<Self> {
        let status = match &wanted.import {
            // The clusters that export it are told.
            WantedImport::Absent if wanted.lacks_namespace => return Some(Self::NoNamespace),
            _ if wanted.refused.told(ServiceObject::is_of_import).is_some() => {
                return Some(Self::Refused);
            }
            WantedImport::Absent => return None,
            WantedImport::LeftAlone => return Some(Self::LeftAlone),
            WantedImport::Present(_, status) => status,
        };
        let failing = status.conditions.iter().find(|one| {
            one.condition_type == ConditionType::Ready && one.status != ConditionStatus::True
        });
        Some(match failing.map(|ready| &*ready.reason) {
            None if wanted.conflicts.is_empty() => Self::Ready,
            None if wanted.loses_endpoints() => Self::EndpointsUnused,
            None => Self::Conflict,
            Some("AddressShared") => Self::AddressShared,
            Some(LostVip::REASON) => Self::AddressInServiceRange,
            Some("IPFamilyNotSupported") => Self::FamilyNotSupported,
            Some(_) => Self::Pending,
        })
    }
}
