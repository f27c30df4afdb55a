//! A backend's pod: a network namespace, and a process in it that serves.

use std::{
    cell::Cell,
    env,
    fs::File,
    net::{IpAddr, SocketAddr, TcpListener, UdpSocket},
    os::unix::process::CommandExt as _,
    process::{Child, ExitCode, Stdio},
    thread,
};

use anyhow::{Context as _, Result};
use mcs_tests::{manifests::Protocol, netns::Namespace, run::Run, server::Server};

use super::example::{self, Family, Host};

/// Serve as a pod of the demonstration, which starts this itself
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to answer
    identity: String,
    /// Where to listen
    addresses: Vec<IpAddr>,
}

/// Answers HTTP requests and datagrams until it is killed.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut servers = Vec::new();
    for &ip in &args.addresses {
        let address = |protocol| SocketAddr::new(ip, example::target_port(protocol));
        let listener = TcpListener::bind(address(Protocol::Tcp))?;
        let socket = UdpSocket::bind(address(Protocol::Udp))?;
        servers.push(Server::http_on(listener, &args.identity)?);
        servers.push(Server::udp_on(socket, &args.identity)?);
    }
    loop {
        thread::park();
    }
}

/// A pod that serves while its process runs.
pub(super) struct Pod {
    pub(super) host: Host,
    process: Cell<Option<Child>>,
    pub(super) netns: Namespace,
}

impl Pod {
    /// Makes the pod, not linked to anything and without its process.
    pub(super) fn create(run: &Run, host: Host) -> Result<Self> {
        Ok(Self { host, process: Cell::default(), netns: Namespace::create(run, &host.role())? })
    }

    /// Starts the process.
    pub(super) fn start(&self, run: &Run) -> Result<()> {
        let log = run.directory().join(format!("{}.log", self.host.role()));
        let mut command = self.netns.command(env::current_exe()?);
        command.arg("pod").arg(self.host.to_string());
        command.args(Family::ALL.map(|family| self.host.address(family).to_string()));
        // Ctrl-C is not for the pods.
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(log)?);
        self.process.set(Some(command.spawn().context("cannot start a pod's process")?));
        Ok(())
    }

    /// Kills the process.
    pub(super) fn stop(&self) {
        if let Some(mut process) = self.process.take() {
            // It may already have ended.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.stop();
    }
}
