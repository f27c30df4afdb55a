//! Lists and reads the manifest files of a directory.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::{self, File, Metadata},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::Path,
};

/// The largest file that is read, in bytes. The output of `kubectl get -o json` for 65,536 endpoints is
/// about half as large.
pub(super) const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// The manifest files of a directory by their names. It differs if the directory has changed.
pub(super) type Listing = BTreeMap<OsString, Option<Stamp>>;

/// Device, inode, size, then modification and change time.
type Stamp = (u64, u64, u64, [i64; 4]);

/// The regular files with the name of a manifest, symbolic links followed. To read anything else could
/// block.
pub(super) fn list(directory: &Path) -> io::Result<Listing> {
    let mut files = Listing::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if is_manifest(&entry.file_name()) {
            let metadata = fs::metadata(entry.path()).ok();
            if metadata.as_ref().is_none_or(Metadata::is_file) {
                files.insert(entry.file_name(), metadata.as_ref().map(stamp));
            }
        }
    }
    Ok(files)
}

/// Names with a leading dot belong to editors, and `..data` to kubelet.
fn is_manifest(name: &OsStr) -> bool {
    let extension = Path::new(name).extension().and_then(OsStr::to_str);
    let is_hidden = name.as_encoded_bytes().starts_with(b".");
    !is_hidden && matches!(extension, Some("yaml" | "yml" | "json"))
}

fn stamp(file: &Metadata) -> Stamp {
    let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
    (file.dev(), file.ino(), file.size(), times)
}

/// The bytes of a file, or why it has none to parse.
pub(super) fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, String> {
    match read_at_most(path, limit) {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err(format!("larger than {} MiB: split it", limit / (1024 * 1024))),
        Err(error) => Err(format!("cannot be read: {error}")),
    }
}

/// `None`: the file is larger. It may grow while it is read.
fn read_at_most(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let file = File::open(path)?;
    if file.metadata()?.len() > limit {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= limit))
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::unix::fs::symlink};

    use tempfile::tempdir;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        list(directory).unwrap().into_keys().map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn only_manifests_are_listed() {
        let directory = tempdir().unwrap();
        for name in [
            "b.yaml",
            "a.yml",
            "c.json",
            ".b.yaml.swp",
            ".d.yaml",
            "e.yaml~",
            "README.md",
            "yaml",
            "#f.yaml#",
        ] {
            fs::write(directory.path().join(name), name).unwrap();
        }
        fs::create_dir(directory.path().join("g.yaml")).unwrap();
        assert_eq!(names(directory.path()), ["a.yml", "b.yaml", "c.json"]);
    }

    #[test]
    fn symbolic_links_are_followed() {
        let directory = tempdir().unwrap();
        let data = directory.path().join("..2026");
        fs::create_dir(&data).unwrap();
        fs::write(data.join("web.yaml"), "a: 1").unwrap();
        symlink("..2026", directory.path().join("..data")).unwrap();
        symlink("..data/web.yaml", directory.path().join("web.yaml")).unwrap();
        symlink("..data/gone.yaml", directory.path().join("gone.yaml")).unwrap();
        assert_eq!(names(directory.path()), ["gone.yaml", "web.yaml"]);
        let read = |name: &str| read_file(&directory.path().join(name), MAX_FILE_BYTES);
        assert_eq!(read("web.yaml").unwrap(), b"a: 1");
        let missing = "cannot be read: No such file or directory (os error 2)";
        assert_eq!(read("gone.yaml").unwrap_err(), missing);
    }

    #[test]
    fn a_large_file_is_an_error() {
        let directory = tempdir().unwrap();
        let path = directory.path().join("web.yaml");
        File::create(&path).unwrap().set_len(3 << 20).unwrap();
        assert_eq!(read_file(&path, 3 << 20).unwrap(), vec![0; 3 << 20]);
        File::options().append(true).open(&path).unwrap().write_all(b"1").unwrap();
        assert_eq!(read_file(&path, 3 << 20).unwrap_err(), "larger than 3 MiB: split it");
    }

    #[test]
    fn listings_differ_after_each_change() {
        let directory = tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let changes: [(&str, &dyn Fn()); 6] = [
            ("create", &|| fs::write(file("a.yaml"), "1").unwrap()),
            ("grow", &|| fs::write(file("a.yaml"), "12").unwrap()),
            ("rename", &|| fs::rename(file("a.yaml"), file("b.yaml")).unwrap()),
            ("dangle", &|| symlink("target", file("c.yaml")).unwrap()),
            ("target", &|| fs::write(file("target"), "1").unwrap()),
            ("delete", &|| fs::remove_file(file("b.yaml")).unwrap()),
        ];
        let now = || list(directory.path()).unwrap();
        let mut before = now();
        for (name, change) in changes {
            assert_eq!(now(), before, "before {name}");
            change();
            let after = now();
            assert_ne!(after, before, "{name}");
            before = after;
        }
        assert_eq!(now(), before);
        let missing = list(&file("absent")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
