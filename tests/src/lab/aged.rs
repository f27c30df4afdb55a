//! Agents on nodes that have had every address as a backend.

use mcs_agent::core::kernel::{flows::FlowPins, sockets::addresses_in_use};

use crate::prelude::*;

/// Starts the stopped agent of a site without its address filter, so that every address may be a backend. Waits until the
/// agent has rebuilt the filter. Skips where the kernel has no types, or does not permit the iterator, which that takes.
pub fn start(site: &mut Site, flags: &[&str]) -> Result {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(skip("the kernel has no types"));
    }
    fs::remove_file(Pins::new(site.bpffs.path()).hints())?;
    site.agent.come_back(flags)?;
    let state = Pins::new(site.bpffs.path()).state();
    // Some machines' kernels refuse the iterator over socket storage, also to this process, which may do everything.
    if let Err(error) = addresses_in_use(&state, &FlowPins::in_state(&state)) {
        ensure!(error.kind() == ErrorKind::PermissionDenied, "{error}");
        return Err(skip("the kernel permits nobody to look into socket storage"));
    }
    wait::until("a rebuild of the address filter", || {
        let status = site.agent.status()?;
        let filter = &status["report"]["address_filter"];
        ensure!(filter["rebuilt_at"].is_u64(), "{filter}");
        let number = |name: &str| filter["density"][name].as_u64().context("no density");
        ensure!(number("set")? < number("buckets")? / 8, "{filter}");
        Ok(())
    })
}
