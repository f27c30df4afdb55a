//! Container images without a daemon: OCI archives, which containerd, `docker load` and
//! `kind load image-archive` take.
//!
//! The same content makes the same bytes.

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    fs::File,
    io::{self, BufWriter, Read as _, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Archive, Builder, EntryType, Header};

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// An image of one layer, for this machine's architecture.
#[derive(Debug, Default)]
pub struct Image<'a> {
    /// Its full name, with registry and tag.
    pub name: &'a str,
    /// What is run in it.
    pub entrypoint: &'a [&'a str],
    /// What that gets as arguments where a pod names none.
    pub arguments: &'a [&'a str],
    /// What is said about it.
    pub labels: BTreeMap<&'a str, &'a str>,
    /// Its files, by path. Directories come before what is in them.
    pub files: Vec<(PathBuf, Content)>,
}

/// What is at a path.
#[derive(Clone, Debug)]
pub enum Content {
    /// A directory that everybody may read.
    Directory,
    /// A directory that everybody may write to, with what is their own.
    Shared,
    /// A copy of a program.
    Program(PathBuf),
    /// A copy of a file that everybody may read.
    Text(PathBuf),
    /// A symbolic link.
    Link(PathBuf),
}

/// Writes an archive with one image for several architectures, under one index. Returns the index's digest.
pub fn write_index(
    archive: &Path,
    name: &str,
    images: &[(&str, Image<'_>)],
) -> anyhow::Result<String> {
    let mut blobs = Blobs::default();
    let mut manifests = Vec::new();
    for (architecture, image) in images {
        let (mut manifest, ..) = image.add_to(&mut blobs, architecture)?;
        manifest["platform"] = json!({ "architecture": architecture, "os": "linux" });
        manifests.push(manifest);
    }
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
    let index = blobs.add(INDEX, index.to_string().into_bytes());
    let digest = index.digest.clone();
    let mut index = index.descriptor();
    index["annotations"] = json!({
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rsplit(':').next(),
    });
    blobs.write(archive, &[index], None)?;
    Ok(digest)
}

/// Reads the index's digest from an archive of [`write_index`]. Fails unless the index has that digest.
pub fn index_digest(archive: &Path) -> anyhow::Result<String> {
    let index: Value = serde_json::from_slice(&read(archive, "index.json")?)?;
    let index = &index["manifests"][0];
    let digest = index["digest"].as_str().context("index.json names no digest")?;
    ensure!(index["mediaType"] == INDEX, "index.json names no index of an image: {index}");
    let content = format!("sha256:{}", sha256(&read(archive, &path(digest))?));
    ensure!(content == digest, "the index of {digest} has the digest {content}");
    Ok(digest.to_owned())
}

/// Reads one file of an archive.
fn read(archive: &Path, name: &str) -> anyhow::Result<Vec<u8>> {
    let file = File::open(archive).with_context(|| format!("cannot read {}", archive.display()))?;
    for entry in Archive::new(file).entries_with_seek()? {
        let mut entry = entry?;
        if entry.path()? == Path::new(name) {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            return Ok(bytes);
        }
    }
    bail!("{} has no {name}", archive.display())
}

/// Writes an archive with these images.
pub fn write(archive: &Path, images: &[Image<'_>]) -> anyhow::Result<()> {
    let mut blobs = Blobs::default();
    let mut manifests = Vec::new();
    let mut docker = Vec::new();
    for image in images {
        let (mut manifest, config, layer) = image.add_to(&mut blobs, architecture())?;
        docker.push(json!({
            "Config": config.path(),
            "Layers": [layer.path()],
            "RepoTags": [image.name],
        }));
        manifest["annotations"] = json!({ "io.containerd.image.name": image.name });
        manifests.push(manifest);
    }
    // Docker before version 25 reads this one alone.
    blobs.write(archive, &manifests, Some(Value::Array(docker)))
}

impl Image<'_> {
    /// Adds its blobs. Returns the descriptor of its manifest, its config and its layer.
    fn add_to(&self, blobs: &mut Blobs, architecture: &str) -> anyhow::Result<(Value, Blob, Blob)> {
        let layer = self.layer().with_context(|| format!("the layer of {}", self.name))?;
        let layer = blobs.add(LAYER, layer);
        let config = self.config(&layer, architecture).to_string().into_bytes();
        let config = blobs.add(CONFIG, config);
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(),
            "layers": [layer.descriptor()],
        });
        let manifest = blobs.add(MANIFEST, manifest.to_string().into_bytes());
        Ok((manifest.descriptor(), config, layer))
    }

    fn layer(&self) -> io::Result<Vec<u8>> {
        let mut tar = Builder::new(Vec::new());
        for (path, content) in &self.files {
            match content {
                Content::Directory => {
                    let mut header = header(EntryType::Directory, 0o755, 0);
                    tar.append_data(&mut header, path, io::empty())?;
                }
                Content::Shared => {
                    let mut header = header(EntryType::Directory, 0o1777, 0);
                    tar.append_data(&mut header, path, io::empty())?;
                }
                Content::Program(source) | Content::Text(source) => {
                    let mode = if matches!(content, Content::Program(_)) { 0o755 } else { 0o644 };
                    let file = File::open(source)?;
                    let mut header = header(EntryType::Regular, mode, file.metadata()?.len());
                    tar.append_data(&mut header, path, file)?;
                }
                Content::Link(target) => {
                    let mut header = header(EntryType::Symlink, 0o777, 0);
                    tar.append_link(&mut header, path, target)?;
                }
            }
        }
        tar.into_inner()
    }

    fn config(&self, layer: &Blob, architecture: &str) -> Value {
        json!({
            "architecture": architecture,
            "os": "linux",
            "config": {
                "Cmd": self.arguments,
                "Entrypoint": self.entrypoint,
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "Labels": self.labels,
            },
            // A layer that is not compressed is its own difference.
            "rootfs": { "type": "layers", "diff_ids": [layer.digest] },
        })
    }
}

