//! Reads the manifest files of a directory, and detects whether it has changed.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::{self, File, Metadata},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The largest file that is read, in bytes. The output of `kubectl get -o json` for 65,536 endpoints is
/// about half as large.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
/// How often a directory that changes while it is read is read, before its change counts as a new one.
const ATTEMPTS: u32 = 3;

/// Every manifest file by its name, as it was read, or the error.
pub(super) type DirectoryReading = io::Result<BTreeMap<OsString, Result<FileReading, FileError>>>;

/// A file whose times are older than this when it is read has other times after the next write. Those of the kernel advance
/// in steps of milliseconds, those of network file systems of up to two seconds.
const SETTLED: Duration = Duration::from_secs(3);

/// What was read of a file.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum FileReading {
    /// It has the fingerprint that [`read_stable`] was told.
    Unchanged,
    /// Its bytes, and the fingerprint that it has until it is written again, if that can be told.
    Read(Vec<u8>, Option<FileFingerprint>),
}

/// The reason why a file has no bytes to parse.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("larger than {} MiB: split it", MAX_FILE_BYTES / (1024 * 1024))]
    TooLarge,
}

/// The metadata of all manifest files of a directory. It differs if the directory has changed.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Fingerprint(Result<BTreeMap<OsString, Option<FileFingerprint>>, io::ErrorKind>);

/// Device, inode, size, then modification and change time in seconds and nanoseconds.
pub(super) type FileFingerprint = (u64, u64, u64, [i64; 4]);

impl Fingerprint {
    /// Reads the metadata now.
    pub(super) fn take(directory: &Path) -> Self {
        let entries = list(directory).map_err(|error| error.kind());
        Self(entries.map(|files| {
            let fingerprint = |metadata: io::Result<Metadata>| metadata.ok().map(|one| of(&one));
            files.into_iter().map(|(name, metadata)| (name, fingerprint(metadata))).collect()
        }))
    }
}

fn of(file: &Metadata) -> FileFingerprint {
    let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
    (file.dev(), file.ino(), file.size(), times)
}

/// The fingerprint, unless the file could be written again now and keep it.
fn settled(file: &Metadata, now: SystemTime) -> Option<FileFingerprint> {
    let now = now.duration_since(UNIX_EPOCH).ok()?.checked_sub(SETTLED)?.as_secs();
    let is_old = |seconds: i64| u64::try_from(seconds).is_ok_and(|seconds| seconds < now);
    (is_old(file.mtime()) && is_old(file.ctime())).then(|| of(file))
}

/// Reads a directory that does not change meanwhile. If it changes at each of [`ATTEMPTS`], the
/// fingerprint, which is older than the bytes, differs from the next one. A file that still has the fingerprint in `known`
/// is not read.
pub(super) fn read_stable(
    directory: &Path,
    known: impl Fn(&OsStr) -> Option<FileFingerprint>,
) -> (Fingerprint, DirectoryReading) {
    let mut fingerprint = Fingerprint::take(directory);
    for _ in 1..ATTEMPTS {
        let bytes = read(directory, &known);
        let after = Fingerprint::take(directory);
        if after == fingerprint {
            return (fingerprint, bytes);
        }
        fingerprint = after;
    }
    (fingerprint, read(directory, &known))
}

fn read(directory: &Path, known: &impl Fn(&OsStr) -> Option<FileFingerprint>) -> DirectoryReading {
    let mut files = BTreeMap::new();
    let now = SystemTime::now();
    for (name, metadata) in list(directory)? {
        let reading = metadata.map_err(FileError::Io).and_then(|metadata| {
            if known(&name) == Some(of(&metadata)) {
                return Ok(FileReading::Unchanged);
            }
            let bytes = read_file(&directory.join(&name), &metadata, MAX_FILE_BYTES)?;
            Ok(FileReading::Read(bytes, settled(&metadata, now)))
        });
        files.insert(name, reading);
    }
    Ok(files)
}

fn read_file(path: &Path, metadata: &Metadata, limit: u64) -> Result<Vec<u8>, FileError> {
    if metadata.len() > limit {
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
fn list(directory: &Path) -> io::Result<BTreeMap<OsString, io::Result<Metadata>>> {
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
        let files = read(directory, &|_| None).unwrap();
        files.into_keys().map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn only_manifests_are_read() {
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
        let files = read(directory.path(), &|_| None).unwrap();
        assert_eq!(names(directory.path()), ["gone.yaml", "web.yaml"]);
        let found = |name: &str| files.get(Path::new(name).as_os_str()).unwrap();
        let web = FileReading::Read(b"a: 1".into(), None);
        assert_eq!(*found("web.yaml").as_ref().unwrap(), web);
        assert!(matches!(found("gone.yaml"), Err(FileError::Io(_))));
    }

    #[test]
    fn a_large_file_is_an_error() {
        let directory = tempdir().unwrap();
        let path = directory.path().join("web.yaml");
        fs::write(&path, "12345").unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(read_file(&path, &metadata, 5).unwrap(), b"12345");
        assert!(matches!(read_file(&path, &metadata, 4), Err(FileError::TooLarge)));
        fs::write(&path, "123456").unwrap();
        assert!(
            matches!(read_file(&path, &metadata, 5), Err(FileError::TooLarge)),
            "it may grow after its metadata was taken"
        );
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let directory = tempdir().unwrap();
        let (_, bytes) = read_stable(&directory.path().join("absent"), |_| None);
        assert_eq!(bytes.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_is_read_again_unless_its_fingerprint_is_known() {
        let directory = tempdir().unwrap();
        let path = directory.path().join("web.yaml");
        fs::write(&path, "a: 1").unwrap();
        let metadata = fs::metadata(&path).unwrap();
        let read_with = |known: Option<FileFingerprint>| {
            let (_, files) = read_stable(directory.path(), |_| known);
            files.unwrap().remove(OsStr::new("web.yaml")).unwrap().unwrap()
        };
        assert_eq!(read_with(Some(of(&metadata))), FileReading::Unchanged);
        let read = FileReading::Read(b"a: 1".into(), None);
        assert_eq!(read_with(None), read, "a write in the same moment would leave no trace");
        let now = SystemTime::now();
        assert_eq!(settled(&metadata, now), None);
        assert_eq!(settled(&metadata, now + 2 * SETTLED), Some(of(&metadata)));
        fs::write(&path, "a: 22").unwrap();
        assert_eq!(read_with(Some(of(&metadata))), FileReading::Read(b"a: 22".into(), None));
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
        let mut before = Fingerprint::take(directory.path());
        for (name, change) in changes {
            assert_eq!(Fingerprint::take(directory.path()), before, "before {name}");
            change();
            let after = Fingerprint::take(directory.path());
            assert_ne!(after, before, "{name}");
            before = after;
        }
        let (fingerprint, _) = read_stable(directory.path(), |_| None);
        assert_eq!(fingerprint, before);
    }
}
