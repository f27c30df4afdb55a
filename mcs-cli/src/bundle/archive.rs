//! A compressed archive, and the list of failures.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use flate2::{Compression, write::GzEncoder};
use jiff::Timestamp;
use mcs_kube::one_line;
use serde::Serialize;
use tar::{Builder, EntryType, Header};

use super::mask::Mask;

/// The top directory in the archive.
const ROOT: &str = "mcs-bundle";

/// An archive that is being written.
pub(super) struct Archive {
    tar: Builder<GzEncoder<File>>,
    mask: Option<Mask>,
    failures: Vec<String>,
}

impl Archive {
    /// Creates the file, readable only by its owner. An existing file could be readable by others.
    pub(super) fn create(path: &Path, mask: Option<Mask>) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let tar = Builder::new(GzEncoder::new(file, Compression::default()));
        Ok(Self { tar, mask, failures: Vec::new() })
    }

    /// Adds a text.
    pub(super) fn text(&mut self, name: &str, text: &str) -> io::Result<()> {
        let masked = self.mask.as_mut().map(|mask| mask.text(text));
        self.file(name, masked.as_deref().unwrap_or(text))
    }

    fn file(&mut self, name: &str, content: &str) -> io::Result<()> {
        let masked = self.mask.as_mut().map(|mask| mask.text(name));
        let name = masked.as_deref().unwrap_or(name);
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o600);
        header.set_size(content.len() as u64);
        header.set_mtime(u64::try_from(Timestamp::now().as_second()).unwrap_or_default());
        self.tar.append_data(&mut header, format!("{ROOT}/{name}"), content.as_bytes())
    }

    /// Adds a value.
    pub(super) fn json(&mut self, name: &str, value: &impl Serialize) -> io::Result<()> {
        let mut value = serde_json::to_value(value)?;
        if let Some(mask) = &mut self.mask {
            value = mask.value(value);
        }
        self.file(name, &serde_json::to_string_pretty(&value)?)
    }

    /// Records a failure.
    pub(super) fn fail(&mut self, what: &str, why: &str) {
        self.failures.push(one_line(&format!("{what}: {why}")));
    }

    /// Finishes the archive. Returns the number of failures.
    pub(super) fn finish(mut self) -> anyhow::Result<usize> {
        let failures = std::mem::take(&mut self.failures);
        if !failures.is_empty() {
            self.text("failures.txt", &(failures.join("\n") + "\n"))?;
        }
        self.tar.into_inner()?.finish()?.sync_all()?;
        Ok(failures.len())
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, io::Read as _, os::unix::fs::PermissionsExt as _};

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn an_archive_has_its_files_and_what_failed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("b.tar.gz");
        let mut archive = Archive::create(&path, Some(Mask::default())).unwrap();
        archive.text("east/log.txt", "from 10.0.0.1:80\n").unwrap();
        archive.json("node-10.0.0.1/report.json", &["a\nfd00::1"]).unwrap();
        archive.fail("west", "no answer of\n10.0.0.1");
        assert_eq!(archive.finish().unwrap(), 1);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let mut tar = tar::Archive::new(GzDecoder::new(File::open(&path).unwrap()));
        let read = |entry: io::Result<tar::Entry<'_, _>>| {
            let (mut entry, mut text) = (entry.unwrap(), String::new());
            entry.read_to_string(&mut text).unwrap();
            (entry.path().unwrap().display().to_string(), text)
        };
        let files: BTreeMap<_, _> = tar.entries().unwrap().map(read).collect();
        assert_eq!(files["mcs-bundle/east/log.txt"], "from ip-1:80\n");
        assert!(files["mcs-bundle/node-ip-1/report.json"].contains("a\\nip-2"));
        assert_eq!(files["mcs-bundle/failures.txt"], "west: no answer of ip-1\n");
    }
}
