//! What each namespace of this cluster may export: no tenant takes the room that readers have for all others.

mod shares;

use std::{fmt, sync::Arc, time::Instant};

use clap::{Args, FromArgMatches as _};

use self::shares::Shares;
use crate::core::{
    clusterset::{ExportState, ServiceName, SourceSlice, is_exportable, over_limit_conditions},
    control::State,
    feature::{Entry, Feature},
    objects::Exported,
};

/// The feature in the list.
pub(crate) const ENTRY: Entry = Entry {
    flags: LimitFlags::augment_args,
    start: |matches, _| {
        let limits = LimitFlags::from_arg_matches(matches)?.limits();
        Ok(Some(Box::new(Judge { limits, shares: Shares::new(limits) })))
    },
    ..Entry::NONE
};

#[derive(Args)]
#[group(skip)]
struct LimitFlags {
    /// The most ServiceExports of one namespace that count. The youngest of more get the condition `Valid=False`
    #[arg(long, env = "MCS_NAMESPACE_SERVICES", value_name = "N", default_value_t = 5000,
        value_parser = clap::value_parser!(u32).range(1..))]
    namespace_services: u32,

    /// About how many bytes of the memory of peers they may take, with their endpoints
    #[arg(long, env = "MCS_NAMESPACE_BYTES", value_name = "BYTES", default_value_t = 32 << 20,
        value_parser = clap::value_parser!(u32).range(1024..))]
    namespace_bytes: u32,
}

impl LimitFlags {
    fn limits(&self) -> NamespaceLimits {
        let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        NamespaceLimits {
            services: number(self.namespace_services),
            bytes: number(self.namespace_bytes),
        }
    }
}

/// What one namespace may export.
#[derive(Clone, Copy, Debug, Default)]
struct NamespaceLimits {
    /// ServiceExports.
    services: usize,
    /// Bytes in the memory of a reader.
    bytes: usize,
}

impl fmt::Display for NamespaceLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} services or {} bytes of memory of other clusters", self.services, self.bytes)
    }
}

struct Judge {
    limits: NamespaceLimits,
    shares: Shares,
}

impl Judge {
    /// Holds an export back that is beyond the limits, or ends that.
    fn judge(&self, name: &ServiceName, state: &mut State) {
        let limits = || over_limit_conditions(name.namespace(), self.limits);
        let is_beyond = self.shares.is_beyond(name);
        state.hold_export(name, is_beyond.then(limits));
    }
}

impl Feature for Judge {
    /// Notes what this cluster would publish of a service.
    fn note_changed(&mut self, name: &ServiceName, state: &mut State) {
        let export = state.own.export(name, state.cluster());
        let export = export.filter(|export| is_exportable(export, &state.exports)).map(|export| {
            let slices = state.own.slices(name);
            let bytes: usize =
                slices.into_iter().flat_map(|slices| slices.values()).map(rough_bytes).sum();
            let export = export.publishable();
            (export.created, bytes + Exported { export, slices: vec![] }.weight())
        });
        let was_beyond = || state.own.export_state(name) == Some(ExportState::OverLimit);
        self.shares.note(name, export, was_beyond);
        self.judge(name, state);
    }

    /// Decides which exports are beyond the limits of their namespaces.
    fn before_plans(&mut self, state: &mut State, now: Instant) {
        if !state.is_own_mailbox() {
            return;
        }
        let published = state.own_mailbox.seen();
        let changed = self.shares.judge(|name| published.contains_key(name), now);
        for name in changed {
            self.judge(&name, state);
            state.publications.add(name.clone());
            state.imports.add(name);
        }
    }
}

/// About how many bytes of memory a slice takes in readers, in little time.
fn rough_bytes(slice: &Arc<SourceSlice>) -> usize {
    const SLICE: usize = 640;
    const ENDPOINT: usize = 160;
    SLICE + slice.endpoints.len() * ENDPOINT
}
