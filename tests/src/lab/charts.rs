//! Copies of the charts. That of `mcs` has its dependencies packed into it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::process;

/// What `helm dependency update` leaves in a chart.
const PACKED: [&str; 2] = ["charts", "Chart.lock"];

/// Copies of all charts in a directory. They are deleted when this is dropped.
pub struct Copies {
    directory: TempDir,
}

impl Copies {
    /// Copies what `charts` holds, each file changed. `helm` packs.
    pub fn new(helm: &Path, charts: &Path, change: &impl Fn(&str) -> String) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        copy_tree(charts, directory.path(), change)?;
        for entry in fs::read_dir(directory.path())? {
            // Without what a user has set for work of their own.
            let mut helm = Command::new(helm);
            helm.env_clear().env("HOME", "/nonexistent");
            helm.args(["dependency", "update", "--skip-refresh"]).arg(entry?.path());
            process::run(&mut helm, "")?;
        }
        Ok(Self { directory })
    }

    /// The directory of a chart.
    pub fn path(&self, chart: &str) -> PathBuf {
        self.directory.path().join(chart)
    }
}

/// Copies text files, each changed.
fn copy_tree(from: &Path, to: &Path, change: &impl Fn(&str) -> String) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if PACKED.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target, change)?;
        } else {
            fs::write(target, change(&fs::read_to_string(entry.path())?))?;
        }
    }
    Ok(())
}
