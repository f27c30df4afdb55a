//! The files of a release, with their sizes and digests.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use mcs_tests::oci;

/// It marks the directory as a release, also before it has a digest.
const CHECKSUMS: &str = "SHA256SUMS";

/// Files in one directory, oldest first.
pub(super) struct Files {
    directory: PathBuf,
    names: Vec<String>,
}

impl Files {
    /// Makes the directory anew, if nothing but a former release is in it.
    pub(super) fn create(directory: PathBuf) -> Result<Self> {
        if directory.exists() {
            let is_release =
                directory.join(CHECKSUMS).exists() || directory.read_dir()?.next().is_none();
            ensure!(is_release, "{} has files that are of no release", directory.display());
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        // A run that ends early must not block the next one.
        fs::write(directory.join(CHECKSUMS), "")?;
        Ok(Self { directory, names: Vec::new() })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The path of a file that the caller writes.
    pub(super) fn reserve(&mut self, name: &str) -> PathBuf {
        self.names.push(name.to_owned());
        self.directory.join(name)
    }

    pub(super) fn add(&mut self, name: &str, text: &str) -> Result<()> {
        let path = self.reserve(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    pub(super) fn copy(&mut self, from: &Path, name: &str) -> Result<()> {
        let to = self.reserve(name);
        fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
        Ok(())
    }

    /// Takes a file that another program has written into the directory.
    pub(super) fn take(&mut self, name: &str) -> Result<()> {
        let path = self.reserve(name);
        ensure!(path.exists(), "{} was not written", path.display());
        Ok(())
    }

    pub(super) fn read(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.directory.join(name);
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Writes the digests of all files, as `sha256sum --check` reads them.
    pub(super) fn write_checksums(&mut self) -> Result<()> {
        let mut text = String::new();
        for name in &self.names {
            writeln!(text, "{}  {name}", oci::sha256(&self.read(name)?))?;
        }
        self.add(CHECKSUMS, &text)
    }

    /// A line for each file: digest, size in bytes, name.
    pub(super) fn table(&self) -> Result<String> {
        let mut text = format!("{}\n", self.directory.display());
        for name in &self.names {
            let bytes = self.read(name)?;
            writeln!(text, "sha256:{}  {:>10}  {name}", oci::sha256(&bytes), bytes.len())?;
        }
        Ok(text.trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_ends_early_does_not_block_the_next() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("files");
        Files::create(directory.clone()).unwrap().add("agent", "half a progr").unwrap();
        let files = Files::create(directory).unwrap();
        assert!(files.read("agent").is_err(), "a file of the earlier run is left");
    }

    #[test]
    fn a_directory_with_other_files_stays() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("letter");
        fs::write(&file, "Dear").unwrap();
        let error = Files::create(directory.path().to_owned()).err().unwrap().to_string();
        assert!(error.contains("files that are of no release"), "{error}");
        assert!(file.exists());
    }
}
