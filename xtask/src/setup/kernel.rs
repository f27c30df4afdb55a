//! Fetches kernels of Debian and Ubuntu, and programs of another architecture, by an apt with separate lists and state:
//! the machine's sources and packages do not change.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use super::{Item, Purpose, Remedy, tools::DEBIAN_KEYRING};
use crate::{
    cross::{AMD64, ARM64, Architecture},
    process,
    workspace::Workspace,
};

/// Where a kernel comes from: pinned by suite, within which it gets its fixes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) name: &'static str,
    title: &'static str,
    suite: &'static str,
    archive: Archive,
    architecture: &'static Architecture,
}

/// An archive of packages.
#[derive(Clone, Copy, Debug)]
enum Archive {
    Debian,
    DebianSecurity,
    Ubuntu,
    UbuntuSecurity,
}

/// Ubuntu 22.04's first kernel. Its verifier looks at the most instructions: it lacks what Linux 6.3 does better (precision
/// tracking), and the other kernels have that, also as a fix.
const UNFIXED: Source = Source::new("5.15", "Linux 5.15", "jammy", Archive::Ubuntu, &AMD64);
/// From the oldest to the newest.
pub(crate) const SOURCES: &[Source] = {
    use Archive::{Debian, DebianSecurity, UbuntuSecurity};
    &[
        Source::new("5.10", "Linux 5.10", "bullseye-security", DebianSecurity, &AMD64),
        UNFIXED,
        Source::new("5.15-fixed", "Linux 5.15, fixed", "jammy-security", UbuntuSecurity, &AMD64),
        Source::new("6.1", "Linux 6.1", "bookworm-security", DebianSecurity, &AMD64),
        Source::new("6.12", "Linux 6.12", "trixie-security", DebianSecurity, &AMD64),
        Source::new("7.2", "Linux 7.2", "forky", Debian, &AMD64),
    ]
};
/// Debian's for arm64. Its security archive names an arm64 kernel for bullseye that it does not have.
pub(crate) const ARM64_SOURCES: &[Source] = {
    use Archive::{Debian, DebianSecurity};
    &[
        Source::new("5.10", "Linux 5.10, arm64", "bullseye", Debian, &ARM64),
        Source::new("6.1", "Linux 6.1, arm64", "bookworm-security", DebianSecurity, &ARM64),
        Source::new("6.12", "Linux 6.12, arm64", "trixie-security", DebianSecurity, &ARM64),
        Source::new("7.2", "Linux 7.2, arm64", "forky", Debian, &ARM64),
    ]
};
/// Where the programs of machines with such a kernel come from.
const ARM64_PROGRAMS: Source =
    Source::new("programs", "programs, arm64", "bookworm", Archive::Debian, &ARM64);
/// Where the keys of Ubuntu's archives come from. Debian 12 does not have them.
const UBUNTU_KEYS: Source =
    Source::new("ubuntu-keys", "Ubuntu's archive keys", "trixie", Archive::Debian, &AMD64);
/// A file of [`UBUNTU_KEYS`].
const UBUNTU_KEYRING: &str = "usr/share/keyrings/ubuntu-archive-keyring.gpg";

/// The kernels of Debian, if they are wanted. Those of Ubuntu, which few runs take, are fetched by these runs.
pub(super) fn items(workspace: &Workspace, purposes: &[Purpose]) -> Vec<Item> {
    let item = |source: &'static Source| Item {
        name: source.title,
        found: source.find(workspace).ok().map(|kernel| kernel.image),
        version: &[],
        remedy: Remedy::Kernel(source),
    };
    let wanted =
        |source: &&Source| purposes.contains(&Purpose::Kernels) && !source.archive.is_of_ubuntu();
    SOURCES.iter().filter(wanted).map(item).collect()
}

/// A kernel in the cache.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// As `uname -r` says.
    pub(crate) release: String,
    /// What a boot loader loads.
    pub(crate) image: PathBuf,
    /// What the packages have, with `lib/modules/RELEASE`.
    pub(crate) root: PathBuf,
    pub(crate) architecture: &'static Architecture,
}

/// The directory with `packages` and all that they depend on, for arm64: unpacked, and fetched first if it is missing.
pub(crate) fn arm64_programs(workspace: &Workspace, packages: &[&str]) -> Result<PathBuf> {
    let directory = ARM64_PROGRAMS.directory(workspace);
    let root = directory.join("root");
    if !root.exists() {
        eprintln!("setup: fetching programs for arm64");
        let apt = Apt::prepare(&ARM64_PROGRAMS, &directory, Path::new(DEBIAN_KEYRING))?;
        unpack(&apt.download_with_dependencies(packages)?, &root, |_| Ok(()))?;
    }
    Ok(root)
}

impl Source {
    const fn new(
        name: &'static str,
        title: &'static str,
        suite: &'static str,
        archive: Archive,
        architecture: &'static Architecture,
    ) -> Self {
        Self { name, title, suite, archive, architecture }
    }

