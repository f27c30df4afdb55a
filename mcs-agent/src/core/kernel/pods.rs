//! Pods of this node by their uids: the cgroup of a pod, the pod of a cgroup, and a process of a pod.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::core::kernel::loader::children;

/// How many levels below the agent's cgroup a pod's cgroup can be: one more than kubelets use.
const DEPTH: usize = 5;
/// The shortest uid. That of a static pod is a hash.
const UID: usize = 32;

/// The cgroup of a pod.
pub(crate) fn cgroup(root: &Path, uid: &str) -> Option<PathBuf> {
    let mut level = vec![root.to_owned()];
    for _ in 0..DEPTH {
        level = level.iter().flat_map(|cgroup| children(cgroup)).collect();
        if let Some(found) = level.iter().find(|path| is_of(path, uid)) {
            return Some(found.clone());
        }
    }
    None
}

/// Whether a cgroup belongs to the pod with this uid.
pub(crate) fn is_of(cgroup: &Path, uid: &str) -> bool {
    let name = cgroup.file_name().unwrap_or_default().to_string_lossy();
    uid_in(&name).as_deref() == Some(uid)
}

/// The uid of the pod that a cgroup belongs to.
pub(crate) fn pod_of(cgroup: &Path) -> Option<String> {
    let is_uid = |uid: &String| {
        uid.len() >= UID && uid.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
    };
    let uid = |name: &str| uid_in(name).filter(is_uid);
    cgroup.components().rev().find_map(|part| uid(part.as_os_str().to_str()?))
}

/// The uid in the name that a kubelet gives to a pod's cgroup: `podUID`, or `kubepods-burstable-podUID.slice` with
/// underscores in the uid.
fn uid_in(name: &str) -> Option<String> {
    let name = name.strip_suffix(".slice").unwrap_or(name);
    let after_path = name.rsplit_once("-pod").map(|(_, uid)| uid);
    let uid = after_path.or_else(|| name.strip_prefix("pod"))?;
    Some(uid.replace('_', "-"))
}

/// A process in the cgroup or below it. In a PID namespace of its own this process sees none.
pub(crate) fn process(cgroup: &Path) -> Option<u32> {
    let own = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    // 0: a process of another PID namespace.
    let visible = own.lines().filter_map(|line| line.parse().ok()).find(|pid| *pid != 0);
    visible.or_else(|| children(cgroup).find_map(|child| process(&child)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0b5b7ac0-0e76-4f0b-8c3c-6d8d0b3f1a77";

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

    #[test]
    fn the_pod_of_a_cgroup_is_told() {
        let underscored = UID.replace('-', "_");
        for (path, uid) in [
            (format!("/kubepods/burstable/pod{UID}/c0ffee"), Some(UID)),
            (
                format!(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{underscored}.slice/cri-c0ffee.scope"
                ),
                Some(UID),
            ),
            // The kubelet has a cgroup root of its own, as in kind.
            (
                format!("/kubelet.slice/kubelet-kubepods-pod{underscored}.slice/cri-c0ffee.scope"),
                Some(UID),
            ),
            // A static pod's uid is a hash.
            (
                "/kubepods/pod0123456789abcdef0123456789abcdef/x".to_owned(),
                Some("0123456789abcdef0123456789abcdef"),
            ),
            (
                format!("/pods.slice/pods-kubepods-pod{underscored}.slice/cri-c0ffee.scope"),
                Some(UID),
            ),
            ("/system.slice/podman.service".to_owned(), None),
            ("/system.slice/acme-podinfo-exporter-for-billing-eu-west.service".to_owned(), None),
            ("/".to_owned(), None),
        ] {
            assert_eq!(pod_of(Path::new(&path)).as_deref(), uid, "{path}");
        }
    }
}
