//! Finds cgroups by the ids in the events.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Instant,
};

use crate::core::kernel::loader::children;

/// After a walk through all cgroups the next one waits this many times as long as it took. Events can name removed cgroups,
/// which no walk finds.
const REST: u32 = 20;

/// The cgroups below a mount, by id: the inode of the directory.
pub(super) struct Cgroups {
    root: PathBuf,
    known: HashMap<u64, PathBuf>,
    rests_until: Option<Instant>,
}

impl Cgroups {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, known: HashMap::new(), rests_until: None }
    }

    /// The path of a cgroup below the mount. One that has been removed keeps the path that it had.
    pub(super) fn path(&mut self, id: u64) -> Option<&Path> {
        let rests = self.rests_until.is_some_and(|until| Instant::now() < until);
        if !self.known.contains_key(&id) && !rests {
            self.read();
        }
        self.known.get(&id).map(PathBuf::as_path)
    }

    fn read(&mut self) {
        let began = Instant::now();
        let mut rest = vec![self.root.clone()];
        while let Some(directory) = rest.pop() {
            if let Ok(metadata) = fs::metadata(&directory) {
                let below = directory.strip_prefix(&self.root).unwrap_or(&directory);
                self.known.insert(metadata.ino(), Path::new("/").join(below));
            }
            rest.extend(children(&directory));
        }
        self.rests_until = Some(began + began.elapsed() * (REST + 1));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_cgroup_is_found_by_its_inode() {
        let directory = tempfile::tempdir().unwrap();
        let mut cgroups = Cgroups::new(directory.path().to_owned());
        assert_eq!(cgroups.path(1), None);
        let made = directory.path().join("a/b");
        fs::create_dir_all(&made).unwrap();
        let id = fs::metadata(&made).unwrap().ino();
        cgroups.rests_until = Some(Instant::now() + Duration::from_mins(1));
        assert_eq!(cgroups.path(id), None, "it rests");
        cgroups.rests_until = None;
        assert_eq!(cgroups.path(id), Some(Path::new("/a/b")));
    }
}
