//! The exports of each namespace, and those beyond its limits.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use super::NamespaceLimits;
use crate::core::clusterset::{ServiceName, Timestamp};

/// How often a namespace beyond its limits is judged: each time costs all of its exports.
const PERIOD: Duration = Duration::from_secs(1);
/// Exports that readers have stay until the namespace is beyond its limits by this share. So endpoints that come and go do not
/// withdraw a service and publish it again.
const SLACK: usize = 4;

/// The exports of each namespace.
#[derive(Debug, Default)]
pub(super) struct Shares {
    limits: NamespaceLimits,
    namespaces: HashMap<Arc<str>, Share>,
    /// The namespaces to judge.
    waiting: BTreeSet<Arc<str>>,
    judged: Option<Instant>,
}

#[derive(Debug, Default)]
struct Share {
    /// The age and the bytes of each export.
    exports: HashMap<ServiceName, (Timestamp, usize)>,
    bytes: usize,
    beyond: BTreeSet<ServiceName>,
}

impl Shares {
    pub(super) fn new(limits: NamespaceLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Whether an export is beyond the limits of its namespace.
    pub(super) fn is_beyond(&self, name: &ServiceName) -> bool {
        let share = self.namespaces.get(name.namespace());
        share.is_some_and(|share| share.beyond.contains(name))
    }

    /// Notes the creation and the bytes of an export; `None`: there is none. `was_beyond`: the status says so, written by the
    /// controller before. Until this one judges, that counts: exports do not come for a second and go again.
    pub(super) fn note(
        &mut self,
        name: &ServiceName,
        export: Option<(Timestamp, usize)>,
        was_beyond: impl FnOnce() -> bool,
    ) {
        let namespace = name.shared_namespace();
        let share = self.namespaces.entry(Arc::clone(namespace)).or_default();
        let former = match export {
            Some(export) => share.exports.insert(name.clone(), export),
            None => share.exports.remove(name),
        };
        let (before, after) = (former.map_or(0, |of| of.1), export.map_or(0, |of| of.1));
        share.bytes = share.bytes - before + after;
        if export.is_none() {
            share.beyond.remove(name);
        }
        let is_over = self.limits.are_exceeded(share.exports.len(), share.bytes);
        let is_new = former.is_none() && export.is_some();
        if is_new && if self.judged.is_some() { is_over } else { was_beyond() } {
            share.beyond.insert(name.clone());
        }
        if is_over || !share.beyond.is_empty() {
            self.waiting.insert(Arc::clone(namespace));
        }
        if share.exports.is_empty() {
            self.namespaces.remove(namespace);
        }
    }

    /// Decides which exports are beyond the limits: the youngest ones, those that readers have last. Returns those for which
    /// this has changed.
    pub(super) fn judge(
        &mut self,
        is_published: impl Fn(&ServiceName) -> bool,
        now: Instant,
    ) -> Vec<ServiceName> {
        if self.judged.is_some_and(|at| now < at + PERIOD) {
            return vec![];
        }
        self.judged = Some(now);
        let mut changed = vec![];
        for namespace in std::mem::take(&mut self.waiting) {
            let Some(share) = self.namespaces.get_mut(&namespace) else { continue };
            let (mut order, mut beyond) = (Vec::new(), BTreeSet::new());
            for (name, (created, bytes)) in &share.exports {
                order.push((!is_published(name), *created, name, *bytes));
            }
            order.sort_unstable();
            let (mut services, mut total) = (0, 0);
            for (is_new, _, name, bytes) in order {
                let limits = if is_new { self.limits } else { self.limits.with_slack() };
                if limits.are_exceeded(services + 1, total + bytes) {
                    beyond.insert(name.clone());
                } else {
                    (services, total) = (services + 1, total + bytes);
                }
            }
            changed.extend(share.beyond.symmetric_difference(&beyond).cloned());
            share.beyond = beyond;
        }
        changed
    }
}

impl NamespaceLimits {
    const fn are_exceeded(self, services: usize, bytes: usize) -> bool {
        services > self.services || bytes > self.bytes
    }

