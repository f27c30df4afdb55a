//! The directory that the agent reads: a copy of deploy/examples.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;

use super::example::{Cluster, Host};

/// What the line with the time of the change begins with.
const TRIGGER: &str = "  annotations: {endpoints.kubernetes.io/last-change-trigger-time: ";

/// A copy of the examples, which changes as a multi-cluster services controller would change it.
pub(super) struct Manifests {
    examples: PathBuf,
    directory: PathBuf,
}

impl Manifests {
    /// Copies the files of `examples` to the new directory `directory`.
    pub(super) fn copy(examples: PathBuf, directory: PathBuf) -> Result<Self> {
        fs::create_dir(&directory)?;
        let manifests = Self { examples, directory };
        manifests.restore()?;
        Ok(manifests)
    }

    pub(super) fn path(&self) -> &Path {
        &self.directory
    }

    /// Takes a pod out of its cluster's slices.
    pub(super) fn remove(&self, pod: Host) -> Result<()> {
        let file = self.file(pod.cluster);
        let before = without_trigger(&fs::read_to_string(&file)?);
        let after = without_pod(&before, pod.name);
        ensure!(after != before, "{} has no line about {}", file.display(), pod.name);
        replace(&file, &with_trigger(&after, Timestamp::now()))
    }

    /// Gives every file that has changed the content that it had.
    pub(super) fn restore(&self) -> Result<()> {
        let examples = fs::read_dir(&self.examples)
            .with_context(|| format!("cannot read {}", self.examples.display()))?;
        for example in examples {
            let example = example?;
            let (file, text) =
                (self.directory.join(example.file_name()), fs::read_to_string(example.path())?);
            let current = fs::read_to_string(&file).unwrap_or_default();
            if without_trigger(&current) != text {
                replace(&file, &with_trigger(&text, Timestamp::now()))?;
            }
        }
        Ok(())
    }

    /// Where a cluster's slices are.
    pub(super) fn file(&self, cluster: Cluster) -> PathBuf {
        self.directory.join(format!("cart-{}.yaml", cluster.name()))
    }
}

/// The slices without the endpoints of `pod`. An endpoint is one line.
fn without_pod(slices: &str, pod: &str) -> String {
    let target = format!("name: {pod}}}");
    slices.split_inclusive('\n').filter(|line| !line.contains(&target)).collect()
}

/// The slices with the time of the change that made a controller write them, as the endpoint slice controller notes it.
/// Other objects do not change.
fn with_trigger(objects: &str, time: Timestamp) -> String {
    let line = format!("{TRIGGER}\"{time}\"}}\n");
    let object = |object: &str| {
        if object.contains("kind: EndpointSlice") {
            object.replacen("\nmetadata:\n", &format!("\nmetadata:\n{line}"), 1)
        } else {
            object.to_owned()
        }
    };
    objects.split_inclusive("---\n").map(object).collect()
}

/// The objects as they were before [`with_trigger`].
fn without_trigger(objects: &str) -> String {
    objects.split_inclusive('\n').filter(|line| !line.starts_with(TRIGGER)).collect()
}

/// Replaces a file at once: a reader sees the old or the new content.
fn replace(file: &Path, content: &str) -> Result<()> {
    // The agent does not read a file that ends like this.
    let fresh = file.with_extension("new");
    fs::write(&fresh, content)?;
    Ok(fs::rename(fresh, file)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_leaves_both_of_its_slices() {
        let slices = include_str!("../../../../deploy/examples/cart-east.yaml");
        let rest = without_pod(slices, "cart-1");
        assert_eq!(rest.lines().count(), slices.lines().count() - 2);
        assert!(!rest.contains("cart-1") && rest.contains("cart-2"));
    }

    #[test]
    fn every_slice_and_no_import_has_the_time_of_its_change() {
        let slices = include_str!("../../../../deploy/examples/cart-east.yaml");
        let stamped = with_trigger(slices, Timestamp::UNIX_EPOCH);
        let expected =
            format!("metadata:\n{TRIGGER}\"1970-01-01T00:00:00Z\"}}\n  namespace: shop\n");
        assert_eq!(stamped.matches(&expected).count(), 2);
        assert_eq!(without_trigger(&stamped), slices);
        let import = include_str!("../../../../deploy/examples/cart.yaml");
        assert_eq!(with_trigger(import, Timestamp::UNIX_EPOCH), import);
    }
}
