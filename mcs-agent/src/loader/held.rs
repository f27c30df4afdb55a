use std::{
    fs, io,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
};

use super::{
    pins::{move_aside, remove_file},
    sys,
};

/// What keeps a map or a link alive without its pin, and tells it from others.
#[derive(Debug)]
pub(super) struct Held {
    object: OwnedFd,
    identity: sys::Identity,
}

/// What became of a pin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PinState {
    /// It leads to what is held.
    Kept,
    /// There is none.
    Removed,
    /// Something else is there.
    Replaced,
}

impl Held {
    /// Holds an object.
    pub(super) fn new(object: OwnedFd) -> io::Result<Self> {
        let identity = sys::identity(object.as_fd())?;
        Ok(Self { object, identity })
    }

    /// Holds what is pinned at a path.
    pub(super) fn open(pin: &Path) -> io::Result<Self> {
        Self::new(sys::get_pinned(pin)?)
    }

    pub(super) const fn object(&self) -> &OwnedFd {
        &self.object
    }

    /// Compares what is pinned at a path.
    pub(super) fn state_of(&self, pin: &Path) -> PinState {
        match sys::get_pinned(pin).and_then(|found| sys::identity(found.as_fd())) {
            Ok(found) if found == self.identity => PinState::Kept,
            Err(error) if error.kind() == io::ErrorKind::NotFound => PinState::Removed,
            Ok(_) | Err(_) => PinState::Replaced,
        }
    }

    /// Pins the object, in the place of whatever is there. A directory is moved aside: what is in it
    /// is not ours.
    ///
    /// It is pinned at `scratch` first, on the same file system, and moved from there: a link that
    /// was pinned at the path is let go when the new one is in place.
    pub(super) fn pin(&self, pin: &Path, scratch: &Path) -> io::Result<()> {
        if let Some(directory) = pin.parent() {
            fs::create_dir_all(directory)?;
        }
        // What an agent left that was killed between the two steps below.
        remove_file(scratch)?;
        sys::pin(self.object.as_fd(), scratch)?;
        move_aside(pin)?;
        fs::rename(scratch, pin)
    }
}
