//! Events about changes of state, for people who look at an object with `kubectl describe`.

use std::{
    collections::{HashMap, hash_map::DefaultHasher},
    hash::{Hash as _, Hasher as _},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use mcs_kube::reasons::{Coded as _, Reason, link};
use serde_json::json;

use crate::core::{
    apply::{Action, Request, TokenBucket},
    clusterset::{ServiceName, well_known},
    objects::MCS_GROUP,
};

/// The same event about one object is not repeated within this time.
const REPEATS: Duration = Duration::from_mins(10);
/// The burst of events, and the events a second after it.
const BURST: u32 = 50;
const RATE: u32 = 1;
/// The API allows so many bytes in `note`.
const LONGEST_NOTE: usize = 1024;
/// The namespace of events about objects that have none.
const CLUSTER_NAMESPACE: &str = "default";

/// The object that an event is about.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Regarding {
    /// Group and version.
    pub api_version: String,
    /// Its kind.
    pub kind: &'static str,
    /// `None` for an object of the whole cluster.
    pub namespace: Option<String>,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
}

impl Regarding {
    /// An object of the MCS API for a service, in this version.
    pub(crate) fn service(
        kind: &'static str,
        version: &str,
        name: &ServiceName,
        uid: String,
    ) -> Self {
        Self {
            api_version: format!("{MCS_GROUP}/{version}"),
            kind,
            namespace: Some(name.namespace().to_owned()),
            name: name.name().to_owned(),
            uid,
        }
    }
}

/// A message about an object.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Notice {
    /// The object.
    pub regarding: Regarding,
    /// Whether somebody has to do something.
    pub is_warning: bool,
    /// A word for programs.
    pub reason: String,
    /// An explanation for people.
    pub note: String,
}

impl Notice {
    /// The table says whether there is something to do.
    pub(crate) fn new(regarding: Regarding, reason: Reason, note: String) -> Self {
        let is_warning = !reason.advice().is_empty();
        Self { regarding, is_warning, reason: reason.to_string(), note }
    }
}

/// Limits the events: each notice once in a while, and a rate for all.
#[derive(Debug)]
pub struct EventBudget {
    said: HashMap<u64, Instant>,
    bucket: TokenBucket,
}

impl EventBudget {
    /// Before the first event.
    pub fn new(now: Instant) -> Self {
        Self { said: HashMap::new(), bucket: TokenBucket::full(BURST, RATE, now) }
    }

    /// Whether a notice becomes an event.
    pub fn take(&mut self, notice: &Notice, now: Instant) -> bool {
        self.said.retain(|_, at| now.saturating_duration_since(*at) < REPEATS);
        let mut hasher = DefaultHasher::new();
        notice.hash(&mut hasher);
        let key = hasher.finish();
        if self.said.contains_key(&key) || !self.bucket.wait(now).is_zero() {
            return false;
        }
        self.bucket.spend(1.0, now);
        self.said.insert(key, now);
        true
    }
}

/// The request that creates an event. `replica`: the reporter.
pub fn event(notice: &Notice, replica: &str, now: Timestamp) -> Request {
    let Notice { regarding, is_warning, reason, note } = notice;
    let namespace = regarding.namespace.as_deref().unwrap_or(CLUSTER_NAMESPACE);
    // A name has 253 characters at most, and this suffix 17.
    let base = &regarding.name[..regarding.name.floor_char_boundary(230)];
    let name = format!("{base}.{:016x}", fastrand::u64(..));
    let see = if *is_warning { format!(" ({})", link(reason)) } else { String::new() };
    let note = format!("{}{see}", &note[..note.floor_char_boundary(LONGEST_NOTE - see.len())]);
    let object = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "name": name},
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
        "reportingController": well_known::CONTROLLER,
        "reportingInstance": replica,
        "action": "Reconcile",
        "type": if *is_warning { "Warning" } else { "Normal" },
        "reason": reason,
        "note": note,
        "regarding": {
            "apiVersion": regarding.api_version,
            "kind": regarding.kind,
            "namespace": regarding.namespace,
            "name": regarding.name,
            "uid": regarding.uid,
        },
    });
    let api = ("events.k8s.io", "v1", "Event", "events");
    Request::new(api, Some(namespace), &name, Action::Create(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(note: &str) -> Notice {
        let regarding = Regarding {
            api_version: "multicluster.x-k8s.io/v1beta1".to_owned(),
            kind: "ServiceExport",
            namespace: Some("shop".to_owned()),
            name: "web".to_owned(),
            uid: "u".to_owned(),
        };
        let (reason, note) = ("Conflict".to_owned(), note.to_owned());
        Notice { regarding, is_warning: true, reason, note }
    }

    #[test]
    fn nothing_is_said_twice_in_a_row() {
        let now = Instant::now();
        let mut budget = EventBudget::new(now);
        assert!(budget.take(&notice("a"), now));
        assert!(!budget.take(&notice("a"), now));
        assert!(budget.take(&notice("b"), now));
        assert!(budget.take(&notice("a"), now + REPEATS), "it is the case again");
    }

    #[test]
    fn events_are_bounded() {
        let now = Instant::now();
        let mut budget = EventBudget::new(now);
        let mut said = |from: u32, now| {
            (from..from + 1000)
                .filter(|number| budget.take(&notice(&number.to_string()), now))
                .count()
        };
        assert_eq!(said(0, now), 50);
        assert_eq!(said(1000, now + Duration::from_secs(10)), 10);
    }

    #[test]
    fn a_note_is_cut_to_what_the_api_takes() {
        let request = event(&notice(&"ä".repeat(2000)), "replica", Timestamp::UNIX_EPOCH);
        let Action::Create(object) = &request.action else { panic!("{request:?}") };
        assert_eq!(object["note"].as_str().unwrap().len(), LONGEST_NOTE);
        assert_eq!(request.namespace.as_deref(), Some("shop"));
        let mut about_peer = notice("x");
        about_peer.regarding.namespace = None;
        let request = event(&about_peer, "replica", Timestamp::UNIX_EPOCH);
        assert_eq!(request.namespace.as_deref(), Some("default"));
    }
}
