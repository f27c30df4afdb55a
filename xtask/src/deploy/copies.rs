//! Copies of the charts, with those that `mcs` depends on packed into it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::{CHARTS, helm, printed};
use crate::workspace::Workspace;

/// What `helm dependency update` leaves in a chart.
const PACKED: [&str; 2] = ["charts", "Chart.lock"];

/// Copies of all charts in a directory.
pub(crate) struct Copies {
    directory: TempDir,
}

impl Copies {
    /// Copies them, each file changed.
    pub(crate) fn new(workspace: &Workspace, change: &impl Fn(&str) -> String) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        copy_tree(&workspace.root.join("deploy/helm"), directory.path(), change)?;
        let copies = Self { directory };
        for chart in CHARTS {
            let mut helm = helm(workspace)?;
            helm.args(["dependency", "update", "--skip-refresh"]).arg(copies.path(chart.name));
            printed(&mut helm)?;
        }
        Ok(copies)
    }

    /// The directory of a chart.
    pub(crate) fn path(&self, chart: &str) -> PathBuf {
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
