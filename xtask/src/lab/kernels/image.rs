//! Builds what a virtual machine boots from: one archive in memory, with the programs that the suites call, their
//! libraries, the suites, and modules of the machine's kernel. The programs are those of this machine, or Debian's for
//! another architecture.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File},
    io::{self, BufWriter, Write},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use cpio::newc::{Builder, ModeFileType, trailer};

use crate::{
    process,
    setup::kernel::{self, Kernel},
    workspace::Workspace,
};

const INIT: &str = include_str!("guest.sh");

/// What the suites and [`INIT`] call.
const PROGRAMS: &[&str] = &[
    "bash", "bpftool", "cat", "curl", "dig", "ethtool", "ip", "mkdir", "modprobe", "mount", "nc",
    "nft", "nsenter", "setpriv", "sh", "sleep", "sysctl", "tc", "tcpdump", "timeout", "umount",
    "unshare",
];
/// Debian's packages with these programs.
const PACKAGES: &[&str] = &[
    "bash",
    "bind9-dnsutils",
    "bpftool",
    "coreutils",
    "curl",
    "dash",
    "ethtool",
    "iproute2",
    "kmod",
    "mount",
    "netcat-openbsd",
    "nftables",
    "procps",
    "python3",
    "tcpdump",
    "util-linux",
];
/// The parts of packages that programs need.
const PARTS: &[&str] = &["bin", "lib", "sbin", "usr/bin", "usr/lib", "usr/sbin"];
/// What the programs in Python import.
const PYTHON: &str = "\
import encodings.idna, socket, sys
print(sys.executable)
for module in list(sys.modules.values()):
    print(getattr(module, '__file__', None) or '')
";
/// Parts of a kernel's modules: those for virtual devices, filters and sockets.
const MODULES: &[&str] = &[
    "arch",
    "crypto",
    "drivers/net/dummy",
    "drivers/net/ipvlan",
    "drivers/net/macvlan",
    "drivers/net/tap",
    "drivers/net/tun",
    "drivers/net/veth",
    "drivers/net/vxlan",
    "lib",
    "net",
];
/// Whom programs look up.
const ACCOUNTS: &[(&str, &str)] =
    &[("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"), ("/etc/group", "root:x:0:\n")];
/// Where file systems are mounted.
const DIRECTORIES: &[&str] = &["dev", "proc", "root", "run", "sys", "tmp"];

/// The directory of the suites in the machine.
pub(super) const SUITES: &str = "/mcs";

enum Entry {
    Directory,
    Link(PathBuf),
    File(PathBuf),
    Text(String),
}

/// Entries by their path, without the slash at its beginning.
pub(super) struct Image {
    entries: BTreeMap<PathBuf, Entry>,
}

impl Image {
    /// An image with what every machine needs, of this machine's programs.
    pub(super) fn new() -> Result<Self> {
        let mut image = Self::without_programs();
        for name in PROGRAMS {
            let program = process::find(name).with_context(|| format!("there is no {name}"))?;
            image.program(&program, &Path::new("/usr/bin").join(name))?;
        }
        // Where the kernel looks for it.
        image.put_under(Path::new("/usr/sbin/modprobe"), Entry::Link("../bin/modprobe".into()));
        image.python()?;
        Ok(image)
    }

    /// The same of programs for arm64.
    pub(super) fn for_arm64(workspace: &Workspace) -> Result<Self> {
        let root = kernel::arm64_programs(workspace, PACKAGES)?;
        let mut image = Self::without_programs();
        for part in PARTS {
            image.tree(&root, Path::new("/"), Path::new(part))?;
        }
        // A link that the package makes when it is installed.
        image.put_under(Path::new("/usr/bin/nc"), Entry::Link("nc.openbsd".into()));
        Ok(image)
    }

    fn without_programs() -> Self {
        let mut image = Self { entries: BTreeMap::new() };
        for name in DIRECTORIES {
            image.entries.insert(PathBuf::from(name), Entry::Directory);
        }
        // Else libraries would not be found by the names that programs have for them.
        for name in ["bin", "lib", "lib64", "sbin"] {
            if let Ok(target) = fs::read_link(Path::new("/").join(name)) {
                image.put_under(Path::new(name), Entry::Link(target));
            }
        }
        image.put_under(Path::new("init"), Entry::Text(INIT.to_owned()));
        for (file, text) in ACCOUNTS {
            image.put_under(Path::new(file), Entry::Text((*text).to_owned()));
        }
        // Where ip looks for namespaces.
        image.put_under(Path::new("/var/run"), Entry::Link("/run".into()));
        image
    }

    /// Adds a suite's binary, or what it reads.
    pub(super) fn suite(&mut self, file: &Path) -> Result<()> {
        let name = file.file_name().context("a file without a name")?;
        self.program(file, &Path::new(SUITES).join(name))
    }

    /// Adds what the machine does when it is up, as lines for its shell.
    pub(super) fn plan(&mut self, plan: String) {
        self.put_under(&Path::new(SUITES).join("plan"), Entry::Text(plan));
    }

