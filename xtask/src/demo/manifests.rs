//! The directory that the agent reads: a copy of deploy/examples.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use super::example::{Cluster, Host};

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
        let before = fs::read_to_string(&file)?;
        let after = without_pod(&before, pod.name);
        ensure!(after != before, "{} has no line about {}", file.display(), pod.name);
        replace(&file, after.as_bytes())
    }

    /// Makes every file what it was.
    pub(super) fn restore(&self) -> Result<()> {
        let examples = fs::read_dir(&self.examples)
            .with_context(|| format!("cannot read {}", self.examples.display()))?;
        for example in examples {
            let example = example?;
            replace(&self.directory.join(example.file_name()), &fs::read(example.path())?)?;
        }
        Ok(())
    }

    /// Where a cluster's slices are.
    pub(super) fn file(&self, cluster: Cluster) -> PathBuf {
        self.directory.join(format!("cart-{}.yaml", cluster.name()))
    }
}

/// The slices without the endpoints of `pod`, each of which is one line.
fn without_pod(slices: &str, pod: &str) -> String {
    let target = format!("name: {pod}}}");
    slices.split_inclusive('\n').filter(|line| !line.contains(&target)).collect()
}

/// Replaces a file at once: a reader sees the old or the new content.
fn replace(file: &Path, content: &[u8]) -> Result<()> {
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
        let slices = include_str!("../../../deploy/examples/cart-east.yaml");
        let rest = without_pod(slices, "cart-1");
        assert_eq!(rest.lines().count(), slices.lines().count() - 2);
        assert!(!rest.contains("cart-1") && rest.contains("cart-2"));
    }
}
