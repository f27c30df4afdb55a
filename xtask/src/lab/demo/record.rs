//! Records the demonstration: what it prints, as a cast and as a picture.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

mod terminal;

use crate::screen::Printed;

/// Writes what was printed to `demo.cast`, which asciinema plays, and to `demo.svg`.
pub(super) fn write_terminal(printed: &[Printed], directory: &Path) -> Result<()> {
    write(directory, "demo.cast", &terminal::cast(printed))?;
    write(directory, "demo.svg", &terminal::picture(printed))
}

fn write(directory: &Path, name: &str, text: &str) -> Result<()> {
    let file = directory.join(name);
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(&file, text))
        .with_context(|| format!("cannot write {}", file.display()))
}
