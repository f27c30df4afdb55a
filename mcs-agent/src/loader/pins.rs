use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::attach::HOOKS;

/// Where things are pinned: `<bpffs>/mcs/{config,state,links}`.
#[derive(Clone, Debug)]
pub struct Pins {
    root: PathBuf,
}

/// What `cleanup` removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cleaned {
    /// Programs detached.
    pub links: usize,
    /// Maps unpinned.
    pub maps: usize,
}

impl Pins {
    /// The pins under a bpffs mount, or under a directory of one.
    pub fn new(bpffs: &Path) -> Self {
        Self { root: bpffs.join("mcs") }
    }

    /// The directory that all pins are in.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The maps that the agent writes.
    pub fn config(&self) -> PathBuf {
        self.root.join("config")
    }

    /// Config maps that are being filled beside the live ones.
    pub fn staged_config(&self) -> PathBuf {
        self.root.join("config-new")
    }

    /// Config maps that the programs no longer read.
    pub fn old_config(&self) -> PathBuf {
        self.root.join("config-old")
    }

    /// The maps that the programs write.
    pub fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    /// The attachments.
    pub fn links(&self) -> PathBuf {
        self.root.join("links")
    }

    /// The attachment of one hook.
    pub fn link(&self, hook: &str) -> PathBuf {
        self.links().join(hook)
    }

    /// An attachment of one hook that is about to replace [`Pins::link`]. (No dots: bpffs refuses
    /// names that have one.)
    pub(super) fn new_link(&self, hook: &str) -> PathBuf {
        self.links().join(format!("{hook}-new"))
    }

    /// Makes the directories.
    pub fn create(&self) -> io::Result<()> {
        for directory in [self.state(), self.links()] {
            fs::create_dir_all(directory)?;
        }
        Ok(())
    }

    /// Removes all that is ours and nothing else: first the attachments, so that no program runs
    /// without its maps.
    pub fn clean(&self) -> io::Result<Cleaned> {
        let links = HOOKS.iter().flat_map(|hook| [self.link(hook.name), self.new_link(hook.name)]);
        let links = remove_files(links)?;
        remove_directory(&self.links())?;
        let mut maps = 0;
        for directory in [self.config(), self.staged_config(), self.old_config(), self.state()] {
            maps += remove_map_directory(&directory)?;
        }
        remove_directory(&self.root)?;
        Ok(Cleaned { links, maps })
    }
}

/// Removes a directory of pinned maps. Absent is as good.
pub(super) fn remove_map_directory(directory: &Path) -> io::Result<usize> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let paths =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    let removed = remove_files(paths.into_iter())?;
    remove_directory(directory)?;
    Ok(removed)
}

fn remove_files(paths: impl Iterator<Item = PathBuf>) -> io::Result<usize> {
    let mut removed = 0;
    for path in paths {
        match fs::remove_file(path) {
            Ok(()) => removed += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}

fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
