//! `cargo xtask release`: every file of a release, without any registry.

use std::{
    fs,
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, ensure};
use mcs_tests::oci;

use crate::{
    deploy, image, process,
    setup::{self, Purpose},
    workspace::Workspace,
};

mod cross;
mod files;
pub(crate) mod krew;
mod notes;
mod provenance;
mod sbom;
mod signature;

use self::{files::Files, signature::Key};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The repository that charts and alerts name in the source.
const REPOSITORY: &str = "mcs-agent/mcs-agent";
const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];
/// The image's file.
const IMAGE: &str = concat!("mcs-agent-", env!("CARGO_PKG_VERSION"), "-image.tar");

/// Write the files of a release: programs, image, charts, SBOM, notes and checksums
///
/// It needs no registry and no key. The workflow `release` runs it for a tag, pushes image and charts, and signs them. The last
/// lines list every file with its size and digest.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Take what is there: one architecture, and the changes that are not released; sign files and provenance with a
    /// key that is thrown away, and verify that
    #[arg(long)]
    dry_run: bool,
    /// A directory with the static programs, without symbols [default: this machine's, which are built]
    #[arg(long, value_name = "ARCH=DIR", value_parser = programs)]
    programs: Vec<(String, PathBuf)>,
    /// Build the programs of the other architecture too, by cross compilation, and start them in an emulator
    #[arg(long)]
    cross: bool,
    /// A file that was made elsewhere, such as a program for macOS; repeatable
    #[arg(long, value_name = "FILE")]
    also: Vec<PathBuf>,
    /// The repository, whose name the charts and the image get
    #[arg(long, value_name = "OWNER/NAME", default_value = REPOSITORY)]
    repository: String,
    /// An empty or absent directory [default: target/release-files]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

fn programs(text: &str) -> Result<(String, PathBuf), String> {
    let (architecture, directory) = text.split_once('=').ok_or("write it as amd64=DIR")?;
    if !ARCHITECTURES.contains(&architecture) {
        return Err(format!("write one of {}", ARCHITECTURES.join(", ")));
    }
    Ok((architecture.to_owned(), directory.into()))
}

/// Runs the verb.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    setup::ensure(workspace, &[Purpose::Release])?;
    let mut programs = args.programs.clone();
    if programs.is_empty() {
        setup::ensure(workspace, &[Purpose::Build])?;
        programs.push((oci::architecture().to_owned(), image::programs(workspace)?));
    }
    if args.cross {
        programs.push(cross::programs(workspace)?);
    }
    for architecture in ARCHITECTURES {
        let is_there = programs.iter().any(|(name, _)| name == architecture);
        ensure!(is_there || args.dry_run, "no programs for {architecture}: give --programs");
    }
    let output = match &args.output {
        Some(directory) => std::path::absolute(directory)?,
        None => workspace.target.join("release-files"),
    };
    let release = Release { workspace, repository: &args.repository, programs: &programs };
    let mut files = Files::create(output)?;
    let digest = release.write(&mut files, args.dry_run)?;
    for file in &args.also {
        let name = file.file_name().and_then(|name| name.to_str()).context("a file has a name")?;
        files.copy(file, name)?;
    }
    release.krew(&mut files)?;
    files.write_checksums()?;
    if args.dry_run {
        let signed = release.sign_and_verify(&files, &digest)?;
        println!("{signed} signatures of a throw-away key verify, and so does the provenance");
    }
    println!("{}", files.table()?);
    println!("{digest}  {}", release.image());
    Ok(ExitCode::SUCCESS)
}

struct Release<'a> {
    workspace: &'a Workspace,
    repository: &'a str,
    programs: &'a [(String, PathBuf)],
}