    const fn with_slack(self) -> Self {
        Self {
            services: self.services.saturating_add(self.services / SLACK),
            bytes: self.bytes.saturating_add(self.bytes / SLACK),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::clusterset::fixture::name;

    const LIMITS: NamespaceLimits = NamespaceLimits { services: 4, bytes: 1000 };

    fn note(shares: &mut Shares, name: &ServiceName, export: Option<(Timestamp, usize)>) {
        shares.note(name, export, || false);
    }

    fn beyond(shares: &Shares, services: &[&str]) -> Vec<String> {
        let is_beyond = |service: &&&str| shares.is_beyond(&name(service));
        services.iter().filter(is_beyond).map(|service| (*service).to_owned()).collect()
    }

    #[test]
    fn the_youngest_exports_of_a_namespace_are_beyond_its_limits() {
        let (mut shares, now) = (Shares::new(LIMITS), Instant::now());
        let services = ["a/5", "a/4", "a/3", "a/2", "a/1", "b/1"];
        for (age, service) in (0..).zip(services) {
            // The first of the list is the youngest.
            note(&mut shares, &name(service), Some((Timestamp(10 - age), 10)));
        }
        assert_eq!(shares.judge(|_| false, now), [name("a/5")]);
        assert_eq!(beyond(&shares, &services), ["a/5"]);
        note(&mut shares, &name("a/6"), Some((Timestamp(20), 10)));
        assert_eq!(beyond(&shares, &["a/6"]), ["a/6"], "at once, as the namespace is full");
        note(&mut shares, &name("b/2"), Some((Timestamp(20), 10)));
        assert_eq!(beyond(&shares, &["b/2"]), [""; 0]);
        note(&mut shares, &name("a/1"), None);
        assert!(shares.judge(|_| false, now).is_empty(), "it was just judged");
        assert_eq!(shares.judge(|_| false, now + PERIOD), [name("a/5")]);
        assert_eq!(beyond(&shares, &["a/5", "a/6"]), ["a/6"]);
    }

    #[test]
    fn what_was_beyond_the_limits_stays_so_until_a_new_controller_judges() {
        let (mut shares, now) = (Shares::new(LIMITS), Instant::now());
        let services = ["a/5", "a/4", "a/3", "a/2", "a/1"];
        for (age, service) in (0..).zip(services) {
            shares.note(&name(service), Some((Timestamp(10 - age), 10)), || service == "a/5");
        }
        assert_eq!(beyond(&shares, &services), ["a/5"]);
        assert!(shares.judge(|_| false, now).is_empty(), "nothing has changed");
        note(&mut shares, &name("a/1"), None);
        assert_eq!(shares.judge(|_| false, now + PERIOD), [name("a/5")]);
        // There is room now: what the status says is judged, though few exports are there.
        let mut shares = Shares::new(LIMITS);
        shares.note(&name("a/5"), Some((Timestamp(1), 10)), || true);
        assert_eq!(shares.judge(|_| false, now), [name("a/5")]);
        assert_eq!(beyond(&shares, &["a/5"]), [""; 0]);
    }

    #[test]
    fn what_readers_have_stays_while_its_endpoints_come_and_go() {
        let (mut shares, mut now) = (Shares::new(LIMITS), Instant::now());
        let (large, small) = (name("a/large"), name("a/small"));
        note(&mut shares, &large, Some((Timestamp(1), 600)));
        note(&mut shares, &small, Some((Timestamp(2), 300)));
        let published = [large.clone(), small.clone()];
        for (bytes, expected) in [(800, 0), (600, 0), (950, 0), (951, 1), (700, 0)] {
            note(&mut shares, &large, Some((Timestamp(1), bytes)));
            now += PERIOD;
            shares.judge(|name| published.contains(name), now);
            assert_eq!(beyond(&shares, &["a/large", "a/small"]).len(), expected, "{bytes}");
        }
        note(&mut shares, &small, None);
        note(&mut shares, &large, None);
        assert!(shares.namespaces.is_empty());
    }
}
