//! Finds cgroups by the ids that the programs tell, and the pods that they belong to.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Instant,
};

/// After a look at all cgroups this rests so many times as long as it took: many a cgroup that is told is gone by then.
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
            let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
            let children = entries.filter(|one| one.file_type().is_ok_and(|kind| kind.is_dir()));
            rest.extend(children.map(|one| one.path()));
        }
        self.rests_until = Some(began + began.elapsed() * (REST + 1));
    }
}

/// The uid of the pod that a cgroup belongs to, as kubelets name it: `podUID`, or `kubepods-burstable-podUID.slice` with
/// underscores in the uid.
pub(super) fn pod_of(cgroup: &Path) -> Option<String> {
    cgroup.components().rev().find_map(|part| {
        let part = part.as_os_str().to_str()?;
        let name = part.strip_suffix(".slice").unwrap_or(part);
        let uid = match name.strip_prefix("pod") {
            Some(uid) => uid.to_owned(),
            None if name.starts_with("kubepods") => name.rsplit_once("-pod")?.1.replace('_', "-"),
            None => return None,
        };
        (uid.len() >= 32).then_some(uid)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const UID: &str = "0b5b7ac0-0e76-4f0b-8c3c-6d8d0b3f1a77";

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

    #[test]
    fn a_pod_is_found_as_each_driver_names_it() {
        let underscored = UID.replace('-', "_");
        for (path, uid) in [
            (format!("/kubepods/burstable/pod{UID}/c0ffee"), Some(UID)),
            (
                format!(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{underscored}.slice/cri-c0ffee.scope"
                ),
                Some(UID),
            ),
            // A static pod's uid is a hash.
            (
                "/kubepods/pod0123456789abcdef0123456789abcdef/x".to_owned(),
                Some("0123456789abcdef0123456789abcdef"),
            ),
            ("/system.slice/podman.service".to_owned(), None),
            ("/".to_owned(), None),
        ] {
            assert_eq!(pod_of(Path::new(&path)).as_deref(), uid, "{path}");
        }
    }
}
