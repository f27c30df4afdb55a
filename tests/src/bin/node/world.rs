//! What the cases share.

use std::path::PathBuf;

use anyhow::Context as _;
use mcs_tests::run::Run;

pub(crate) struct World {
    _run: Run,
}

impl World {
    /// Makes everything, and tells where logs are.
    pub(crate) fn begin() -> anyhow::Result<(Self, PathBuf)> {
        let run =
            Run::begin("mcs-node").context("cannot make a cgroup to run in (it takes root)")?;
        let logs = run.directory().to_owned();
        Ok((Self { _run: run }, logs))
    }
}
