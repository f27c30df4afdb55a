//! Prints tables, JSON and YAML, once or repeatedly.

use std::{
    io::{self, IsTerminal as _},
    process::ExitCode,
    thread,
    time::Duration,
};

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::table::{has_reader, print, table, terminal_width};
use crate::told;

/// The output format of a reading command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// For people; cells wrap at the width of the terminal
    Table,
    /// The same with every row on one line, and all rows
    Wide,
    /// For programs; fields are added, never renamed
    Json,
    /// The same as YAML
    Yaml,
}

/// How a command prints.
#[derive(Clone, Debug, Args)]
pub struct FormatArgs {
    /// Output format
    #[arg(short, long, env = "MCS_OUTPUT", value_name = "FORMAT", default_value = "table")]
    output: Format,
}

/// How a reading command prints.
#[derive(Clone, Debug, Args)]
pub struct OutputArgs {
    #[command(flatten)]
    format: FormatArgs,

    /// Print again every so many seconds, until interrupted
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
        require_equals = true, value_parser = clap::value_parser!(u64).range(1..=3600))]
    watch: Option<u64>,
}

impl Default for FormatArgs {
    fn default() -> Self {
        Self { output: Format::Table }
    }
}

impl FormatArgs {
    /// Prints a value: as a document, or as `table` prints it.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn show<T: Serialize>(
        &self,
        value: &T,
        table: impl Fn(&T, Style) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        match self.output {
            Format::Json => print(&serde_json::to_string_pretty(value)?),
            Format::Yaml => print(&format!("---\n{}", yaml(value)?.trim_end())),
            Format::Table => table(value, Style { width: terminal_width(), wide: false }),
            Format::Wide => table(value, Style { width: None, wide: true }),
        }
    }
}

impl OutputArgs {
    /// The format.
    pub const fn format(&self) -> Format {
        self.format.output
    }

    /// Prints what `read` returns: as a document, or as `table` prints it. With `--watch` an error is told, and `read` is tried
    /// again.
    ///
    /// # Errors
    /// That of `read` without `--watch`, or of the first one; or the output cannot be written.
    pub fn show<T: Serialize>(
        &self,
        read: impl Fn() -> anyhow::Result<T>,
        table: impl Fn(&T, Style) -> anyhow::Result<()>,
    ) -> anyhow::Result<T> {
        let show = |value: &T| {
            if self.watch.is_some() && io::stdout().is_terminal() {
                // Clears the screen.
                print("\x1b[H\x1b[2J\x1b[3J")?;
            }
            self.format.show(value, &table)
        };
        repeat(read, show, || {
            let Some(seconds) = self.watch.filter(|_| has_reader()) else { return false };
            thread::sleep(Duration::from_secs(seconds));
            true
        })
    }

    /// [`OutputArgs::show`] of a command that always succeeds.
    ///
    /// # Errors
    /// Those of [`OutputArgs::show`].
    pub fn print<T: Serialize>(
        &self,
        read: impl Fn() -> anyhow::Result<T>,
        table: impl Fn(&T, Style) -> anyhow::Result<()>,
    ) -> anyhow::Result<ExitCode> {
        self.show(read, table).map(|_| ExitCode::SUCCESS)
    }
}

/// Reads and shows a value, and does so again while `again` says so. The last value is the result. An error of the first reading
/// ends it: the caller is mistaken. Later on a server may be away for a while.
fn repeat<T>(
    read: impl Fn() -> anyhow::Result<T>,
    show: impl Fn(&T) -> anyhow::Result<()>,
    mut again: impl FnMut() -> bool,
) -> anyhow::Result<T> {
    let mut value = read()?;
    show(&value)?;
    while again() {
        match read() {
            Ok(next) => {
                show(&next)?;
                value = next;
            }
            Err(error) => eprintln!("{}; trying again", told(&error)),
        }
    }
    Ok(value)
}

/// Serialises by way of JSON's types, which both formats share.
fn yaml(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_saphyr::to_string(&serde_json::to_value(value)?)?)
}

/// How tables are printed.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// The columns of the terminal. In a pipe each row is one line.
    width: Option<u16>,
    /// Whether unimportant rows are printed too.
    pub wide: bool,
}

impl Style {
    /// Prints a table without lines, as kubectl does.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn table(
        self,
        header: &[&str],
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> anyhow::Result<()> {
        print(&table(self.width, header, rows))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use anyhow::bail;

    use super::*;

    #[test]
    fn a_server_that_is_away_for_a_while_ends_no_watch() {
        let (reads, shown) = (Cell::new(0), RefCell::new(Vec::new()));
        let read = || {
            reads.set(reads.get() + 1);
            if reads.get() == 2 {
                bail!("away");
            }
            Ok(reads.get())
        };
        let show = |value: &i32| {
            shown.borrow_mut().push(*value);
            Ok(())
        };
        assert_eq!(repeat(read, show, || reads.get() < 3).unwrap(), 3);
        assert_eq!(*shown.borrow(), [1, 3]);
        reads.set(1);
        assert!(repeat(read, show, || true).is_err(), "the first reading fails");
    }

    #[test]
    fn yaml_says_what_json_says() {
        let value =
            serde_json::json!({"state": "healthy", "ports": [80, 443], "port": null, "on": "off"});
        let text = yaml(&value).unwrap();
        assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&text).unwrap(), value, "{text}");
    }
}
