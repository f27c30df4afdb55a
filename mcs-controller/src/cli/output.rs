//! Prints tables and JSON.

use clap::ValueEnum;
use mcs_kube::program::{self, print, terminal_width};
use serde::Serialize;

/// The output format of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Format {
    /// For people
    Table,
    /// For programs; fields are added, never renamed
    Json,
}

/// Prints a value as indented JSON.
pub(super) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&serde_json::to_string_pretty(value)?)
}

/// Prints a table. Cells wrap on a terminal only.
pub(super) fn table(
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> anyhow::Result<()> {
    print(&program::table(terminal_width(), header, rows))
}