impl Release<'_> {
    /// The image's name, with its tag.
    fn image(&self) -> String {
        format!("ghcr.io/{}:{VERSION}", self.repository)
    }

    /// Writes every file but the checksums. Returns the digest of the image's index.
    fn write(&self, files: &mut Files, dry_run: bool) -> Result<String> {
        for (architecture, directory) in self.programs {
            for program in image::RELEASED {
                let name = format!("{program}-{VERSION}-linux-{architecture}");
                files.copy(&directory.join(program), &name)?;
            }
        }
        let image = files.reserve(IMAGE);
        let digest = image::write_index(self.workspace, &self.image(), self.programs, &image)?;
        self.charts(files)?;
        files.add("SBOM.spdx.json", &sbom::spdx(self.workspace, self.repository)?)?;
        let changes = fs::read_to_string(self.workspace.root.join("deploy/CHANGELOG.md"))?;
        let section = if dry_run { "Unreleased" } else { VERSION };
        let section = notes::section(&changes, section)?;
        files.add("NOTES.md", &notes::notes(section, self.repository, VERSION))?;
        Ok(digest)
    }

    /// Signs the files and their provenance with a key that is thrown away, and verifies what it has written. Returns the number
    /// of files.
    fn sign_and_verify(&self, files: &Files, digest: &str) -> Result<usize> {
        let commit = git(self.workspace, &["rev-parse", "HEAD"])?;
        self.sign(files, &commit, digest)?;
        // From here on the directory has everything.
        let digest = oci::index_digest(&files.directory().join(IMAGE))?;
        provenance::verify(files, &commit, (&self.image(), &digest))?;
        signature::verify(files)
    }

    fn sign(&self, files: &Files, commit: &str, digest: &str) -> Result<()> {
        let key = Key::generate()?;
        signature::write(files, &key)?;
        let image = self.image();
        let statement = provenance::statement(files, self.repository, commit, (&image, digest))?;
        provenance::write(files, &statement, &key)
    }

    /// Packages the charts. They name the release's image and repository.
    fn charts(&self, files: &mut Files) -> Result<()> {
        let copies = deploy::copies(self.workspace, &|text| self.name_images(text))?;
        for chart in deploy::charts() {
            let mut helm = deploy::helm(self.workspace)?;
            helm.arg("package").arg(copies.path(chart));
            deploy::printed(helm.arg("--destination").arg(files.directory()))?;
            files.take(&format!("{chart}-{VERSION}.tgz"))?;
        }
        Ok(())
    }

    /// The manifest for krew, of every `mcs` that is among the files.
    fn krew(&self, files: &mut Files) -> Result<()> {
        krew::write(self.workspace, files, self.repository, |text| self.name_images(text))
    }

    fn name_images(&self, text: &str) -> String {
        let image = format!("repository: ghcr.io/{}\n", self.repository);
        text.replace("repository: localhost/mcs-agent\n", &image)
            .replace(
                &format!("github.com/{REPOSITORY}"),
                &format!("github.com/{}", self.repository),
            )
            .replace(&format!("ghcr.io/{REPOSITORY}"), &format!("ghcr.io/{}", self.repository))
    }
}

/// The time of the latest commit, so that the same source makes the same files.
fn commit_time(workspace: &Workspace) -> Result<String> {
    git(workspace, &["log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%cd"])
}

/// What git prints about this repository.
fn git(workspace: &Workspace, arguments: &[&str]) -> Result<String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(&workspace.root).env("TZ", "UTC");
    let output = git.args(arguments).output().context("cannot start git")?;
    let [text, errors] = [output.stdout, output.stderr].map(String::from_utf8);
    ensure!(output.status.success(), "{}: {}", process::describe(&git), errors?.trim());
    Ok(text?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A release of this repository, with other bytes for programs. Nothing is built.
    #[test]
    fn a_release_has_every_file_and_its_signatures_verify() {
        let workspace = Workspace::discover().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let programs: Vec<_> = ARCHITECTURES
            .map(|architecture| {
                let directory = directory.path().join(architecture);
                fs::create_dir(&directory).unwrap();
                for program in image::RELEASED {
                    fs::write(directory.join(program), format!("{program} for {architecture}"))
                        .unwrap();
                }
                (architecture.to_owned(), directory)
            })
            .to_vec();
        let release =
            Release { workspace: &workspace, repository: "some/where", programs: &programs };
        let mut files = Files::create(directory.path().join("files")).unwrap();
        if deploy::helm(&workspace).is_err() {
            // Setup of another purpose does not build helm.
            return;
        }
        let digest = release.write(&mut files, true).unwrap();
        release.krew(&mut files).unwrap();
        files.write_checksums().unwrap();
        let table = files.table().unwrap();
        for name in [
            "linux-amd64",
            "linux-arm64",
            "image.tar",
            "mcs-agent-0.1.0.tgz",
            "mcs-controller-0.1.0.tgz",
            "mcs-0.1.0.tgz",
            "mcs-0.1.0-linux-arm64.tar.gz",
            "SBOM.spdx.json",
            "NOTES.md",
            "SHA256SUMS",
        ] {
            assert!(table.contains(name), "{table}");
        }
        assert_eq!(release.sign_and_verify(&files, &digest).unwrap(), files.names().len());
        let manifest = String::from_utf8(files.read("krew-mcs.yaml").unwrap()).unwrap();
        let digest_of = |name: &str| oci::sha256(&files.read(name).unwrap());
        for said in [
            digest_of("mcs-0.1.0-linux-amd64.tar.gz"),
            digest_of("mcs-0.1.0-linux-arm64.tar.gz"),
            "https://github.com/some/where/releases/download/v0.1.0/mcs-0.1.0-linux-amd64.tar.gz"
                .to_owned(),
            "homepage: https://github.com/some/where\n".to_owned(),
        ] {
            assert!(manifest.contains(&said), "no {said} in {manifest}");
        }
        let other = format!("sha256:{}", oci::sha256(b"a manifest"));
        let error = release.sign_and_verify(&files, &other).unwrap_err().to_string();
        assert!(error.contains("another digest of ghcr.io/some/where:0.1.0"), "{error}");
        for chart in ["mcs-agent", "mcs"] {
            let archive = files.directory().join(format!("{chart}-0.1.0.tgz"));
            let mut tar = Command::new("tar");
            let tar = tar.arg("-xOf").arg(archive).arg(format!("{chart}/values.yaml"));
            let values = process::printed(tar).unwrap();
            assert!(values.contains("repository: ghcr.io/some/where\n"), "{values}");
        }
    }
}
