//! Hands VIPs back without an agent: before its programs are removed.

use std::{io, path::Path};

use mcs_common::{Address, FrontendKey, VipMode, maps};

use crate::core::kernel::bpf::PinnedHash;

/// Hands back every VIP of the maps in this directory, served or refused: the programs translate the packets of flows,
/// and pass all others. It removes the frontends, because sockets find them whatever the mode is.
/// A directory without maps counts as success.
pub fn hand_back_vips(directory: &Path) -> io::Result<()> {
    let pin = directory.join(maps::VIPS);
    if !pin.exists() {
        return Ok(());
    }
    let mut vips: PinnedHash<Address, u32> = PinnedHash::open(&pin)?;
    let mut held = Vec::new();
    vips.for_each(|vip, mode| held.extend((!VipMode::passes(mode)).then_some(vip)))?;
    held.iter().try_for_each(|vip| vips.set(vip, VipMode::HANDED_BACK))?;

    let mut frontends: PinnedHash<FrontendKey, u32> =
        PinnedHash::open(&directory.join(maps::FRONTENDS))?;
    let mut keys = Vec::new();
    frontends.for_each(|key, _| keys.push(key))?;
    keys.iter().try_for_each(|key| frontends.remove(key))
}
