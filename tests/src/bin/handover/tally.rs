//! Counts conversations, new connections and failures, by kind and family.

use serde::{Deserialize, Serialize};

use crate::prelude::*;

/// Of this many failures the text is kept.
const TEXTS: usize = 12;

/// The counts of clients of one kind and family.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Conversations that went on.
    pub(crate) conversations: u32,
    /// Their exchanges.
    pub(crate) exchanges: u32,
    /// New connections, and new sockets.
    pub(crate) new: u32,
    /// Conversations that broke, and new connections that were refused or timed out.
    pub(crate) failed: u32,
    /// Conversations that another backend went on with.
    pub(crate) moved: u32,
    /// Datagrams that had no answer.
    pub(crate) lost: u32,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.conversations += other.conversations;
        self.exchanges += other.exchanges;
        self.new += other.new;
        self.failed += other.failed;
        self.moved += other.moved;
        self.lost += other.lost;
    }
}

/// The counts of all kinds and families, by [`row`], and what failed.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Tally {
    pub(crate) rows: BTreeMap<String, Counts>,
    /// The first failures.
    pub(crate) failures: Vec<String>,
}

/// The name of a kind and family in a table.
pub(crate) fn row(kind: Kind, family: Family) -> String {
    format!("{kind}, {family}")
}

impl Tally {
    /// The counts of a kind and family.
    pub(crate) fn of(&mut self, kind: Kind, family: Family) -> &mut Counts {
        self.rows.entry(row(kind, family)).or_default()
    }

    /// Counts a failure.
    pub(crate) fn fail(&mut self, kind: Kind, family: Family, text: String) {
        self.of(kind, family).failed += 1;
        if self.failures.len() < TEXTS {
            self.failures.push(text);
        }
    }

    /// Adds the counts of other clients, whose failures are told of as those of `who`.
    pub(crate) fn add(&mut self, other: &Self, who: &str) {
        for (row, counts) in &other.rows {
            self.rows.entry(row.clone()).or_default().add(counts);
        }
        self.failures.extend(other.failures.iter().map(|text| format!("{who}: {text}")));
    }

    /// The sum of all rows.
    pub(crate) fn total(&self) -> Counts {
        let mut total = Counts::default();
        self.rows.values().for_each(|counts| total.add(counts));
        total
    }
}
