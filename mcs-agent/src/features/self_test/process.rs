//! The self-test: a process in a separate cgroup connects to a VIP and expects a refusal.

use std::{
    fs,
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail};

/// The hidden command of the process.
pub(super) const COMMAND: &str = "self-test";
/// Its cgroup, below the cgroup of the programs.
const CGROUP: &str = "mcs-agent-self-test";
/// No frontend has this port: the programs refuse a connection to it, and nothing else does.
const PORT: u16 = 0;

/// The result of a self-test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum SelfTestResult {
    /// The programs refused the connection: they run for the process.
    Refused,
    /// They did not refuse it, so they do not run for the process. The text says what the process saw.
    NotRefused(String),
    /// There was no self-test, with the reason.
    NotRun(String),
}

/// Starts the process in a cgroup below `root`, and waits until it has connected to these VIPs.
pub(super) fn start(root: &Path, vips: &[IpAddr], errno: i32) -> SelfTestResult {
    let cgroup = root.join(CGROUP);
    match fs::create_dir(&cgroup) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return SelfTestResult::NotRun(format!("cannot make {}: {error}", cgroup.display()));
        }
        _ => {}
    }
    let output = Command::new("/proc/self/exe")
        .env_clear()
        .arg(COMMAND)
        .arg(&cgroup)
        .arg(errno.to_string())
        .args(vips.iter().map(ToString::to_string))
        .output();
    remove_cgroup(&cgroup);
    let output = match output {
        Ok(output) => output,
        Err(error) => return SelfTestResult::NotRun(format!("cannot start a process: {error}")),
    };
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.code() {
        Some(0) => SelfTestResult::Refused,
        Some(status) if status == i32::from(NOT_REFUSED) => SelfTestResult::NotRefused(why),
        _ => SelfTestResult::NotRun(why),
    }
}

/// Removes the cgroup, for `cleanup`: an agent that was killed during a self-test has left it.
pub(super) fn remove_left(root: &Path) {
    // Absent, or in use by another agent.
    let _ = fs::remove_dir(root.join(CGROUP));
}

/// Removes the cgroup. The kernel takes a process out of its cgroup some time after its end, and another agent's
/// process may be there. Then the next self-test removes it, or `cleanup`.
fn remove_cgroup(cgroup: &Path) {
    for _ in 0..5 {
        match fs::remove_dir(cgroup) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                thread::sleep(Duration::from_millis(20));
            }
            _ => return,
        }
    }
}

/// The exit status of a process that saw no refusal.
const NOT_REFUSED: u8 = 3;

/// The arguments of the hidden command.
#[derive(Debug, clap::Args)]
pub(super) struct SelfTestArgs {
    /// The cgroup to enter
    cgroup: PathBuf,
    /// The error that the programs refuse with
    errno: i32,
    /// The VIPs to connect to
    vips: Vec<IpAddr>,
}

/// The process itself: it enters the cgroup and connects from there. It sends nothing.
pub(super) fn run(args: &SelfTestArgs) -> anyhow::Result<ExitCode> {
    let procs = args.cgroup.join("cgroup.procs");
    fs::write(&procs, "0").with_context(|| format!("cannot write {}", procs.display()))?;
    let mut asked = 0;
    for vip in &args.vips {
        let Some(result) = connect(*vip)? else { continue };
        asked += 1;
        if result.as_ref().err().and_then(io::Error::raw_os_error) != Some(args.errno) {
            let said = result.map_or_else(|error| error.to_string(), |()| "no error".to_owned());
            eprintln!("connect to port {PORT} of {vip}: {said}");
            return Ok(ExitCode::from(NOT_REFUSED));
        }
    }
    if asked == 0 {
        bail!("no VIP of a family that this host has");
    }
    Ok(ExitCode::SUCCESS)
}

/// `None` if this node does not have the address family.
fn connect(vip: IpAddr) -> anyhow::Result<Option<io::Result<()>>> {
    let any: SocketAddr = match vip {
        IpAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        IpAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    match UdpSocket::bind(any) {
        Ok(socket) => Ok(Some(socket.connect(SocketAddr::new(vip, PORT)))),
        Err(error)
            if matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)) =>
        {
            Ok(None)
        }
        Err(error) => Err(error).context("cannot make a socket"),
    }
}