    pub(super) const fn suite(&self) -> &'static str {
        self.suite
    }

    /// The kernel in the cache.
    pub(crate) fn find(&self, workspace: &Workspace) -> Result<Kernel> {
        Kernel::find(self.directory(workspace).join("root"), self.architecture)
    }

    /// The kernel in the cache, fetched first if it is missing.
    pub(crate) fn find_or_install(&self, workspace: &Workspace) -> Result<Kernel> {
        if let Ok(kernel) = self.find(workspace) {
            return Ok(kernel);
        }
        self.install(workspace)?;
        self.find(workspace)
    }

    /// Puts the newest kernel of the suite into the cache.
    pub(crate) fn install(&self, workspace: &Workspace) -> Result<()> {
        let directory = self.directory(workspace);
        let apt = Apt::prepare(self, &directory, &self.archive.keyring(workspace)?)?;
        let packages = apt.kernel(&self.meta_package())?;
        eprintln!("setup: fetching {} of {}", packages.join(", "), self.suite);
        unpack(&apt.download(&packages)?, &directory.join("root"), list_modules)
    }

    /// The package that depends on the suite's kernel for virtual machines.
    fn meta_package(&self) -> String {
        match self.archive {
            Archive::Debian | Archive::DebianSecurity => {
                format!("linux-image-cloud-{}", self.architecture.name)
            }
            Archive::Ubuntu | Archive::UbuntuSecurity => "linux-image-virtual".to_owned(),
        }
    }

    fn directory(&self, workspace: &Workspace) -> PathBuf {
        let kernels = workspace.cache.join("kernels");
        match self.architecture {
            // Caches of earlier versions hold it there.
            &AMD64 => kernels.join(self.name),
            other => kernels.join(format!("{}-{}", self.name, other.name)),
        }
    }
}

impl Archive {
    const fn url(self) -> &'static str {
        match self {
            Self::Debian => "http://deb.debian.org/debian",
            Self::DebianSecurity => "http://deb.debian.org/debian-security",
            Self::Ubuntu => "http://archive.ubuntu.com/ubuntu",
            Self::UbuntuSecurity => "http://security.ubuntu.com/ubuntu",
        }
    }

    const fn is_of_ubuntu(self) -> bool {
        matches!(self, Self::Ubuntu | Self::UbuntuSecurity)
    }

    /// The file of the keys that it is signed with, fetched first if it is missing.
    fn keyring(self, workspace: &Workspace) -> Result<PathBuf> {
        if !self.is_of_ubuntu() {
            return Ok(DEBIAN_KEYRING.into());
        }
        let directory = UBUNTU_KEYS.directory(workspace);
        let root = directory.join("root");
        if !root.exists() {
            let apt = Apt::prepare(&UBUNTU_KEYS, &directory, Path::new(DEBIAN_KEYRING))?;
            unpack(&apt.download(&["ubuntu-keyring".to_owned()])?, &root, |_| Ok(()))?;
        }
        Ok(root.join(UBUNTU_KEYRING))
    }
}

impl Kernel {
    fn find(root: PathBuf, architecture: &'static Architecture) -> Result<Self> {
        let modules = root.join("lib/modules");
        let release = only_entry(&modules)?;
        let images =
            [root.join(format!("boot/vmlinuz-{release}")), modules.join(&release).join("vmlinuz")];
        let image = images.into_iter().find(|image| image.exists());
        let image = image.with_context(|| format!("no kernel image in {}", root.display()))?;
        Ok(Self { release, image, root, architecture })
    }
}

/// apt-get and apt-cache with one source.
struct Apt {
    options: Vec<String>,
    directory: PathBuf,
}

impl Apt {
    fn prepare(source: &Source, directory: &Path, keyring: &Path) -> Result<Self> {
        let state = directory.join("apt");
        for part in ["lists/partial", "cache/archives/partial", "packages"] {
            let part = state.join(part);
            fs::create_dir_all(&part).with_context(|| format!("cannot make {}", part.display()))?;
        }
        let Source { suite, archive, architecture, .. } = source;
        let list =
            format!("deb [signed-by={}] {} {suite} main\n", keyring.display(), archive.url());
        let list_file = state.join("sources.list");
        fs::write(&list_file, list)?;
        // No package is installed, so that all there is can be downloaded.
        let status = state.join("status");
        fs::write(&status, "")?;
        let options = [
            format!("Dir::State={}", state.display()),
            format!("Dir::State::status={}", status.display()),
            format!("Dir::Cache={}", state.join("cache").display()),
            format!("Dir::Etc::SourceList={}", list_file.display()),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            "Dir::Etc::Preferences=/dev/null".to_owned(),
            "Dir::Etc::PreferencesParts=/dev/null".to_owned(),
            format!("APT::Architecture={}", architecture.name),
            format!("APT::Architectures={}", architecture.name),
            // The user that apt downloads as by default cannot write to a home directory.
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
        ];
        let apt = Self { options: options.to_vec(), directory: state.join("packages") };
        process::run(apt.command("apt-get").args(["update", "--quiet=2"]))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(self.options.iter().flat_map(|option| ["-o", option]));
        command.current_dir(&self.directory);
        command
    }

