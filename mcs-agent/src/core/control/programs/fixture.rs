//! Programs on a kernel in memory, with pins, a cgroup and a run directory of their own.

use std::{fs, sync::Arc};

use anyhow::Context as _;
use tempfile::TempDir;

use super::InstalledPrograms;
use crate::core::{
    control::{Config, kernel::testing::Kernel, run_directory::run_directory},
    feature::ChosenFeatures,
    kernel::loader::{CgroupRoot, DirectoryLock, Features, Pins},
    model::fixture::plain_node,
};

/// Where one agent runs.
pub(crate) struct Site {
    pub(crate) directory: TempDir,
    pub(crate) config: Config,
    pub(crate) features: ChosenFeatures,
    pub(crate) kernel: Arc<Kernel>,
}

impl Site {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let node = plain_node().facts;
        let config = Config { node, ..Config::in_directory(directory.path()) };
        let pins = Pins::new(&config.bpffs);
        fs::create_dir(pins.root()).unwrap();
        let features = ChosenFeatures::with(&[], &[]);
        let site = Self { directory, config, features, kernel: Kernel::of(pins.root()) };
        site.make_cgroup();
        site
    }

    pub(crate) fn make_cgroup(&self) {
        let cgroup = self.directory.path().join("cgroup");
        fs::create_dir(&cgroup).unwrap();
        // Every cgroup of version 2 has this file.
        fs::write(cgroup.join("cgroup.controllers"), "").unwrap();
    }

    pub(crate) async fn install(&self) -> anyhow::Result<InstalledPrograms> {
        let config = self.config.clone();
        let pins = Pins::new(&config.bpffs);
        let lock = DirectoryLock::try_take(pins.root())?.context("another agent runs")?;
        let cgroup = CgroupRoot::find(config.cgroup_root.as_deref())?;
        let run_directory = run_directory(&config, &pins)?;
        let (host, features) = ("n1".to_owned(), Features::ALL);
        let settings = self.features.settings(&config)?;
        InstalledPrograms::install(
            config,
            settings,
            host,
            cgroup,
            pins,
            lock,
            run_directory,
            features,
        )
        .await
    }
}
