//! The Docker that kind uses: the Docker of this machine if it answers, or one that xtask starts.

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, test_kill_process, waitpid};

use crate::{process, workspace::Workspace};

/// How long a daemon may take to begin or to end.
const PATIENCE: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(200);

/// A Docker that answers.
pub(super) struct Docker {
    /// Set for one that xtask has started.
    own: Option<Own>,
}

/// A daemon in network and mount namespaces of its own.
struct Own {
    pid: Pid,
    /// Everything that it writes.
    directory: PathBuf,
}

impl Docker {
    /// The Docker that xtask has started, or else the Docker that answers.
    pub(super) fn find(workspace: &Workspace) -> Option<Self> {
        let own = Self { own: Own::find(&directory(workspace)) };
        let found = if own.own.is_some() { own } else { Self { own: None } };
        found.answers().then_some(found)
    }

    /// The one that answers, or a new one.
    pub(super) fn begin(workspace: &Workspace) -> Result<Self> {
        match Self::find(workspace) {
            Some(docker) => Ok(docker),
            None => Self::start(workspace, &directory(workspace)),
        }
    }

    fn start(workspace: &Workspace, directory: &Path) -> Result<Self> {
        let script = workspace.root.join("xtask/src/lab/kind/docker.sh");
        fs::create_dir_all(directory)?;
        let file = directory.join("log");
        let log =
            File::create(&file).with_context(|| format!("cannot write {}", file.display()))?;
        let mut daemon = Command::new("unshare");
        daemon.args(["--net", "--mount"]).arg(script).arg(directory);
        daemon.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // Ctrl-C is for what uses it.
        let mut child = daemon.process_group(0).spawn().context("cannot start unshare")?;
        let end = Instant::now() + PATIENCE;
        loop {
            let docker = Self { own: Own::find(directory) };
            if docker.own.is_some() && docker.answers() {
                return Ok(docker);
            }
            if let Some(status) = child.try_wait()? {
                bail!("dockerd has ended, {status}: {} says why", file.display());
            }
            ensure!(Instant::now() < end, "dockerd does not answer: {} says why", file.display());
            thread::sleep(PAUSE);
        }
    }

    /// A program that uses Docker and the nodes' addresses.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let Some(own) = &self.own else { return Command::new(program) };
        let mut command = Command::new("nsenter");
        command.arg(own.network()).arg(program);
        self.direct(&mut command);
        command
    }

    /// Tells a program where Docker is.
    pub(super) fn direct<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        match &self.own {
            Some(own) => command.env("DOCKER_HOST", own.socket()),
            None => command,
        }
    }

    pub(super) fn has_image(&self, name: &str) -> bool {
        succeeds(self.command("docker").args(["image", "inspect", name]))
    }

    /// How to run a command of one's own.
    pub(super) fn advice(&self) -> String {
        self.own.as_ref().map_or_else(String::new, |own| {
            format!(
                "The clusters are in a network namespace: DOCKER_HOST={} nsenter {} COMMAND\n",
                own.socket(),
                own.network()
            )
        })
    }

    /// Removes the image, and with it a daemon that was started here.
    pub(super) fn end(self, image: &str) -> Result<()> {
        let Some(own) = self.own else {
            if self.has_image(image) {
                process::run(Command::new("docker").args(["image", "rm", image]))?;
            }
            return Ok(());
        };
        kill_process(own.pid, Signal::TERM)?;
        let end = Instant::now() + PATIENCE;
        while test_kill_process(own.pid).is_ok() {
            // One that this process has started stays until somebody asks how it ended.
            let _ = waitpid(Some(own.pid), WaitOptions::NOHANG);
            ensure!(Instant::now() < end, "dockerd, process {}, does not end", own.pid);
            thread::sleep(PAUSE);
        }
        // Its containerd ends a little later, and writes until then.
        loop {
            match fs::remove_dir_all(&own.directory) {
                Err(_) if Instant::now() < end => thread::sleep(PAUSE),
                removed => {
                    return removed
                        .with_context(|| format!("cannot remove {}", own.directory.display()));
                }
            }
        }
    }

    fn answers(&self) -> bool {
        succeeds(self.command("docker").arg("info"))
    }
}

impl Own {
    fn find(directory: &Path) -> Option<Self> {
        let text = fs::read_to_string(directory.join("docker.pid")).ok()?;
        let pid = Pid::from_raw(text.trim().parse().ok()?)?;
        // The file can be older than the process that has the number.
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        (name.trim() == "dockerd").then(|| Self { pid, directory: directory.to_owned() })
    }

    /// The flag of nsenter.
    fn network(&self) -> String {
        format!("--net=/proc/{}/ns/net", self.pid)
    }

    fn socket(&self) -> String {
        format!("unix://{}", self.directory.join("docker.sock").display())
    }
}

fn directory(workspace: &Workspace) -> PathBuf {
    workspace.cache.join("docker")
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}
