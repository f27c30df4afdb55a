//! The Services of the own cluster whose slices are read.

use std::collections::BTreeSet;

use super::{MANAGED_BY_LABEL, SERVICE_LABEL, karmada};

/// Bytes of Service names that a request has room for. The crate `http` takes URIs of at most 65,534 bytes.
const NAMES: usize = 48 * 1024;

/// The Services whose local slices a list has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Coverage {
    /// Those of these names.
    Named(BTreeSet<String>),
    /// All Services of the cluster.
    All,
}

impl Coverage {
    /// Covers no Service.
    pub(super) const NONE: Self = Self::Named(BTreeSet::new());

    /// The least that covers these Services and that one request can ask for.
    ///
    /// What covers all stays so until the names take half of the room: few changes then do not list all slices of the
    /// cluster again and again.
    pub(super) fn of(services: BTreeSet<String>, before: &Self) -> Self {
        let room = if *before == Self::All { NAMES / 2 } else { NAMES };
        // `,` becomes `%2C`.
        let bytes: usize = services.iter().map(|name| name.len() + 3).sum();
        if bytes <= room { Self::Named(services) } else { Self::All }
    }

    /// Whether it covers the Services of this name.
    pub(super) fn has(&self, service: &str) -> bool {
        match self {
            Self::Named(services) => services.contains(service),
            Self::All => true,
        }
    }

    /// The label selector of the slices that the own cluster's controllers keep for these Services.
    pub(super) fn selector(&self) -> String {
        let services = match self {
            Self::Named(services) => {
                let services: Vec<&str> = services.iter().map(String::as_str).collect();
                format!(" in ({})", services.join(","))
            }
            Self::All => String::new(),
        };
        format!(
            "{SERVICE_LABEL}{services},{MANAGED_BY_LABEL} notin ({}),!{}",
            karmada::MANAGERS.join(","),
            crate::core::source::objects::SERVICE_NAME_LABEL
        )
    }
}
