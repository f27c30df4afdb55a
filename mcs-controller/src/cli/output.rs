//! Prints tables and JSON, as the agent does.

use std::io::{self, IsTerminal as _, Write as _};

use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets::NOTHING};
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

/// Prints a table without lines, as kubectl does.
pub(super) fn table(
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> anyhow::Result<()> {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header.iter().copied());
    // Cells wrap on a terminal only: in a pipe each row is one line.
    table.set_content_arrangement(if io::stdout().is_terminal() {
        ContentArrangement::Dynamic
    } else {
        ContentArrangement::Disabled
    });
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.add_rows(rows);
    print(&table.trim_fmt())
}

/// Prints text and a line break. A reader that closes early (`| head`) is no error.
fn print(text: &str) -> anyhow::Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
