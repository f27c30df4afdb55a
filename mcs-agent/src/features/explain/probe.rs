//! Connects from the client's network namespace, to the VIP and to each backend.

use std::{collections::BTreeMap, fs, io, net::SocketAddr, path::Path, time::Duration};

use futures_util::{StreamExt as _, stream};
use mcs_kube::{program::finding::Finding, reasons::Code};
use serde::Serialize;
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};

use super::{
    client::{ClientOptions, ClientView, path_in_hierarchy, run_in},
    frontends::{FrontendView, some},
};
use crate::core::{kernel::loader::mount_of, model::Protocol};

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// Connections at a time.
const AT_ONCE: usize = 8;
/// Connections to backends at most.
const MOST: usize = 16;

/// What the probe found.
#[derive(Debug, Serialize)]
pub(super) struct ProbeView {
    pub(super) vips: Vec<ProbeResult>,
    /// Some backends of each source cluster.
    pub(super) backends: Vec<ProbeResult>,
    /// Backends that were left out.
    pub(super) left_out: usize,
}

/// The result for one address.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct ProbeResult {
    pub(super) address: SocketAddr,
    /// The source cluster of a backend.
    pub(super) cluster: Option<String>,
    pub(super) outcome: Outcome,
    /// Milliseconds until then.
    pub(super) milliseconds: u128,
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Outcome {
    /// The connection was made.
    Connected,
    /// It was refused.
    Refused,
    /// Nobody answered in time.
    Silent,
    /// There is no way to the address.
    Unreachable,
    /// It failed in another way.
    Failed,
}

impl Outcome {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Refused => "refused",
            Self::Silent => "silent",
            Self::Unreachable => "unreachable",
            Self::Failed => "failed",
        }
    }

    fn of(result: io::Result<TcpStream>) -> Self {
        let Err(error) = result else { return Self::Connected };
        match error.kind() {
            // EPERM: the programs refuse so before Linux 5.18.
            io::ErrorKind::ConnectionRefused | io::ErrorKind::PermissionDenied => Self::Refused,
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::Silent,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Self::Unreachable,
            _ => Self::Failed,
        }
    }
}

impl ProbeView {
    pub(super) fn run(
        frontends: &[FrontendView],
        client: &ClientView,
        options: &ClientOptions,
        findings: &mut Vec<Finding>,
    ) -> Self {
        let mut view = Self { vips: Vec::new(), backends: Vec::new(), left_out: 0 };
        if frontends.iter().any(|one| one.frontend.protocol == Protocol::Udp) {
            findings.push(Finding::new(Code::ProbeTcpOnly, "frontends of UDP were left out"));
        }
        let tcp = || frontends.iter().filter(|one| one.frontend.protocol == Protocol::Tcp);
        let vips = tcp().map(|one| (SocketAddr::new(one.frontend.ip, one.frontend.port), None));
        let backends: BTreeMap<SocketAddr, Option<String>> = tcp()
            .flat_map(|one| &one.backends)
            .map(|one| (one.address, Some(one.cluster().to_owned())))
            .collect();
        view.left_out = backends.len().saturating_sub(MOST);
        let cgroup = client.cgroup.as_deref();
        let is_seen = options.pod.is_none() || options.process(cgroup).is_some();
        let mut wanted = some_of_each_cluster(backends);
        if is_seen {
            wanted.extend(vips);
        } else {
            let what = "no process of the pod was found, so the probe connects from here, to backends alone";
            findings.push(Finding::new(Code::ProbeFromNode, what));
        }
        let node = ClientOptions::default();
        match connect_all(if is_seen { options } else { &node }, cgroup, wanted) {
            Ok(results) => {
                (view.backends, view.vips) =
                    results.into_iter().partition(|one| one.cluster.is_some());
            }
            Err(error) => {
                findings.push(Finding::new(Code::ProbeNotAllowed, error.to_string()));
                return view;
            }
        }
        let is_outside = client.root.as_ref().is_some_and(|root| !has_this_process(root));
        view.judge(is_outside, findings);
        view
    }

    fn judge(&self, is_outside: bool, findings: &mut Vec<Finding>) {
        let reachable =
            self.backends.iter().filter(|one| one.outcome == Outcome::Connected).count();
        for vip in self.vips.iter().filter(|vip| vip.outcome != Outcome::Connected) {
            let what = format!("{} is {}", vip.address, vip.outcome.name());
            if is_outside {
                findings.push(Finding::new(Code::ProbeOutside, what));
                continue;
            }
            let code = match vip.outcome {
                Outcome::Refused => Code::VipRefused,
                _ => Code::VipSilent,
            };
            let backends = self.backends.len();
            findings.push(Finding::new(
                code,
                format!("{what}; {reachable} of {backends} backends can be connected to"),
            ));
        }
        let mut clusters = BTreeMap::<&str, Vec<&ProbeResult>>::new();
        for one in &self.backends {
            clusters.entry(one.cluster.as_deref().unwrap_or_default()).or_default().push(one);
        }
        for (cluster, results) in clusters {
            for (outcome, code) in [
                (Outcome::Silent, Code::BackendSilent),
                (Outcome::Unreachable, Code::BackendSilent),
                (Outcome::Failed, Code::BackendSilent),
                (Outcome::Refused, Code::BackendRefused),
            ] {
                let found: Vec<_> = results
                    .iter()
                    .filter(|one| one.outcome == outcome)
                    .map(|one| one.address)
                    .collect();
                if !found.is_empty() {
                    let what = format!(
                        "{cluster}: {} of {} {}: {}",
                        found.len(),
                        results.len(),
                        outcome.name(),
                        some(&found)
                    );
                    findings.push(Finding::new(code, what));
                }
            }
        }
    }
}

