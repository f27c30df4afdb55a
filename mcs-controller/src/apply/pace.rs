//! How often the import of a service, and the conditions of its export, are written. Every agent of the cluster reads an import
//! again that has changed, so one tenant of a peer who changes annotations in a loop must not use up all API servers.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::TokenBucket;
use crate::{clusterset::ServiceName, plan::Write};

/// How often at once, after a while without a change.
const BURST: f64 = 5.0;
/// How often a second after that.
const RATE: f64 = 1.0;

/// A token bucket for each service whose import was written lately.
#[derive(Debug, Default)]
pub struct ImportPace {
    buckets: HashMap<ServiceName, TokenBucket>,
}

impl ImportPace {
    /// If the import or a status was written too often, leaves out its write and what comes after it, and returns when the
    /// service has its turn. Slices come before them, and do not wait.
    pub fn limit(
        &mut self,
        name: &ServiceName,
        writes: &mut Vec<Write>,
        now: Instant,
    ) -> Option<Instant> {
        let first = writes.iter().position(is_paced)?;
        let bucket = self.buckets.get_mut(name)?;
        bucket.fill(RATE, now);
        if bucket.tokens() >= 1.0 {
            return None;
        }
        writes.truncate(first);
        Some(now + Duration::from_secs_f64((1.0 - bucket.tokens()).max(0.0) / RATE))
    }

    /// Counts what is written.
    pub fn spend(&mut self, name: &ServiceName, writes: &[Write], now: Instant) {
        if writes.iter().any(is_paced) {
            let full = || TokenBucket::full(BURST, now);
            self.buckets.entry(name.clone()).or_insert_with(full).spend(1.0);
        }
    }

    /// Forgets the services that have not changed for a while.
    pub fn forget(&mut self, now: Instant) {
        self.buckets.retain(|_, bucket| {
            bucket.fill(RATE, now);
            bucket.tokens() < BURST
        });
    }
}

const fn is_paced(write: &Write) -> bool {
    matches!(
        write,
        Write::ApplyImport(_) | Write::SetImportStatus(..) | Write::SetExportConditions(..)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusterset::{
        Import,
        fixture::{imported_slice, name, spec},
    };

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
