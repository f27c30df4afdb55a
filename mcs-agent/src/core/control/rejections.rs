//! The rejections that the log and `status` list: a limited number, shared fairly by the namespaces.
//! Without a limit, one writer of slices could fill the log and the status file.

use std::{collections::BTreeMap, sync::Arc};

use crate::core::model::{ObjectKey, Rejection, RejectionReason, shorten};

/// Lines that `status` has room for.
const REPORTED: usize = 1000;
/// Lines that one round may log.
const LOGGED: usize = 100;
/// Rejections of one object, for one reason, that have a line each. One more line counts the others.
const PER_OBJECT: usize = 10;

/// A part of many rejections, and how many there are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ListedRejections {
    /// Sorted by object. A line `and N more` follows the lines of an object and reason that are too
    /// many.
    pub(super) lines: Arc<Vec<Rejection>>,
    /// Rejections that no line mentions or counts.
    pub(super) omitted: usize,
    /// All rejections, by reason.
    pub(super) counts: Arc<BTreeMap<RejectionReason, usize>>,
}

impl ListedRejections {
    /// What `status` lists of `rejections`, which are sorted.
    pub(super) fn for_status(rejections: &[Rejection]) -> Self {
        Self::new(rejections, REPORTED)
    }

    fn new(rejections: &[Rejection], limit: usize) -> Self {
        let (mut listed, mut omitted, mut counts) = (Vec::new(), 0, BTreeMap::new());
        let mut lines = Vec::new();
        for group in rejections.chunk_by(|a, b| (&a.object, a.reason) == (&b.object, b.reason)) {
            *counts.entry(group[0].reason).or_default() += group.len();
            lines.extend(Line::of(group));
        }
        let mut wanted = BTreeMap::<&str, usize>::new();
        for line in &lines {
            *wanted.entry(line.namespace()).or_default() += 1;
        }
        let share = fair_share(wanted.into_values().collect(), limit);
        let mut taken = BTreeMap::<&str, usize>::new();
        for line in lines {
            let taken = taken.entry(line.namespace()).or_default();
            if *taken < share && listed.len() < limit {
                *taken += 1;
                listed.push(line.rejection());
            } else {
                omitted += line.count;
            }
        }
        Self { lines: listed.into(), omitted, counts: counts.into() }
    }
}

/// Logs rejections, which are sorted.
pub(super) fn log(rejections: &[Rejection]) {
    let ListedRejections { lines, omitted, .. } = ListedRejections::new(rejections, LOGGED);
    for Rejection { object, reason, message } in &*lines {
        let ObjectKey { namespace, name } = &object.key;
        tracing::warn!(%reason, %namespace, %name, "{object} rejected: {message}");
    }
    if omitted > 0 {
        tracing::warn!(
            "{omitted} more rejections are not logged; see `mcs-agent status` and the metric \
             mcs_rejections"
        );
    }
}

/// One rejection, or the number of an object's further ones.
struct Line<'a> {
    rejection: &'a Rejection,
    count: usize,
    is_count: bool,
}

impl<'a> Line<'a> {
    /// The lines of rejections of one object for one reason.
    fn of(group: &'a [Rejection]) -> impl Iterator<Item = Self> {
        let (listed, others) = group.split_at(group.len().min(PER_OBJECT));
        let listed = listed.iter().map(|rejection| Self { rejection, count: 1, is_count: false });
        let first = others.first();
        listed.chain(first.map(|rejection| Self { rejection, count: others.len(), is_count: true }))
    }

    fn namespace(&self) -> &'a str {
        &self.rejection.object.key.namespace
    }

    fn rejection(&self) -> Rejection {
        let Rejection { object, reason, message } = self.rejection;
        let message =
            if self.is_count { format!("and {} more", self.count) } else { shorten(message) };
        Rejection { object: object.clone(), reason: *reason, message }
    }
}