/// Some backends, the same number of each source cluster.
fn some_of_each_cluster(
    backends: BTreeMap<SocketAddr, Option<String>>,
) -> Vec<(SocketAddr, Option<String>)> {
    let mut clusters = BTreeMap::<Option<String>, usize>::new();
    let mut ranked: Vec<_> = backends
        .into_iter()
        .map(|(address, cluster)| {
            let rank = clusters.entry(cluster.clone()).or_default();
            *rank += 1;
            (*rank, address, cluster)
        })
        .collect();
    ranked.sort();
    ranked.into_iter().take(MOST).map(|(_, address, cluster)| (address, cluster)).collect()
}

/// Whether this process is in the cgroup or below it: programs see the sockets of its processes alone.
fn has_this_process(cgroup: &Path) -> bool {
    let own = path_in_hierarchy("self").ok().flatten().unwrap_or_default();
    let own = own.trim_start_matches('/');
    let mount = mount_of(cgroup);
    if !own.is_empty() {
        return mount.join(own).starts_with(cgroup);
    }
    // It is in the root, or in a cgroup namespace of its own, where its path is the root.
    let in_root = fs::read_to_string(mount.join("cgroup.procs")).unwrap_or_default();
    let pid = std::process::id();
    mount == cgroup || in_root.lines().all(|line| line.parse() != Ok(pid))
}

fn connect_all(
    options: &ClientOptions,
    cgroup: Option<&Path>,
    wanted: Vec<(SocketAddr, Option<String>)>,
) -> io::Result<Vec<ProbeResult>> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let namespace = options.namespace(cgroup).transpose()?;
    let attempts = wanted.into_iter().map(|(address, cluster)| connect(address, cluster));
    let mut results: Vec<_> = run_in(namespace, async {
        Ok(stream::iter(attempts).buffer_unordered(AT_ONCE).collect().await)
    })?;
    results.sort_by(|a: &ProbeResult, b| (&a.cluster, a.address).cmp(&(&b.cluster, b.address)));
    Ok(results)
}

async fn connect(address: SocketAddr, cluster: Option<String>) -> ProbeResult {
    let began = Instant::now();
    let outcome = match timeout(PATIENCE, TcpStream::connect(address)).await {
        Ok(result) => Outcome::of(result),
        Err(_) => Outcome::Silent,
    };
    ProbeResult { address, cluster, outcome, milliseconds: began.elapsed().as_millis() }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_probe_tells_who_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let wanted = [(open, Some("east".to_owned())), (closed, Some("west".to_owned()))];
        let results = connect_all(&ClientOptions::default(), None, wanted.into()).unwrap();
        let outcomes: Vec<_> = results.iter().map(|one| one.outcome).collect();
        assert_eq!(outcomes, [Outcome::Connected, Outcome::Refused]);
    }

    #[test]
    fn what_does_not_answer_is_told_from_what_refuses() {
        let result = |address: &str, cluster: Option<&str>, outcome| ProbeResult {
            address: address.parse().unwrap(),
            cluster: cluster.map(str::to_owned),
            outcome,
            milliseconds: 1,
        };
        let mut view = ProbeView { left_out: 0, vips: vec![], backends: vec![] };
        view.vips.push(result("10.0.0.1:80", None, Outcome::Refused));
        view.vips.push(result("10.0.0.1:81", None, Outcome::Silent));
        view.backends.push(result("10.1.0.1:80", Some("east"), Outcome::Unreachable));
        view.backends.push(result("10.2.0.1:80", Some("west"), Outcome::Refused));
        let codes = |is_outside| {
            let mut findings = vec![];
            view.judge(is_outside, &mut findings);
            findings.into_iter().map(|one| one.code).collect::<Vec<_>>()
        };
        let backends = ["backend-silent", "backend-refused"];
        let seen = [&["vip-refused", "vip-silent"][..], &backends].concat();
        assert_eq!(codes(false), seen);
        assert_eq!(codes(true), [&["probe-outside"; 2][..], &backends].concat());
    }

    #[test]
    fn udp_is_left_out() {
        let udp = FrontendView::fixture(53, Protocol::Udp);
        let (client, options, mut findings) =
            (ClientView::default(), ClientOptions::default(), vec![]);
        let view = ProbeView::run(&[udp], &client, &options, &mut findings);
        assert!(view.vips.is_empty());
        assert_eq!(
            findings.into_iter().map(|one| one.code).collect::<Vec<_>>(),
            ["probe-tcp-only"]
        );
    }

    #[test]
    fn every_cluster_is_probed() {
        let backend = |cluster: &str, last: u8| {
            (SocketAddr::from(([10, 0, 0, last], 80)), Some(cluster.to_owned()))
        };
        let many = (1..=40).map(|last| backend("east", last));
        let chosen = some_of_each_cluster(many.chain([backend("west", 200)]).collect());
        assert_eq!(chosen.len(), MOST);
        assert!(chosen.contains(&backend("west", 200)));
    }
}
