//! What the cases have seen, as a table.

use std::fmt::Write as _;

use crate::{load::Outcome, prelude::*};

/// A line of the table.
pub(crate) struct Row {
    setting: Setting,
    order: Order,
    /// Exchanges by which clients reached every backend.
    pub(crate) exchanges: u64,
    pub(crate) refused: bool,
    pub(crate) load: Option<Outcome>,
    /// Whether an uninstall left the nodes as they were before the agents came.
    pub(crate) unchanged: bool,
}

impl Row {
    pub(crate) const fn new(setting: Setting, order: Order) -> Self {
        Self { setting, order, exchanges: 0, refused: false, load: None, unchanged: false }
    }

    pub(crate) fn is_of(&self, setting: Setting, order: Order) -> bool {
        self.setting == setting && self.order == order
    }
}

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("what was seen, as a table", |world| print(&world.rows));
}

/// Prints the table. With `MCS_BLESS=1` it is written into `tests/results/cni.md` too.
fn print(rows: &[Row]) -> Result {
    if rows.is_empty() {
        return Err(skip("no case has seen anything"));
    }
    let mut table = "| CNI | order | sockets | packets | refusals | replaced under load: exchanges / failed | \
                     datagrams past sockets / on the wire | uninstall |\n|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for row in rows {
        let Row { setting, order, exchanges, refused, load, unchanged } = row;
        let not_run = || "not run".to_owned();
        let reached = if *exchanges > 0 { "all backends".to_owned() } else { not_run() };
        let refused = if *refused { "at once".to_owned() } else { not_run() };
        let under_load = load.map_or_else(not_run, |load| format!("{} / 0", load.answers));
        let wire = load.map_or_else(not_run, |load| format!("{} / 0", load.sent));
        let unchanged = if *unchanged { "as before" } else { "" };
        let packets = setting.packets;
        writeln!(
            table,
            "| {setting} | {order} | {reached} | {packets} | {refused} | {under_load} | {wire} | {unchanged} |"
        )?;
    }
    tell_table(&table, "cni.md")
}