/// How many places each may take, at least one, so that those who want few get all they want.
fn fair_share(mut wanted: Vec<usize>, mut places: usize) -> usize {
    wanted.sort_unstable();
    let mut others = wanted.len();
    for want in wanted {
        let share = (places / others).max(1);
        if want > share {
            return share;
        }
        places = places.saturating_sub(want);
        others -= 1;
    }
    usize::MAX
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use super::*;
    use crate::core::{
        model::{
            EventBatch, Kind, NodeContext, ObjectEvent, ObjectRef,
            fixture::{endpoint, import, key, slice},
        },
        rules::Rules,
        store::ObjectStore,
    };

    fn rejection(name: &str, message: &str) -> Rejection {
        Rejection {
            object: ObjectRef { kind: Kind::ServiceImport, key: key(name) },
            reason: RejectionReason::Malformed,
            message: message.to_owned(),
        }
    }

    /// Rejections of `count` objects of a namespace.
    fn of_objects(namespace: &str, count: usize) -> Vec<Rejection> {
        (0..count).map(|n| rejection(&format!("{namespace}/s{n:05}"), "no")).collect()
    }

    /// What the rules reject of a slice with 1,000 wrong endpoints.
    fn of_one_slice() -> Vec<Rejection> {
        let web = import("shop/web").ip("10.0.0.1").port("http", 80);
        let addresses = (0..1000).map(|n| format!("169.254.{}.{}", n / 250, 1 + n % 250));
        let endpoints = addresses.map(|address| endpoint(&address)).collect::<Vec<_>>();
        let slice = slice("shop/web-1", "web").port("http", 8080);
        let slice = crate::core::model::EndpointSlice { endpoints: endpoints.into(), ..slice };
        let events = vec![ObjectEvent::Apply(web.into()), ObjectEvent::Apply(slice.into())];
        let mut store = ObjectStore::default();
        store.apply(EventBatch { events, ..EventBatch::default() });
        let mut rules = Rules::default();
        rules.evaluate(&store.snapshot(), store.take_dirty(), &NodeContext::default(), None);
        rules.desired().rejections.clone()
    }

    /// What `log` writes.
    fn logged(rejections: &[Rejection]) -> Vec<String> {
        #[derive(Clone, Default)]
        struct Log(Arc<Mutex<Vec<u8>>>);
        impl io::Write for Log {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let written = Log::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, || log(rejections));
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn an_object_has_a_limited_number_of_lines() {
        let listed = ListedRejections::for_status(&of_one_slice());
        assert_eq!(listed.lines.len(), PER_OBJECT + 1);
        assert!(listed.lines[0].message.contains("is link-local"), "{:?}", listed.lines[0]);
        assert_eq!(listed.lines[PER_OBJECT].message, "and 990 more");
        assert_eq!(listed.omitted, 0);
        assert_eq!(*listed.counts, [(RejectionReason::EndpointForbidden, 1000)].into());
    }

    #[test]
    fn what_fits_is_listed_as_it_is() {
        let rejections = of_objects("shop", 20);
        let listed = ListedRejections::for_status(&rejections);
        assert_eq!((&*listed.lines, listed.omitted), (&rejections, 0));
    }

    #[test]
    fn a_namespace_takes_no_line_from_another() {
        let mut rejections = of_objects("hostile", 40_000);
        rejections.extend(of_objects("shop", 200));
        rejections.extend(of_objects("team", 300));
        let listed = ListedRejections::for_status(&rejections);
        let of = |namespace: &str| {
            let lines = listed.lines.iter();
            lines.filter(|line| *line.object.key.namespace == *namespace).count()
        };
        assert_eq!([of("hostile"), of("shop"), of("team")], [500, 200, 300]);
        assert_eq!(listed.omitted, 39_500);
        assert_eq!(listed.counts[&RejectionReason::Malformed], 40_500);
    }

    #[test]
    fn more_namespaces_than_lines_do_not_exceed_the_limit() {
        let of_namespace = |n: usize| of_objects(&format!("n{n:05}"), 2);
        let rejections: Vec<_> = (0..REPORTED + 5).flat_map(of_namespace).collect();
        let listed = ListedRejections::for_status(&rejections);
        assert_eq!((listed.lines.len(), listed.omitted), (REPORTED, REPORTED + 10));
    }

    #[test]
    fn a_long_message_is_cut() {
        let long = format!("{}ä", "x".repeat(499));
        let listed = ListedRejections::for_status(&[rejection("shop/web", &long)]);
        assert_eq!(listed.lines[0].message, format!("{}…", "x".repeat(499)));
    }

    #[test]
    fn a_round_logs_a_limited_number_of_lines() {
        assert_eq!(logged(&of_one_slice()).len(), PER_OBJECT + 1);
        let lines = logged(&of_objects("shop", 40_000));
        assert_eq!(lines.len(), LOGGED + 1);
        assert!(lines[0].contains("ServiceImport shop/s00000 rejected: no"), "{}", lines[0]);
        assert!(
            lines[LOGGED].contains("39900 more rejections are not logged"),
            "{}",
            lines[LOGGED]
        );
        assert_eq!(logged(&of_objects("shop", 3)).len(), 3);
    }
}