/// What is in the archive's `blobs`, by digest.
#[derive(Default)]
struct Blobs(BTreeMap<String, Vec<u8>>);

struct Blob {
    kind: &'static str,
    digest: String,
    size: usize,
}

impl Blobs {
    fn add(&mut self, kind: &'static str, bytes: Vec<u8>) -> Blob {
        let digest = format!("sha256:{}", sha256(&bytes));
        let blob = Blob { kind, digest: digest.clone(), size: bytes.len() };
        self.0.insert(digest, bytes);
        blob
    }

    /// Writes the archive, with the descriptors of its index and, for docker, a list of images.
    fn write(&self, archive: &Path, index: &[Value], docker: Option<Value>) -> anyhow::Result<()> {
        let file =
            File::create(archive).with_context(|| format!("cannot write {}", archive.display()))?;
        let mut tar = Builder::new(BufWriter::new(file));
        let layout = json!({ "imageLayoutVersion": "1.0.0" });
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": index });
        append(&mut tar, "oci-layout", layout.to_string().as_bytes())?;
        append(&mut tar, "index.json", index.to_string().as_bytes())?;
        if let Some(docker) = docker {
            append(&mut tar, "manifest.json", docker.to_string().as_bytes())?;
        }
        for (digest, bytes) in &self.0 {
            append(&mut tar, &path(digest), bytes)?;
        }
        Ok(tar.into_inner()?.flush()?)
    }
}

impl Blob {
    fn descriptor(&self) -> Value {
        json!({ "mediaType": self.kind, "digest": self.digest, "size": self.size })
    }

    fn path(&self) -> String {
        path(&self.digest)
    }
}

fn path(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}

fn append(tar: &mut Builder<impl Write>, path: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let mut header = header(EntryType::Regular, 0o644, bytes.len().try_into()?);
    Ok(tar.append_data(&mut header, path, bytes)?)
}

/// Everything is root's, and as old as can be.
fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