    /// Adds the modules of a kernel.
    pub(super) fn modules(&mut self, kernel: &Kernel) -> Result<()> {
        let from = kernel.root.join("lib/modules").join(&kernel.release);
        let to = Path::new("/lib/modules").join(&kernel.release);
        for name in names(&from)?.into_iter().filter(|name| name.starts_with("modules.")) {
            self.file(&from.join(&name), &to.join(&name))?;
        }
        for part in MODULES {
            let (parent, name) = part.rsplit_once('/').unwrap_or(("", part));
            let parent = Path::new("kernel").join(parent);
            for found in names(&from.join(&parent))? {
                // A directory, or a module that may be compressed.
                if found == name || found.starts_with(&format!("{name}.ko")) {
                    self.tree(&from, &to, &parent.join(found))?;
                }
            }
        }
        Ok(())
    }

    fn tree(&mut self, from: &Path, to: &Path, part: &Path) -> Result<()> {
        let path = from.join(part);
        if let Ok(target) = fs::read_link(&path) {
            self.put_under(&usr_merged(&to.join(part)), Entry::Link(target));
            return Ok(());
        }
        if !path.is_dir() {
            return self.file(&path, &to.join(part));
        }
        names(&path)?.iter().try_for_each(|name| self.tree(from, to, &part.join(name)))
    }

    fn python(&mut self) -> Result<()> {
        let python = process::find("python3").context("there is no python3")?;
        let text = process::printed(Command::new(python).args(["-c", PYTHON]))?;
        let mut files = text.lines().filter(|line| !line.is_empty()).map(Path::new);
        let executable = files.next().context("python3 prints nothing")?;
        ensure!(executable.is_absolute(), "python3 cannot be asked what it needs: {text}");
        let real = executable.canonicalize()?;
        // It finds its library from where it lies.
        self.program(&real, &real)?;
        self.put_under(Path::new("/usr/bin/python3"), Entry::Link(real));
        files.try_for_each(|file| self.program(file, file))
    }

    /// Adds a file, and the libraries that the dynamic linker would load for it.
    fn program(&mut self, file: &Path, to: &Path) -> Result<()> {
        self.file(file, to)?;
        // A file that is none of the linker's has no libraries.
        for word in process::printed(Command::new("ldd").arg(file))?.split_whitespace() {
            let library = Path::new(word);
            if library.is_absolute() && library.is_file() {
                self.file(library, library)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, file: &Path, to: &Path) -> Result<()> {
        let content = file.canonicalize().with_context(|| format!("no {}", file.display()))?;
        self.put_under(&usr_merged(to), Entry::File(content));
        Ok(())
    }

    fn put_under(&mut self, path: &Path, entry: Entry) {
        let path = path.strip_prefix("/").unwrap_or(path);
        for parent in path.ancestors().skip(1).filter(|parent| *parent != Path::new("")) {
            self.entries.entry(parent.to_owned()).or_insert(Entry::Directory);
        }
        self.entries.insert(path.to_owned(), entry);
    }

    /// Writes it as the archive that kernels unpack.
    pub(super) fn write(&self, file: &Path) -> Result<()> {
        let archive = File::create(file);
        let mut archive =
            BufWriter::new(archive.with_context(|| format!("cannot make {}", file.display()))?);
        for (number, (path, entry)) in (1..).zip(&self.entries) {
            let header = Builder::new(&path.to_string_lossy()).ino(number);
            archive = entry
                .write(header, archive)
                .with_context(|| format!("cannot put {} into the image", path.display()))?;
        }
        trailer(archive)?.flush()?;
        Ok(())
    }
}

impl Entry {
    fn write<W: Write>(&self, header: Builder, archive: W) -> io::Result<W> {
        match self {
            Self::Directory => {
                let header = header.mode(0o755).set_mode_file_type(ModeFileType::Directory);
                header.write(archive, 0).finish()
            }
            Self::Link(target) => {
                let target = target.as_os_str().as_encoded_bytes();
                let header = header.mode(0o777).set_mode_file_type(ModeFileType::Symlink);
                content(header, target, archive)
            }
            Self::File(file) => {
                let bytes = fs::read(file)?;
                let mode = fs::metadata(file)?.permissions().mode() & 0o777;
                let header = header.mode(mode).set_mode_file_type(ModeFileType::Regular);
                content(header, &bytes, archive)
            }
            Self::Text(text) => {
                let header = header.mode(0o755).set_mode_file_type(ModeFileType::Regular);
                content(header, text.as_bytes(), archive)
            }
        }
    }
}

fn content<W: Write>(header: Builder, bytes: &[u8], archive: W) -> io::Result<W> {
    let size = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    let mut writer = header.write(archive, size);
    writer.write_all(bytes)?;
    writer.finish()
}

/// The path of `/lib/x` on systems where `/lib` is a link to `/usr/lib`.
fn usr_merged(path: &Path) -> PathBuf {
    let mut components = path.components();
    let top: PathBuf = components.by_ref().take(2).collect();
    match top.canonicalize() {
        Ok(top) => top.join(components.as_path()),
        Err(_) => path.to_owned(),
    }
}

fn names(directory: &Path) -> Result<Vec<String>> {
    let name = |name: &OsStr| name.to_string_lossy().into_owned();
    if !directory.exists() {
        return Ok(Vec::new());
    }
    fs::read_dir(directory)
        .with_context(|| format!("cannot read {}", directory.display()))?
        .map(|entry| Ok(name(&entry?.file_name())))
        .collect()
}
