//! Tables and texts, for people and pipes.

use std::{
    env,
    io::{self, IsTerminal as _, Write as _},
    os::fd::AsFd,
};

use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A table without lines, as kubectl prints it. Without a width each row is one line.
pub fn table(
    width: Option<u16>,
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header.iter().copied());
    match width {
        Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.add_rows(rows);
    table.trim_fmt()
}

/// A row of a table that is printed as it grows, with columns of these widths. Longer cells are cut unless `is_wide`.
pub fn growing_row<const N: usize>(
    widths: [usize; N],
    cells: &[String; N],
    is_wide: bool,
) -> String {
    let cells = widths.iter().zip(cells).map(|(&width, cell)| {
        if is_wide || cell.chars().count() <= width {
            return format!("{cell:width$}");
        }
        cell.chars().take(width - 1).chain(['…']).collect()
    });
    cells.collect::<Vec<_>>().join(" ").trim_end().to_owned()
}

/// The width of the terminal that the output goes to.
pub fn terminal_width() -> Option<u16> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let told = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let asked = || rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| size.ws_col);
    told.or_else(asked).filter(|columns| *columns > 0)
}

/// Prints text and a line break. A reader that closes early (`| head`) is no error.
pub fn print(text: &str) -> anyhow::Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Whether the output still has a reader. kubectl exec can leave a process behind that has nothing to print.
pub fn has_reader() -> bool {
    let gone = PollFlags::ERR | PollFlags::HUP;
    events(io::stdout(), PollFlags::empty()).is_none_or(|events| !events.intersects(gone))
}

/// Whether the output accepts a page (4 KiB) without a wait. An open pipe without a reader never does.
pub fn takes_output() -> bool {
    events(io::stdout(), PollFlags::OUT).is_none_or(|events| !events.is_empty())
}

/// Whether the parent has closed this program's input, or has ended.
pub fn input_ended() -> bool {
    events(io::stdin(), PollFlags::empty()).is_some_and(|events| events.contains(PollFlags::HUP))
}

/// The state of a stream; `None` if the kernel does not report it.
fn events(stream: impl AsFd, asked: PollFlags) -> Option<PollFlags> {
    let mut streams = [PollFd::new(&stream, asked)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut streams, Some(&now)).ok().map(|_| streams[0].revents())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_fits_the_terminal() {
        let row = vec!["shop/cart".to_owned(), "word ".repeat(60).trim_end().to_owned()];
        let render = |width| table(width, &["NAME", "REASON"], [row.clone()]);
        let wrapped = render(Some(80));
        assert!(wrapped.lines().all(|line| line.chars().count() <= 80), "{wrapped}");
        assert!(wrapped.lines().count() > 3, "{wrapped}");
        assert_eq!(render(None).lines().count(), 2);
    }

    #[test]
    fn a_growing_table_keeps_its_columns() {
        let cells = ["12:00".to_owned(), "shop/checkout".to_owned(), "-".to_owned()];
        assert_eq!(growing_row([6, 8, 3], &cells, false), "12:00  shop/ch… -");
        assert_eq!(growing_row([6, 8, 3], &cells, true), "12:00  shop/checkout -");
    }
}