/// A digest in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        // A String takes everything.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// This machine's architecture, as images name it.
pub fn architecture() -> &'static str {
    match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Read};

    use super::*;

    const NAME: &str = "example.invalid/tool:1";

    fn write_example(directory: &Path, file: &str) -> PathBuf {
        let program = directory.join("program");
        fs::write(&program, b"#!/bin/sh\n").unwrap();
        let archive = directory.join(file);
        let files = vec![
            ("bin".into(), Content::Directory),
            ("bin/tool".into(), Content::Program(program)),
            ("bin/alias".into(), Content::Link("tool".into())),
            ("tmp".into(), Content::Shared),
        ];
        let labels = BTreeMap::from([("org.opencontainers.image.version", "1")]);
        let image =
            Image { name: NAME, entrypoint: &["/bin/tool"], labels, files, ..Image::default() };
        write(&archive, &[image]).unwrap();
        archive
    }

    fn unpack(tar: impl Read) -> BTreeMap<String, (Header, Vec<u8>)> {
        let mut archive = Archive::new(tar);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            (path, (entry.header().clone(), bytes))
        });
        entries.collect()
    }

    #[test]
    fn the_index_leads_to_every_file() {
        let directory = tempfile::tempdir().unwrap();
        let archive = write_example(directory.path(), "a.tar");
        let files = unpack(File::open(archive).unwrap());
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        let blob = |descriptor: &Value| {
            let (_, bytes) = &files[&path(descriptor["digest"].as_str().unwrap())];
            assert_eq!(descriptor["size"], bytes.len());
            bytes
        };

        let index = json(&files["index.json"].1);
        assert_eq!(index["manifests"][0]["annotations"]["io.containerd.image.name"], NAME);
        let manifest = json(blob(&index["manifests"][0]));
        let config = json(blob(&manifest["config"]));
        assert_eq!(config["config"]["Entrypoint"], json!(["/bin/tool"]));
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
        let docker = json(&files["manifest.json"].1);
        assert_eq!(docker[0]["Config"], path(manifest["config"]["digest"].as_str().unwrap()));

        let layer = unpack(blob(&manifest["layers"][0]).as_slice());
        for (path, mode) in [("bin", 0o755), ("bin/tool", 0o755), ("tmp", 0o1777)] {
            assert_eq!(layer[path].0.mode().unwrap(), mode, "{path}");
        }
        assert_eq!(layer["bin/tool"].1, b"#!/bin/sh\n");
        let link = layer["bin/alias"].0.link_name().unwrap().unwrap().into_owned();
        assert_eq!(link, Path::new("tool"));
    }

    #[test]
    fn the_digest_that_is_read_is_that_of_the_index() {
        let directory = tempfile::tempdir().unwrap();
        let archive = directory.path().join("index.tar");
        let image = || {
            let (labels, files) = (BTreeMap::new(), vec![("bin".into(), Content::Directory)]);
            Image { name: NAME, entrypoint: &["/bin/tool"], labels, files, ..Image::default() }
        };
        let digest =
            write_index(&archive, NAME, &[("amd64", image()), ("arm64", image())]).unwrap();
        assert_eq!(index_digest(&archive).unwrap(), digest);

        let bytes = fs::read(&archive).unwrap();
        let text =
            String::from_utf8(bytes).unwrap().replace("\"arm64\",\"os\"", "\"arm46\",\"os\"");
        fs::write(&archive, text).unwrap();
        let error = index_digest(&archive).unwrap_err().to_string();
        assert!(error.contains(&format!("the index of {digest} has")), "{error}");

        // It has a manifest and no index.
        let archive = write_example(directory.path(), "image.tar");
        let error = index_digest(&archive).unwrap_err().to_string();
        assert!(error.contains("no index of an image"), "{error}");
    }

    #[test]
    fn the_same_content_makes_the_same_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let [a, b] = ["a.tar", "b.tar"].map(|file| write_example(directory.path(), file));
        assert_eq!(fs::read(a).unwrap(), fs::read(b).unwrap());
    }
}
