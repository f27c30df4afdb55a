//! Network namespaces.

mod settings;

use std::{
    fs::{self, File},
    io,
    os::fd::AsFd as _,
    panic,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use anyhow::Context as _;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub use self::settings::Settings;
use crate::{process, run::Run};

const DIRECTORY: &str = "/run/netns";

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: File,
    /// Whether it goes when this is dropped.
    owned: bool,
}

impl Namespace {
    /// Makes one of the run, with its loopback up and no other interface. It goes when this is
    /// dropped.
    pub fn create(run: &Run, role: &str) -> anyhow::Result<Self> {
        let mut namespace = Self::create_lasting(&run.name(role))?;
        namespace.owned = true;
        Ok(namespace)
    }

    /// Creates one that is not removed when it is dropped.
    pub(crate) fn create_lasting(name: &str) -> anyhow::Result<Self> {
        process::run(Command::new("ip").args(["netns", "add", name]), "")?;
        let namespace = Self::open(name)?;
        namespace.ip("link set lo up")?;
        // Link-local addresses too are usable at once: without one, a router cannot ask for
        // neighbours on behalf of others.
        namespace.sysctl("ipv6/conf/all/accept_dad", "0")?;
        namespace.sysctl("ipv6/conf/default/accept_dad", "0")?;
        Ok(namespace)
    }

    /// Creates one with forwarding.
    pub fn router(run: &Run, role: &str) -> anyhow::Result<Self> {
        let namespace = Self::create(run, role)?;
        namespace.forward()?;
        Ok(namespace)
    }

    /// An existing one. It is not removed when this is dropped.
    pub fn open(name: &str) -> anyhow::Result<Self> {
        let file = File::open(Path::new(DIRECTORY).join(name))
            .with_context(|| format!("cannot open the namespace {name}"))?;
        Ok(Self { name: name.to_owned(), file, owned: false })
    }

    /// Turns on forwarding.
    pub(crate) fn forward(&self) -> io::Result<()> {
        self.sysctl("ipv4/ip_forward", "1")?;
        self.sysctl("ipv6/conf/all/forwarding", "1")
    }

    /// Its name, as ip-netns(8) shows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What nsenter(1) takes.
    pub fn path(&self) -> PathBuf {
        Path::new(DIRECTORY).join(&self.name)
    }

    /// Configures it: each line of `commands` is what would follow `ip`.
    pub fn ip(&self, commands: &str) -> anyhow::Result<()> {
        let mut ip = Command::new("ip");
        process::run(ip.args(["-netns", &self.name, "-batch", "-"]), commands).map(drop)
    }

    /// The index of an interface.
    pub fn index(&self, device: &str) -> anyhow::Result<u32> {
        let shown = self.output("ip", &["-j", "link", "show", device])?;
        let links: serde_json::Value = serde_json::from_str(&shown)?;
        let index = links[0]["ifindex"].as_u64().context("a link without an index")?;
        Ok(u32::try_from(index)?)
    }

    /// Flushes the path MTUs that it has learned.
    pub fn forget_mtus(&self) -> anyhow::Result<()> {
        self.output("ip", &["-4", "route", "flush", "cache"])?;
        self.output("ip", &["-6", "route", "flush", "cache"]).map(drop)
    }

    /// Writes a file below `/proc/sys/net`, which shows the namespace of the thread that looks.
    pub fn sysctl(&self, path: &str, value: &str) -> io::Result<()> {
        self.run(|| fs::write(Path::new("/proc/sys/net").join(path), value))?
    }

    /// Runs a program in the namespace to its end. Returns what it prints; one that fails is an
    /// error with what it said.
    pub fn output(&self, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
        process::run(self.command(program).args(arguments), "")
    }

    /// Runs `work` in the namespace, on a new thread. A panic of it resumes in the caller.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                self.enter()?;
                Ok(work())
            });
            worker.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
        })
    }

    /// Moves the calling thread into the namespace, for good.
    pub fn enter(&self) -> io::Result<()> {
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(())
    }

    /// A command that will run in the namespace. (Not by `ip netns exec`, which hides cgroups and
    /// bpffs from it.)
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path().display())).arg("--").arg(program.as_ref());
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if self.owned
            && let Err(error) = delete(&self.name)
        {
            eprintln!("cannot delete the namespace {}: {error:#}", self.name);
        }
    }
}

fn delete(name: &str) -> anyhow::Result<()> {
    process::run(Command::new("ip").args(["netns", "delete", name]), "").map(drop)
}

pub(crate) fn remove_leftovers(is_leftover: &dyn Fn(&str) -> bool) -> anyhow::Result<()> {
    if !Path::new(DIRECTORY).exists() {
        return Ok(());
    }
    for entry in fs::read_dir(DIRECTORY)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if is_leftover(&name) {
            delete(&name)?;
        }
    }
    Ok(())
}
