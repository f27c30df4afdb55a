//! Lists and reads the manifest files of a directory, and detects whether it has changed.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File, Metadata},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::Path,
};

/// The largest file that is read, in bytes. The output of `kubectl get -o json` for 65,536 endpoints is
/// about half as large.
pub(super) const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// The manifest files of a directory by their names.
pub(super) type Listing = io::Result<BTreeMap<OsString, io::Result<Metadata>>>;

/// The metadata of all manifest files of a directory. It differs if the directory has changed.
pub(super) type Fingerprint =
    Result<BTreeMap<OsString, Option<(u64, u64, u64, [i64; 4])>>, io::ErrorKind>;

/// The reason why a file has no bytes to parse.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("larger than {} MiB: split it", MAX_FILE_BYTES / (1024 * 1024))]
    TooLarge,
}

/// Device, inode, size, then modification and change time of each file.
pub(super) fn fingerprint(files: &Listing) -> Fingerprint {
    let of = |file: &Metadata| {
        let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
        (file.dev(), file.ino(), file.size(), times)
    };
    let files = files.as_ref().map_err(io::Error::kind)?.iter();
    Ok(files.map(|(name, metadata)| (name.clone(), metadata.as_ref().ok().map(of))).collect())
}

pub(super) fn read_file(
    path: &Path,
    metadata: io::Result<Metadata>,
    limit: u64,
) -> Result<Vec<u8>, FileError> {
    if metadata?.len() > limit {
        return Err(FileError::TooLarge);
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    match u64::try_from(bytes.len()) {
        Ok(length) if length <= limit => Ok(bytes),
        _ => Err(FileError::TooLarge),
    }
}

/// The regular files with the name of a manifest, symbolic links followed. To read anything else could
/// block.
pub(super) fn list(directory: &Path) -> Listing {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if !is_manifest(Path::new(&name)) {
            continue;
        }
        match fs::metadata(entry.path()) {
            Ok(metadata) if !metadata.is_file() => {}
            Err(_) if fs::symlink_metadata(entry.path()).is_err() => {}
            metadata => {
                files.insert(name, metadata);
            }
        }
    }
    Ok(files)
}

/// Names with a leading dot belong to editors, and `..data` to kubelet.
fn is_manifest(name: &Path) -> bool {
    let hidden = name.as_os_str().as_encoded_bytes().starts_with(b".");
    !hidden
        && name.extension().is_some_and(|extension| {
            extension == "yaml" || extension == "yml" || extension == "json"
        })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

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
        let mut files = list(directory.path()).unwrap();
        let mut read = |name: &str| {
            let metadata = files.remove(Path::new(name).as_os_str()).unwrap();
            read_file(&directory.path().join(name), metadata, MAX_FILE_BYTES)
        };
        assert_eq!(read("web.yaml").unwrap(), b"a: 1");
        assert!(matches!(read("gone.yaml"), Err(FileError::Io(_))));
    }

    #[test]
    fn a_large_file_is_an_error() {
        let directory = tempdir().unwrap();
        let path = directory.path().join("web.yaml");
        fs::write(&path, "12345").unwrap();
        let metadata = fs::metadata(&path).unwrap();
        let read = |limit| read_file(&path, Ok(metadata.clone()), limit);
        assert_eq!(read(5).unwrap(), b"12345");
        assert!(matches!(read(4), Err(FileError::TooLarge)));
        fs::write(&path, "123456").unwrap();
        assert!(
            matches!(read(5), Err(FileError::TooLarge)),
            "it may grow after its metadata was taken"
        );
    }

    #[test]
    fn fingerprints_differ_after_each_change() {
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
        let now = || fingerprint(&list(directory.path()));
        let mut before = now();
        for (name, change) in changes {
            assert_eq!(now(), before, "before {name}");
            change();
            let after = now();
            assert_ne!(after, before, "{name}");
            before = after;
        }
        assert_eq!(now(), before);
        let missing = fingerprint(&list(&file("absent")));
        assert_eq!(missing, Err(io::ErrorKind::NotFound));
    }
}
