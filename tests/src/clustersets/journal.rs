//! All that API servers were asked and what has changed in them, in one order, and a number that says whether two histories are
//! the same.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher as _},
    sync::Arc,
};

use mcs_kube::testing::in_memory::Asked;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::store::Change;

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
    /// What a replica has written while another one led.
    rivals: Vec<String>,
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

    pub(super) fn note_rival(&self, said: String) {
        self.0.lock().rivals.push(said);
    }

    /// The first thing that a replica has written while another one led.
    pub(super) fn rival(&self) -> Option<String> {
        self.0.lock().rivals.first().cloned()
    }

    /// What has happened since the last call.
    pub(super) fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut self.0.lock().entries)
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
