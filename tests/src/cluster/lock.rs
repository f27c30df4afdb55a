//! One at a time.

use std::os::{
    linux::net::SocketAddrExt as _,
    unix::net::{SocketAddr, UnixListener},
};

use anyhow::Context as _;

use super::layout::ClusterSet;

/// Nobody else starts or removes a set while this lives. It goes with its process, whatever becomes
/// of that.
pub(super) struct Lock {
    set: ClusterSet,
    _name: UnixListener,
}

impl Lock {
    /// An error if somebody has it.
    pub(super) fn take(set: ClusterSet) -> anyhow::Result<Self> {
        let name = SocketAddr::from_abstract_name(set.name())?;
        let name = UnixListener::bind_addr(&name)
            .with_context(|| format!("{} is being started or removed", set.name()))?;
        Ok(Self { set, _name: name })
    }

    /// What it is for.
    pub(super) const fn set(&self) -> ClusterSet {
        self.set
    }
}
