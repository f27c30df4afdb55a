//! Agents on nodes that have had every address as a backend.

use std::{fs, path::Path};

use anyhow::{Context as _, ensure};
use mcs_agent::loader::Pins;

use crate::{site::Site, suite::skip, wait};

/// Starts the stopped agent of a site without its address filter, so that every address may be a backend. Waits until the
/// agent has rebuilt the filter. Skips where the kernel has no types, which that takes.
pub fn start(site: &mut Site, flags: &[&str]) -> anyhow::Result<()> {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(skip("the kernel has no types"));
    }
    fs::remove_file(Pins::new(site.bpffs.path()).hints())?;
    site.agent.start_again(flags)?;
    site.agent.wait_until_healthy()?;
    wait::until("a rebuild of the address filter", || {
        let status = site.agent.status()?;
        let filter = &status["report"]["address_filter"];
        ensure!(filter["rebuilt_at"].is_u64(), "{filter}");
        let number = |name: &str| filter["density"][name].as_u64().context("no density");
        ensure!(number("set")? < number("buckets")? / 8, "{filter}");
        Ok(())
    })
}
