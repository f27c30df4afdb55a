//! A lock on a set of clusters, so that one process at a time starts or removes it.

use std::os::{
    linux::net::SocketAddrExt as _,
    unix::net::{SocketAddr, UnixListener},
};

use anyhow::Context as _;

use super::layout::ClusterSet;

/// The right to start and to remove a set. Nobody else has it while this lives; it goes with its
/// process, whatever becomes of that.
#[derive(Debug)]
pub struct Claim {
    set: ClusterSet,
    _name: UnixListener,
}

impl Claim {
    /// An error if somebody has it.
    pub fn take(set: ClusterSet) -> anyhow::Result<Self> {
        let name = SocketAddr::from_abstract_name(set.name())?;
        let name = UnixListener::bind_addr(&name)
            .with_context(|| format!("another process starts, removes or tests {}", set.name()))?;
        Ok(Self { set, _name: name })
    }

    /// What it is for.
    pub const fn set(&self) -> ClusterSet {
        self.set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait;

    #[test]
    fn one_at_a_time() {
        let set = ClusterSet::UNIT_TEST;
        let claim = Claim::take(set).unwrap();
        assert!(Claim::take(set).is_err());
        drop(claim);
        // A process that another test starts has it, too, until it executes its program.
        wait::until("the claim to be free", || Claim::take(set)).unwrap();
    }
}
