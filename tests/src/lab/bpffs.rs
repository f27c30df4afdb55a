//! Directories on the BPF file system.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use rustix::fs::statfs;

use crate::{process, run::Run};

const MOUNT: &str = "/sys/fs/bpf";
/// `BPF_FS_MAGIC` of `include/uapi/linux/magic.h`.
const MAGIC: u64 = 0xcafe_4a11;

/// A directory of the run. What is pinned in it goes with it when this is dropped.
#[derive(Debug)]
pub struct BpfDirectory {
    path: PathBuf,
}

impl BpfDirectory {
    /// Makes one, on a file system that is mounted if it was not.
    pub fn create(run: &Run, role: &str) -> anyhow::Result<Self> {
        mount()?;
        // A dot is not allowed in names there.
        let path = Path::new(MOUNT).join(run.name(role));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for BpfDirectory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("cannot remove {}: {error}", self.path.display());
        }
    }
}

fn mount() -> anyhow::Result<()> {
    #[expect(clippy::cast_sign_loss, reason = "magic numbers are 32 bits; the field is a long")]
    let mounted = statfs(MOUNT)?.f_type as u64 & 0xffff_ffff == MAGIC;
    if !mounted {
        process::run(Command::new("mount").args(["-t", "bpf", "bpf", MOUNT]), "")?;
    }
    Ok(())
}

pub(crate) fn remove_leftovers(is_leftover: &dyn Fn(&str) -> bool) -> anyhow::Result<()> {
    for entry in fs::read_dir(MOUNT)? {
        let entry = entry?;
        if is_leftover(&entry.file_name().to_string_lossy()) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}
