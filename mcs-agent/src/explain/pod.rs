//! Finds a pod of this node by its uid: its cgroup, and a process of it.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// How far below the agent's cgroup kubelets put those of pods, and one more.
const DEPTH: usize = 5;

/// The cgroup of a pod, as a kubelet names it: `podUID`, or `kubepods-burstable-podUID.slice` with underscores in the uid.
pub(super) fn cgroup(root: &Path, uid: &str) -> Option<PathBuf> {
    let mut level = vec![root.to_owned()];
    for _ in 0..DEPTH {
        level = level.iter().flat_map(|cgroup| children(cgroup)).collect();
        if let Some(found) = level.iter().find(|path| is_of(path, uid)) {
            return Some(found.clone());
        }
    }
    None
}

/// Whether a cgroup is that of a pod.
pub(super) fn is_of(cgroup: &Path, uid: &str) -> bool {
    let name = cgroup.file_name().unwrap_or_default().to_string_lossy().replace('_', "-");
    name.strip_suffix(".slice").unwrap_or(&name).ends_with(&format!("pod{uid}"))
}

/// A process in the cgroup or below it. In a PID namespace of its own this process sees none.
pub(super) fn process(cgroup: &Path) -> Option<u32> {
    let own = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    // 0: a process of another PID namespace.
    let visible = own.lines().filter_map(|line| line.parse().ok()).find(|pid| *pid != 0);
    visible.or_else(|| children(cgroup).iter().find_map(|child| process(child)))
}

fn children(cgroup: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(cgroup).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_found_as_each_driver_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let plain = root.join("kubepods/burstable/pod1b-2c");
        let slice = root.join("kubepods.slice/kubepods-pod3d_4e.slice");
        let container = plain.join("c0ffee");
        for made in [&container, &slice] {
            fs::create_dir_all(made).unwrap();
        }
        assert_eq!(cgroup(root, "1b-2c"), Some(plain.clone()));
        assert_eq!(cgroup(root, "3d-4e"), Some(slice));
        assert_eq!(cgroup(root, "5f"), None);
        fs::write(container.join("cgroup.procs"), "0\n").unwrap();
        assert_eq!(process(&plain), None, "it is in another PID namespace");
        fs::write(container.join("cgroup.procs"), "0\n17\n").unwrap();
        assert_eq!(process(&plain), Some(17));
    }
}
