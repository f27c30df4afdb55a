//! Backends that do not answer clients of this node, by its own verdict, and connects that fail.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::SocketAddr,
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::ObjectKey;

/// Whether new clients get a backend that was found dead. The serialised names are stable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EjectionState {
    /// New clients get other backends.
    Ejected,
    /// The backend has one slot, until it answers a client.
    HalfOpen,
    /// New clients get it: it answers the agent, and no client of this node.
    AnswersAgent,
    /// A state of a later version, which this one reads in a report.
    #[serde(other)]
    Unknown,
}

/// Connects that have failed since they were told last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedConnects {
    /// The import that they were for.
    pub import: ObjectKey,
    /// The source cluster of their backend.
    pub cluster: Arc<str>,
    /// How many.
    pub count: u64,
}

/// The verdicts of this node, by import and address. The rules decide which of them count.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ejections(Arc<BTreeMap<ObjectKey, BTreeMap<SocketAddr, EjectionState>>>);

impl Ejections {
    /// The state of a backend that was found dead.
    pub fn state(&self, import: &ObjectKey, address: SocketAddr) -> Option<EjectionState> {
        self.0.get(import)?.get(&address).copied()
    }

    /// The imports about which the two differ.
    pub fn differing(&self, other: &Self) -> BTreeSet<ObjectKey> {
        let imports = self.0.keys().chain(other.0.keys());
        imports.filter(|import| self.0.get(import) != other.0.get(import)).cloned().collect()
    }
}

impl<'a> FromIterator<&'a Ejection> for Ejections {
    fn from_iter<I: IntoIterator<Item = &'a Ejection>>(ejections: I) -> Self {
        let mut all: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        let acted_on = |one: &&Ejection| one.state != EjectionState::AnswersAgent;
        for Ejection { import, backend, state, .. } in ejections.into_iter().filter(acted_on) {
            all.entry(import.clone()).or_default().insert(*backend, *state);
        }
        Self(Arc::new(all))
    }
}

/// A backend that was found dead. Part of `mcs-agent status -o json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ejection {
    /// The ServiceImport.
    pub import: ObjectKey,
    /// Its address.
    pub backend: SocketAddr,
    /// The source cluster; empty if its slice does not say.
    pub cluster: Arc<str>,
    /// Whether new clients get it.
    pub state: EjectionState,
    /// How often it was ejected lately.
    pub times: u32,
    /// New clients get it although it is ejected: half of the service's backends are ejected already, or it is the last one.
    #[serde(default)]
    pub used: bool,
}

impl Ejection {
    /// Whether new clients do not get it.
    pub fn is_out(&self) -> bool {
        self.state == EjectionState::Ejected && !self.used
    }
}

impl fmt::Display for Ejection {
    /// `10.2.0.1:80 (west) ejected, for the 2nd time`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, cluster, state, times, used, .. } = self;
        write!(f, "{backend}")?;
        if !cluster.is_empty() {
            write!(f, " ({cluster})")?;
        }
        f.write_str(match state {
            EjectionState::Ejected if *used => " does not answer, and is needed",
            EjectionState::Ejected => " ejected",
            EjectionState::HalfOpen => " half open",
            EjectionState::AnswersAgent => " answers the agent, and no client of this node",
            EjectionState::Unknown => " in a state that this version does not know",
        })?;
        if *times > 1 { write!(f, ", {times} times lately") } else { Ok(()) }
    }
}
