//! CoreDNS as a pod has it: with its text, its token and its resolver where a container has them, in a namespace of its own.

use std::{
    fs::{self, File},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::{Child, Stdio},
};

use anyhow::{Context as _, ensure};
use mcs_tests::{cluster::Programs, netns::Namespace, wait};
use serde_json::Value;
use simple_dns::TYPE;

use super::ended;
use crate::{
    cluster::Cluster,
    dns::{Record, ask},
};

/// Shows a directory as `/etc` and `/run` of the process alone, and becomes CoreDNS.
const IN_A_POD: &str = r#"mount --bind "$0/etc" /etc && mount --bind "$0/run" /run && exec "$1" -conf /etc/coredns/Corefile"#;
/// Nothing is there: no name of another zone leaves the machine.
const RESOLVER: &str = "nameserver 192.0.2.1\n";

/// It is killed when this is dropped.
pub(super) struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    pub(super) fn start(
        cluster: &Cluster,
        netns: &Namespace,
        account: &Value,
        name: &str,
        corefile: &str,
        additions: &[(&(String, String), &String)],
    ) -> anyhow::Result<Self> {
        let pod = cluster.directory().join(format!("pod-{name}"));
        if pod.exists() {
            fs::remove_dir_all(&pod)?;
        }
        let (etc, secrets) =
            (pod.join("etc"), pod.join("run/secrets/kubernetes.io/serviceaccount"));
        let custom = etc.join("coredns/custom");
        fs::create_dir_all(&custom)?;
        fs::create_dir_all(&secrets)?;
        fs::write(etc.join("resolv.conf"), RESOLVER)?;
        fs::write(etc.join("coredns/Corefile"), filled_in(corefile))?;
        for ((map, key), text) in additions {
            let directory = if map == "coredns" { etc.join("coredns") } else { custom.clone() };
            if key != "Corefile" {
                fs::write(directory.join(key), text)?;
            }
        }
        fs::copy(cluster.server.authority(), secrets.join("ca.crt"))?;
        cluster.server.write_token(account, &secrets.join("token"))?;
        let log = cluster.directory().join(format!("coredns-{name}.log"));
        let file = File::create(&log)?;
        let address = cluster.server.address();
        let child = netns
            .command("unshare")
            .args(["--mount", "sh", "-c", IN_A_POD])
            .arg(&pod)
            .arg(Programs::from_env().find("coredns")?)
            .env("KUBERNETES_SERVICE_HOST", address.ip().to_string())
            .env("KUBERNETES_SERVICE_PORT", address.port().to_string())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("cannot start CoreDNS")?;
        Ok(Self { child, log })
    }

    fn check(&mut self) -> anyhow::Result<()> {
        let code = self.child.try_wait()?.map(|status| status.code().unwrap_or(-1));
        ended(code, &fs::read_to_string(&self.log).unwrap_or_default())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the program of NodeLocal DNSCache fills in before CoreDNS reads the text.
fn filled_in(corefile: &str) -> String {
    corefile
        .replace("__PILLAR__CLUSTER__DNS__", "10.96.0.11")
        .replace("__PILLAR__UPSTREAM__SERVERS__", "/etc/resolv.conf")
}

/// Waits until a name has this address. Fails at once when a server ends.
pub(super) fn wait_for(
    netns: &Namespace,
    servers: &mut [Server],
    server: SocketAddr,
    name: &str,
    address: IpAddr,
) -> anyhow::Result<()> {
    wait::until(&format!("{address} of {name}"), || {
        if let Err(error) = servers.iter_mut().try_for_each(Server::check) {
            return Ok(Err(error));
        }
        let found = ask(netns, server, name, TYPE::A)?;
        ensure!(found == [Record::Address(address)], "there are {found:?}");
        Ok(Ok(()))
    })?
}
