//! Connects from the client's network namespace, to the VIP and to each backend.

use std::{collections::BTreeMap, io, net::SocketAddr, path::Path};

use mcs_kube::{
    program::finding::Finding,
    reach::{self, Attempt, Outcome},
    reasons::Code,
};
use serde::{Serialize, Serializer};

use super::{
    client::{ClientOptions, ClientView, run_in},
    frontends::{FrontendView, some},
};
use crate::core::{kernel::loader::has_this_process, model::Protocol};

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
    /// One that is denied is refused by the agent, before Linux 5.18, and counts as refused.
    #[serde(serialize_with = "as_word")]
    pub(super) outcome: Outcome,
    /// Milliseconds until then.
    pub(super) milliseconds: u128,
}

/// The word in `explain` and its JSON.
pub(super) const fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Answered => "connected",
        Outcome::Refused => "refused",
        Outcome::Timeout => "silent",
        Outcome::Unreachable => "unreachable",
        _ => "failed",
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn as_word<S: Serializer>(outcome: &Outcome, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(word(*outcome))
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
        let vips = tcp().map(|one| (None, SocketAddr::new(one.frontend.ip, one.frontend.port)));
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
        let reachable = self.backends.iter().filter(|one| one.outcome == Outcome::Answered).count();
        for vip in self.vips.iter().filter(|vip| vip.outcome != Outcome::Answered) {
            let what = format!("{} is {}", vip.address, word(vip.outcome));
            if is_outside {
                findings.push(Finding::new(Code::ProbeOutside, what));
                continue;
            }
            let is_refused = vip.outcome == Outcome::Refused;
            let code = if is_refused { Code::VipRefused } else { Code::VipSilent };
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
                (Outcome::Timeout, Code::BackendSilent),
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
                        word(outcome),
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
) -> Vec<(Option<String>, SocketAddr)> {
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
    ranked.into_iter().take(MOST).map(|(_, address, cluster)| (cluster, address)).collect()
}

fn connect_all(
    options: &ClientOptions,
    cgroup: Option<&Path>,
    wanted: Vec<(Option<String>, SocketAddr)>,
) -> io::Result<Vec<ProbeResult>> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let namespace = options.namespace(cgroup).transpose()?;
    let attempts = run_in(namespace, async { Ok(reach::connect_all(wanted).await) })?;
    let result = |(cluster, Attempt { address, outcome, took })| ProbeResult {
        address,
        cluster,
        outcome: if outcome == Outcome::Denied { Outcome::Refused } else { outcome },
        milliseconds: took.as_millis(),
    };
    let mut results: Vec<_> = attempts.into_iter().map(result).collect();
    results.sort_by(|a, b| (&a.cluster, a.address).cmp(&(&b.cluster, b.address)));
    Ok(results)
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
        let wanted = [(Some("east".to_owned()), open), (Some("west".to_owned()), closed)];
        let results = connect_all(&ClientOptions::default(), None, wanted.into()).unwrap();
        let outcomes: Vec<_> = results.iter().map(|one| one.outcome).collect();
        assert_eq!(outcomes, [Outcome::Answered, Outcome::Refused]);
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
        view.vips.push(result("10.0.0.1:81", None, Outcome::Timeout));
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
        let (address, cluster) = backend("west", 200);
        let all = many.chain([(address, cluster.clone())]).collect();
        let chosen = some_of_each_cluster(all);
        assert_eq!(chosen.len(), MOST);
        assert!(chosen.contains(&(cluster, address)));
    }
}
