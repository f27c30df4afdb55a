//! The manifest by which krew installs `mcs` as `kubectl mcs`, and the archives that it names.

use std::{
    fs::{self, File},
    io::Read as _,
};

use anyhow::{Context as _, Result, ensure};
use flate2::{Compression, write::GzEncoder};
use mcs_tests::oci;
use serde_json::Value;
use tar::{Builder, Header};

use super::{VERSION, files::Files};
use crate::workspace::Workspace;

/// The manifest without version and platforms.
const TEMPLATE: &str = "deploy/krew/mcs.yaml";
/// The name of the manifest in a release.
const MANIFEST: &str = "krew-mcs.yaml";
/// A longer description is cut in lists.
const LONGEST: usize = 50;

/// An archive with the program for one system.
struct Platform {
    system: String,
    architecture: String,
    url: String,
    digest: String,
}

/// Writes an archive for each `mcs` among the files, and the manifest of all.
pub(super) fn write(
    workspace: &Workspace,
    files: &mut Files,
    repository: &str,
    rename: impl Fn(&str) -> String,
) -> Result<()> {
    let prefix = format!("mcs-{VERSION}-");
    let programs: Vec<_> =
        files.names().iter().filter(|name| name.starts_with(&prefix)).cloned().collect();
    let mut platforms = Vec::new();
    for program in programs {
        let target = program[prefix.len()..].split_once('-');
        let (system, architecture) =
            target.with_context(|| format!("{program} names no system"))?;
        let archive = format!("{program}.tar.gz");
        pack(workspace, files, &program, &archive)?;
        platforms.push(Platform {
            system: system.to_owned(),
            architecture: architecture.to_owned(),
            url: format!("https://github.com/{repository}/releases/download/v{VERSION}/{archive}"),
            digest: oci::sha256(&files.read(&archive)?),
        });
    }
    let text = manifest(&rename(&template(workspace)?), &platforms);
    check(&text)?;
    files.add(MANIFEST, &text)
}

/// Checks the manifest as a release would write it.
pub(crate) fn lint(workspace: &Workspace) -> Result<()> {
    let platform = Platform {
        system: "linux".to_owned(),
        architecture: "amd64".to_owned(),
        url: "https://example.org/mcs.tar.gz".to_owned(),
        digest: "0".repeat(64),
    };
    check(&manifest(&template(workspace)?, &[platform]))
}

fn template(workspace: &Workspace) -> Result<String> {
    fs::read_to_string(workspace.root.join(TEMPLATE))
        .with_context(|| format!("cannot read {TEMPLATE}"))
}

/// Packs a program as `mcs`, with the licence. The same program makes the same bytes.
fn pack(workspace: &Workspace, files: &mut Files, program: &str, archive: &str) -> Result<()> {
    let (program, path) = (files.directory().join(program), files.reserve(archive));
    let mut tar = Builder::new(GzEncoder::new(File::create(path)?, Compression::best()));
    for (file, name, mode) in
        [(program, "mcs", 0o755), (workspace.root.join("LICENSE"), "LICENSE", 0o644)]
    {
        let mut content = Vec::new();
        File::open(&file)?.read_to_end(&mut content)?;
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(mode);
        header.set_mtime(0);
        tar.append_data(&mut header, name, content.as_slice())?;
    }
    tar.into_inner()?.finish()?;
    Ok(())
}

fn manifest(template: &str, platforms: &[Platform]) -> String {
    let mut lines: Vec<_> =
        template.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    lines.extend([format!("  version: v{VERSION}"), "  platforms:".to_owned()]);
    for Platform { system, architecture, url, digest } in platforms {
        lines.push(format!(
            "    - selector:\n        matchLabels:\n          os: {system}\n          arch: {architecture}\n      \
             uri: {url}\n      sha256: \"{digest}\"\n      bin: mcs"
        ));
    }
    lines.join("\n") + "\n"
}

/// Fails unless krew's index would take the manifest.
fn check(text: &str) -> Result<()> {
    let manifest: Value =
        serde_saphyr::from_str(text).with_context(|| format!("{TEMPLATE} is no YAML"))?;
    let spec = &manifest["spec"];
    for (what, found, expected) in [
        ("apiVersion", &manifest["apiVersion"], "krew.googlecontainertools.github.com/v1alpha2"),
        ("kind", &manifest["kind"], "Plugin"),
        ("metadata.name", &manifest["metadata"]["name"], "mcs"),
        ("spec.version", &spec["version"], concat!("v", env!("CARGO_PKG_VERSION"))),
    ] {
        ensure!(found == expected, "{TEMPLATE}: {what} is {found}, not {expected}");
    }
    let known = ["homepage", "shortDescription", "description", "caveats", "version", "platforms"];
    let mut fields = spec.as_object().context("a spec is an object")?.keys();
    let unknown = fields.find(|field| !known.contains(&field.as_str()));
    ensure!(
        unknown.is_none(),
        "{TEMPLATE}: krew knows no field spec.{}",
        unknown.map_or("", |one| one)
    );
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let short = text(&spec["shortDescription"]);
    ensure!(
        (1..=LONGEST).contains(&short.len()) && !short.ends_with('.'),
        "{TEMPLATE}: spec.shortDescription has 1 to {LONGEST} characters and no full stop"
    );
    ensure!(!text(&spec["description"]).is_empty(), "{TEMPLATE}: spec.description is missing");
    let homepage = text(&spec["homepage"]);
    ensure!(homepage.starts_with("https://"), "{TEMPLATE}: spec.homepage is no https URL");
    let platforms = spec["platforms"].as_array().cloned().unwrap_or_default();
    ensure!(!platforms.is_empty(), "the manifest for krew has no platform");
    for platform in &platforms {
        let [url, digest] = ["uri", "sha256"].map(|field| text(&platform[field]));
        let is_archive = url.starts_with("https://") && url.ends_with(".tar.gz");
        ensure!(is_archive, "the manifest for krew: {url} is no archive");
        let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        ensure!(is_digest, "the manifest for krew: {digest:?} is no digest");
        let labels = &platform["selector"]["matchLabels"];
        let same = platforms.iter().filter(|other| other["selector"]["matchLabels"] == *labels);
        ensure!(same.count() == 1, "the manifest for krew has {labels} twice");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_that_krew_would_refuse_is_an_error() {
        let workspace = Workspace::discover().unwrap();
        lint(&workspace).unwrap();
        let template = template(&workspace).unwrap();
        let platform = |digest: &str| Platform {
            system: "linux".to_owned(),
            architecture: "amd64".to_owned(),
            url: "https://example.org/mcs.tar.gz".to_owned(),
            digest: digest.repeat(64),
        };
        let said = |template: &str, platforms: &[Platform]| {
            check(&manifest(template, platforms)).unwrap_err().to_string()
        };
        assert!(said(&template, &[]).contains("no platform"));
        assert!(said(&template, &[platform("x")]).contains("no digest"));
        assert!(said(&template, &[platform("a"), platform("b")]).contains("twice"));
        let long = template.replace("shortDescription: ", "shortDescription: very very long ");
        assert!(said(&long, &[platform("a")]).contains("shortDescription"));
        let unknown = template.replace("caveats", "caveat");
        assert!(said(&unknown, &[platform("a")]).contains("spec.caveat"));
    }
}