    /// The packages that make up the suite's kernel.
    fn kernel(&self, meta_package: &str) -> Result<Vec<String>> {
        let mut depends = self.command("apt-cache");
        depends.args(["depends", "--recurse", "--important"]).arg(meta_package);
        let text = process::printed(&mut depends)?;
        let mut packages: Vec<_> = text.lines().filter_map(kernel_package).collect();
        packages.sort_unstable();
        packages.dedup();
        ensure!(!packages.is_empty(), "{meta_package} depends on no kernel: {text}");
        Ok(packages)
    }

    fn download(&self, packages: &[String]) -> Result<Vec<PathBuf>> {
        self.empty()?;
        process::run(self.command("apt-get").args(["download", "--quiet=2"]).args(packages))?;
        self.downloaded()
    }

    /// Nothing counts as installed, so that every dependency is downloaded.
    fn download_with_dependencies(&self, packages: &[&str]) -> Result<Vec<PathBuf>> {
        self.empty()?;
        fs::create_dir(self.directory.join("partial"))?;
        let mut install = self.command("apt-get");
        install.args([
            "install",
            "--download-only",
            "--no-install-recommends",
            "--yes",
            "--quiet=2",
        ]);
        install.arg("-o").arg(format!("Dir::Cache::Archives={}", self.directory.display()));
        process::run(install.args(packages))?;
        self.downloaded()
    }

    fn empty(&self) -> Result<()> {
        fs::remove_dir_all(&self.directory)?;
        Ok(fs::create_dir(&self.directory)?)
    }

    fn downloaded(&self) -> Result<Vec<PathBuf>> {
        let files = fs::read_dir(&self.directory)?.map(|entry| Ok(entry?.path()));
        let is_package = |file: &Result<PathBuf>| {
            file.as_ref().map_or(true, |file| file.extension() == Some("deb".as_ref()))
        };
        files.filter(is_package).collect()
    }
}

/// The package that a line of `apt-cache depends --recurse` names, if it has a part of a kernel.
fn kernel_package(line: &str) -> Option<String> {
    let parts = ["linux-base-", "linux-binary-", "linux-image-", "linux-modules-"];
    let is_part = parts.iter().any(|part| line.starts_with(part));
    // What depends on a kernel, or is the same one without a signature.
    let others = ["linux-image-cloud-", "linux-image-unsigned-", "linux-image-virtual"];
    let is_other = others.iter().any(|other| line.starts_with(other));
    (is_part && !is_other).then(|| line.to_owned())
}

/// Puts what the packages have in the place of `root`, once `complete` has added to it.
fn unpack(
    packages: &[PathBuf],
    root: &Path,
    complete: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let fresh = root.with_extension("new");
    for old in [&fresh, root] {
        if old.exists() {
            fs::remove_dir_all(old).with_context(|| format!("cannot remove {}", old.display()))?;
        }
    }
    fs::create_dir_all(&fresh)?;
    for package in packages {
        process::run(Command::new("dpkg-deb").arg("--extract").arg(package).arg(&fresh))?;
        fs::remove_file(package)?;
    }
    complete(&fresh)?;
    fs::rename(&fresh, root).with_context(|| format!("cannot make {}", root.display()))
}

/// Makes the list of a kernel's modules for modprobe.
fn list_modules(root: &Path) -> Result<()> {
    if !root.join("lib").exists() {
        symlink("usr/lib", root.join("lib"))?;
    }
    let release = only_entry(&root.join("lib/modules"))?;
    let depmod = process::find("depmod").context("there is no depmod")?;
    process::run(Command::new(depmod).arg("--basedir").arg(root).arg(release))
}

fn only_entry(directory: &Path) -> Result<String> {
    let entries = fs::read_dir(directory)
        .with_context(|| format!("cannot read {}", directory.display()))?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>>>()?;
    match entries.as_slice() {
        [one] => Ok(one.clone()),
        _ => anyhow::bail!("{} should have one entry: {entries:?}", directory.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_kernel_are_told_from_what_it_recommends() {
        let cases = [
            ("linux-image-6.1.0-56-cloud-amd64", true),
            ("linux-binary-7.2.12+deb14-cloud-amd64", true),
            ("linux-modules-7.2.12+deb14-cloud-amd64", true),
            ("linux-image-cloud-amd64", false),
            ("linux-image-6.12.117+deb13-cloud-arm64", true),
            ("linux-image-cloud-arm64", false),
            ("linux-base-7.2.12+deb14-cloud-amd64", true),
            ("linux-base", false),
            ("linux-image-virtual", false),
            ("linux-image-5.15.0-25-generic", true),
            ("linux-modules-5.15.0-25-generic", true),
            ("linux-image-unsigned-5.15.0-25-generic", false),
            ("  Depends: linux-image-6.1.0-56-cloud-amd64", false),
            ("initramfs-tools", false),
        ];
        for (line, expected) in cases {
            assert_eq!(kernel_package(line).is_some(), expected, "{line}");
        }
    }
}
