//! A process in a cgroup of its own, which finds out whether the socket programs run for it.

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

/// The hidden command that it runs.
pub const COMMAND: &str = "witness";
/// The cgroup that it runs in, below the one that programs are attached to.
pub const CGROUP: &str = "mcs-agent-witness";
/// No frontend has this port: whoever connects there is refused by the programs, and by nobody else.
const PORT: u16 = 0;

/// What a witness saw.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Testimony {
    /// It was refused, as it should be.
    Refused,
    /// It was not: the programs do not run for it, and why that is so.
    NotRefused(String),
    /// There was no witness, and why.
    None(String),
}

/// Has a witness below `root` connect to these VIPs.
pub(super) fn hear(root: &Path, vips: &[IpAddr], errno: i32) -> Testimony {
    let cgroup = root.join(CGROUP);
    match fs::create_dir(&cgroup) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Testimony::None(format!("cannot make {}: {error}", cgroup.display()));
        }
        _ => {}
    }
    let said = Command::new("/proc/self/exe")
        .env_clear()
        .arg(COMMAND)
        .arg(&cgroup)
        .arg(errno.to_string())
        .args(vips.iter().map(ToString::to_string))
        .output();
    leave(&cgroup);
    let output = match said {
        Ok(output) => output,
        Err(error) => return Testimony::None(format!("cannot start a process: {error}")),
    };
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.code() {
        Some(0) => Testimony::Refused,
        Some(status) if status == i32::from(NOT_REFUSED) => Testimony::NotRefused(why),
        _ => Testimony::None(why),
    }
}

/// Removes the cgroup. A process may leave it some time after it has ended, and another agent's may
/// be there: then the next witness is followed by this, or `cleanup`.
fn leave(cgroup: &Path) {
    for _ in 0..5 {
        match fs::remove_dir(cgroup) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                thread::sleep(Duration::from_millis(20));
            }
            _ => return,
        }
    }
}

/// The exit status that tells of it.
const NOT_REFUSED: u8 = 3;

/// What the hidden command is told.
#[derive(Debug, clap::Args)]
pub struct WitnessArgs {
    /// The cgroup to enter
    cgroup: PathBuf,
    /// What the programs answer
    errno: i32,
    /// Whom to connect to
    vips: Vec<IpAddr>,
}

/// Enters a cgroup and connects from there. Nothing is sent.
pub fn testify(args: &WitnessArgs) -> anyhow::Result<ExitCode> {
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

/// `None` if there is no such family here.
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
