//! The rate at which the import of a service is written, with all that belongs to it but slices. Every agent of the cluster
//! reads a changed import, so a tenant of a peer who changes annotations in a loop must not overload the API servers.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::TokenBucket;
use crate::core::{
    clusterset::{ServiceName, differ_in_words},
    objects::ExportObject,
    own_cluster::OwnCluster,
    plan::Write,
};

/// The writes of a burst, and the writes a second after it.
const BURST: u32 = 5;
const RATE: u32 = 1;

/// How long a status waits if only messages or counts differ. A status that changes back in that time is not written.
const WORDS: Duration = Duration::from_secs(5);

/// A token bucket for each service whose import was written lately.
#[derive(Debug, Default)]
pub struct ImportPace {
    buckets: HashMap<ServiceName, TokenBucket>,
    /// When the words of services may be written.
    words: HashMap<ServiceName, Instant>,
}

impl ImportPace {
    /// Removes each status that differs from the present one in words alone, until it has waited. So a flapping endpoint
    /// costs one write per wait. Returns until when a status waits.
    pub fn hold_words(
        &mut self,
        name: &ServiceName,
        writes: &mut Vec<Write>,
        own: &OwnCluster,
        now: Instant,
    ) -> Option<Instant> {
        let is_of_words = |write: &Write| match write {
            Write::SetImportStatus(_, status) => own
                .import_object(name)
                .is_some_and(|import| import.actual.status.differs_in_words(status)),
            Write::SetExportConditions(_, conditions) => own
                .export_object(name)
                .map(ExportObject::known_conditions)
                .is_some_and(|former| differ_in_words(&former, conditions)),
            _ => false,
        };
        if !writes.iter().any(is_of_words) {
            self.words.remove(name);
            return None;
        }
        let due = self.words.entry(name.clone()).or_insert(now + WORDS);
        if *due <= now {
            *due = now + WORDS;
            return None;
        }
        writes.retain(|write| !is_of_words(write));
        Some(*due)
    }

    /// If the import or a status was written too often, removes its write and the writes after it, and returns when the
    /// service is due. Slices precede them and do not wait.
    pub fn limit(
        &mut self,
        name: &ServiceName,
        writes: &mut Vec<Write>,
        now: Instant,
    ) -> Option<Instant> {
        let first = writes.iter().position(Write::changes_import)?;
        let wait = self.buckets.get(name)?.wait(now);
        if wait.is_zero() {
            return None;
        }
        writes.truncate(first);
        Some(now + wait)
    }

    /// Counts what is written.
    pub fn spend(&mut self, name: &ServiceName, writes: &[Write], now: Instant) {
        if writes.iter().any(Write::changes_import) {
            let full = || TokenBucket::full(BURST, RATE, now);
            self.buckets.entry(name.clone()).or_insert_with(full).spend(1.0, now);
        }
    }

    /// Forgets the services that have not changed for a while.
    pub fn forget(&mut self, now: Instant) {
        self.buckets.retain(|_, bucket| !bucket.is_full(now));
    }
}

#[cfg(test)]
mod tests {
    use mcs_kube::ResourceEvent;
    use serde_json::{from_value, json};

    use super::*;
    use crate::core::{
        clusterset::{
            ConditionType, Import, ImportStatus,
            fixture::{imported_slice, name, spec},
        },
        own_cluster::OwnEvent,
    };

    /// This cluster, in which an import of `shop/web` says that endpoints are ready.
    fn own(message: &str) -> OwnCluster {
        let mut own = OwnCluster::new(vec![]);
        let condition = |kind: &str, message: &str| {
            json!({
                "type": kind, "status": "True", "reason": "Ready", "message": message,
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            })
        };
        let import = json!({
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"type": "ClusterSetIP", "ports": []},
            "status": {"conditions": [condition("Ready", ""), condition(ConditionType::EndpointsReady.name(), message)]},
        });
        own.apply(OwnEvent::Imports(ResourceEvent::Changed(from_value(import).unwrap())));
        own
    }

    /// The status of that import.
    fn status(own: &OwnCluster) -> Write {
        let import = own.import_object(&name("shop/web")).unwrap();
        Write::SetImportStatus(name("shop/web"), import.actual.status.clone())
    }

    /// An endpoint turns twice a second.
    #[test]
    fn an_endpoint_that_flaps_costs_one_write_in_a_while() {
        let (start, web) = (Instant::now(), name("shop/web"));
        let mut pace = ImportPace::default();
        let (mut there, mut written) = (own("1 of 2"), vec![]);
        for half in 0..60_u32 {
            let now = start + Duration::from_millis(500) * half;
            let wanted = own(if half % 2 == 0 { "2 of 2" } else { "1 of 2" });
            let slice = Write::ApplySlice(imported_slice("busy"));
            let mut writes = vec![slice.clone()];
            // As a plan does: no write for what is there.
            writes.extend(Some(status(&wanted)).filter(|wanted| *wanted != status(&there)));
            pace.hold_words(&web, &mut writes, &there, now);
            assert_eq!(writes[0], slice, "slices do not wait");
            if writes.len() > 1 {
                there = wanted;
                written.push(half / 2);
            }
        }
        assert!(written.is_empty(), "what changes back is not written: {written:?}");
        for (second, is_due) in [(100, false), (104, false), (105, true), (106, false)] {
            let now = start + Duration::from_secs(second);
            let mut writes = vec![status(&own("0 of 2"))];
            let until = pace.hold_words(&web, &mut writes, &there, now);
            assert_eq!((writes.len(), until.is_none()), (usize::from(is_due), is_due), "{second}");
            assert!(until.is_none_or(|until| until > now && until <= now + WORDS), "{second}");
        }
        let mut other = vec![Write::SetImportStatus(web.clone(), ImportStatus::default())];
        pace.hold_words(&web, &mut other, &there, start);
        assert_eq!(other.len(), 1, "a condition that turns does not wait");
        assert!(pace.words.is_empty());
    }

    #[test]
    fn a_service_that_always_changes_writes_its_import_once_a_second() {
        let start = Instant::now();
        let mut pace = ImportPace::default();
        let import = |service: &str| {
            Write::ApplyImport(Import {
                name: name(service),
                ips: vec![],
                spec: spec(),
                has_derived_service: false,
                tiers: None,
            })
        };
        let slice = Write::ApplySlice(imported_slice("busy"));
        let deletion = Write::DeleteImport(name("shop/web"));
        let mut written = 0;
        for change in 0..1000 {
            let now = start + Duration::from_millis(10 * change);
            let mut writes = vec![slice.clone(), import("shop/web"), deletion.clone()];
            let until = pace.limit(&name("shop/web"), &mut writes, now);
            pace.spend(&name("shop/web"), &writes, now);
            assert_eq!(writes[0], slice, "slices do not wait");
            written += usize::from(writes.len() == 3);
            assert!(until.is_none() == (writes.len() == 3));
            assert!(until.is_none_or(|until| until > now && until <= now + Duration::from_secs(1)));
        }
        assert!((14..=15).contains(&written), "{written} in 10 seconds");
        let later = start + Duration::from_secs(10);
        let mut others = vec![import("shop/db")];
        assert_eq!(pace.limit(&name("shop/db"), &mut others, later), None);
        pace.spend(&name("shop/db"), &others, later);
        assert_eq!(others.len(), 1);
        let mut slices = vec![slice];
        assert_eq!(pace.limit(&name("shop/web"), &mut slices, later), None);
        pace.forget(later);
        assert_eq!(pace.buckets.len(), 2);
        pace.forget(later + Duration::from_secs(6));
        assert!(pace.buckets.is_empty());
    }
}
