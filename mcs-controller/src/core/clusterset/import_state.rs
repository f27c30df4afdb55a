//! The state of the import of a service in one word, for people and monitoring.

use mcs_kube::reasons::{ImportState, Reason};

use super::{ConditionStatus, ConditionType, ServiceObject, Wanted, WantedImport};

impl Wanted {
    /// The state of the service. `None`: there is nothing to import.
    pub fn state(&self) -> Option<ImportState> {
        let status = match &self.import {
            // The clusters that export it are told.
            WantedImport::Absent if self.lacks_namespace => return Some(ImportState::NoNamespace),
            _ if self.refused.told(ServiceObject::is_of_import).is_some() => {
                return Some(ImportState::Refused);
            }
            WantedImport::Absent => return None,
            WantedImport::LeftAlone => return Some(ImportState::LeftAlone),
            WantedImport::Present(_, status) => status,
        };
        let failing = status.conditions.iter().find(|one| {
            one.condition_type == ConditionType::Ready && one.status != ConditionStatus::True
        });
        Some(match failing.map(|ready| &ready.reason) {
            None if self.conflicts.is_empty() => ImportState::Ready,
            None if self.loses_endpoints() => ImportState::EndpointsUnused,
            None => ImportState::Conflict,
            Some(why) if *why == Reason::AddressShared => ImportState::AddressShared,
            Some(why) if *why == Reason::AddressInServiceRange => {
                ImportState::AddressInServiceRange
            }
            Some(why) if *why == Reason::IPFamilyNotSupported => ImportState::FamilyNotSupported,
            Some(_) => ImportState::Pending,
        })
    }
}
