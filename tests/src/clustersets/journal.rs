//! All that API servers were asked and what has changed in them, in one order, and a number that says whether two histories are
//! the same.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher as _},
    mem,
    sync::Arc,
    time::Duration,
};

use mcs_kube::testing::in_memory::Asked;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    member::{NAMESPACE, holder},
    store::Change,
};

/// How long one request is counted.
const COUNTED: Duration = Duration::from_mins(10);
/// How often a program may send one request meanwhile: once a second.
const OFTEN: u32 = 600;

/// What has happened.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) cluster: String,
    /// The cluster whose controller has done it; empty: somebody else.
    pub(super) by: String,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Changed(Arc<Change>),
    /// A write was asked for, and this was the answer.
    Asked {
        verb: &'static str,
        plural: &'static str,
        path: String,
        code: u16,
    },
}

/// A journal, which all servers of a story share.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal(Arc<Mutex<Pages>>);

#[derive(Debug, Default)]
struct Pages {
    began: Option<Instant>,
    entries: Vec<Entry>,
    hasher: DefaultHasher,
    /// What is hashed, as text, if somebody compares two histories.
    lines: Option<Vec<String>>,
    /// What was written in a wrong form.
    malformed: Vec<String>,
    /// The replica that leads in each cluster that has several.
    leaders: BTreeMap<String, String>,
    /// What a replica has written while another one led.
    rivals: Vec<String>,
    /// The controllers that die after so many writes.
    doomed: BTreeMap<String, u32>,
    /// How often each request was sent, and since when that is counted.
    asked: HashMap<u64, u32>,
    counted: Option<Instant>,
    /// What was asked too often.
    storms: Vec<String>,
    /// How many requests had which answer.
    answers: BTreeMap<(&'static str, u16), u64>,
}

/// The name of the cluster of a host.
fn cluster(host: &str) -> &str {
    host.trim_end_matches(".test")
}

impl Journal {
    /// Keeps all that is hashed.
    pub(super) fn keep_lines(&self) {
        self.0.lock().lines.get_or_insert_default();
    }

    pub(super) fn note_change(&self, host: &str, by: &str, change: &Arc<Change>) {
        let mut pages = self.0.lock();
        let after = change.after.as_deref();
        pages.note((host, by, &change.key, after), || {
            format!("{host} {by} {:?} {}", change.key, text(after))
        });
        let (cluster, by) = (cluster(host).to_owned(), by.to_owned());
        let (plural, namespace, name) = &change.key;
        if *plural == "leases" && namespace == NAMESPACE && name == "mcs-controller" {
            let leader = after.and_then(|lease| lease["spec"]["holderIdentity"].as_str());
            match leader {
                Some(leader) => pages.leaders.insert(cluster.clone(), leader.to_owned()),
                None => pages.leaders.remove(&cluster),
            };
        }
        pages.entries.push(Entry { cluster, by, what: What::Changed(Arc::clone(change)) });
    }

    pub(super) fn note_request(
        &self,
        host: &str,
        (verb, plural): (&'static str, &'static str),
        asked: &Asked,
        code: u16,
    ) {
        let mut pages = self.0.lock();
        let Asked { path, query, token, body, .. } = asked;
        pages.note((host, token, verb, path, query, &body[..], code), || {
            let body = String::from_utf8_lossy(body);
            format!("{host} {token} {verb} {path} {query:?} {body} {code}")
        });
        *pages.answers.entry((verb, code)).or_default() += 1;
        if !matches!(verb, "get" | "list" | "watch") {
            let (cluster, by, path) = (cluster(host).to_owned(), token.clone(), path.clone());
            let what = What::Asked { verb, plural, path, code };
            pages.entries.push(Entry { cluster, by, what });
        }
    }

    pub(super) fn note_malformed(&self, refusal: String) {
        self.0.lock().malformed.push(refusal);
    }

    /// The first thing that was written in a wrong form.
    pub(super) fn malformed(&self) -> Option<String> {
        self.0.lock().malformed.first().cloned()
    }

    /// A request has arrived. `is_write`: it is one for the leader alone.
    pub(super) fn note_arrival(&self, host: &str, asked: &Asked, is_write: bool) {
        let mut pages = self.0.lock();
        let Asked { method, path, token, .. } = asked;
        let (of, replica) = holder(token);
        if let (Some(replica), Some(leader)) = (replica, pages.leaders.get(of))
            && is_write
            && leader != replica
        {
            let said = format!("{method} {path} by {replica} of {of}, and {leader} leads");
            pages.rivals.push(said);
        }
        let now = Instant::now();
        if pages.counted.is_none_or(|since| now - since >= COUNTED) {
            pages.counted = Some(now);
            pages.asked.clear();
        }
        let is_watch = asked.query.contains_key("watch");
        let mut hasher = DefaultHasher::new();
        (host, token, method, path, is_watch).hash(&mut hasher);
        let count = pages.asked.entry(hasher.finish()).or_default();
        *count += 1;
        if *count == OFTEN {
            let verb = if is_watch { "watch" } else { method.as_str() };
            pages.storms.push(format!("{of} asks {host} {OFTEN} times: {verb} {path}"));
        }
    }

    /// The first thing that was asked too often.
    pub(super) fn storm(&self) -> Option<String> {
        self.0.lock().storms.first().cloned()
    }

    /// The controller or replica with this token dies after so many writes.
    pub(super) fn doom(&self, token: &str, writes: u32) {
        self.0.lock().doomed.insert(token.to_owned(), writes);
    }

    /// Whether one that is doomed is dead. A write brings it nearer.
    pub(super) fn is_dead(&self, token: &str, is_write: bool) -> bool {
        let mut pages = self.0.lock();
        let Some(left) = pages.doomed.get_mut(token) else { return false };
        let is_dead = *left == 0;
        *left -= u32::from(is_write && !is_dead);
        is_dead
    }

    /// The controllers and replicas that have died.
    pub(super) fn take_dead(&self) -> Vec<String> {
        let mut pages = self.0.lock();
        let dead = pages.doomed.extract_if(.., |_, left| *left == 0);
        dead.map(|(token, _)| token).collect()
    }

    /// Nobody dies any more.
    pub(super) fn spare(&self) {
        self.0.lock().doomed.clear();
    }

    /// The first thing that a replica has written while another one led.
    pub(super) fn rival(&self) -> Option<String> {
        self.0.lock().rivals.first().cloned()
    }

    /// What has happened since the last call.
    pub(super) fn take(&self) -> Vec<Entry> {
        mem::take(&mut self.0.lock().entries)
    }

    /// The same for two histories if they are the same.
    pub(super) fn hash(&self) -> u64 {
        self.0.lock().hasher.finish()
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.0.lock().lines.clone().unwrap_or_default()
    }

    /// How many requests had which answer.
    pub(super) fn answers(&self) -> BTreeMap<(&'static str, u16), u64> {
        self.0.lock().answers.clone()
    }
}

impl Pages {
    fn note(&mut self, what: impl Hash, line: impl FnOnce() -> String) {
        let began = *self.began.get_or_insert_with(Instant::now);
        let at = began.elapsed().as_micros();
        (at, what).hash(&mut self.hasher);
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{at} {}", line()));
        }
    }
}

fn text(object: Option<&serde_json::Value>) -> String {
    object.map(ToString::to_string).unwrap_or_default()
}
