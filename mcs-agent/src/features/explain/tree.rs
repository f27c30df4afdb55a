//! The explanation as a tree of lines.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
};

use mcs_kube::{hanging, reasons::Coded as _};

use super::{
    Explained, ImportView,
    client::ClientView,
    fates::{EndpointFate, word},
    first,
    frontends::FrontendView,
    list,
    probe::{self, ProbeView},
    rules::ExplainedSlice,
};
use crate::core::{
    feature::{Definition, TierLine, tier_lines},
    rules::Fate,
};

/// How many addresses a line names.
const NAMED: usize = 4;

struct Tree<'a> {
    text: String,
    features: &'a [Definition],
    width: usize,
    /// Whether all addresses are named.
    all: bool,
}

/// The tree, with lines of at most `width` columns.
pub(super) fn of(
    explained: &Explained,
    width: usize,
    all: bool,
    features: &[Definition],
) -> String {
    let mut tree = Tree { text: String::new(), features, width, all };
    let target = &explained.target;
    tree.line(
        0,
        &match explained.served {
            Some(true) => format!("{target} is served"),
            Some(false) => format!("{target} is not served as it should be"),
            None => format!("it could not be found out whether {target} is served"),
        },
    );
    for import in &explained.imports {
        tree.import(import);
    }
    if explained.source.is_none() {
        tree.line(1, "endpoints: unknown, since the source was not read");
    }
    if let Some(dns) = &explained.dns {
        let addresses = or(list(&dns.addresses), "nothing");
        tree.line(1, &format!("name {} by {}: {addresses}", dns.name, dns.server));
    }
    for frontend in &explained.frontends {
        tree.frontend(frontend);
    }
    tree.client(&explained.client);
    if let Some(probe) = &explained.probe {
        tree.probe(probe);
    }
    for finding in &explained.findings {
        tree.text.push_str(&finding.text(width));
    }
    tree.text.pop();
    tree.text
}

impl Tree<'_> {
    /// Adds a line at this depth. A longer one continues two columns further in.
    fn line(&mut self, depth: usize, text: &str) {
        self.text.push_str(&hanging(depth * 2, text, self.width));
    }

    fn import(&mut self, import: &ImportView) {
        let ImportView { import: key, state, message, ips, ports, sections, slices } = import;
        let state = match state {
            Some(state) => state.to_string(),
            None if message.is_empty() => "not found".to_owned(),
            None => "not known".to_owned(),
        };
        let why = if message.is_empty() { String::new() } else { format!(": {message}") };
        self.line(1, &format!("ServiceImport {key}: {state}{why}"));
        if !ips.is_empty() {
            self.line(2, &format!("ClusterSetIP {}", ips.join(", ")));
        }
        if !ports.is_empty() {
            self.line(2, &format!("ports {}", ports.join(", ")));
        }
        for TierLine { name, text, .. } in tier_lines(self.features, sections) {
            self.line(2, &format!("{} {text}", name.to_lowercase()));
        }
        let mut clusters = BTreeMap::<&str, Vec<&ExplainedSlice>>::new();
        for slice in slices {
            clusters.entry(&slice.cluster).or_default().push(slice);
        }
        for (cluster, slices) in clusters {
            self.cluster(cluster, &slices);
        }
    }

    fn cluster(&mut self, cluster: &str, slices: &[&ExplainedSlice]) {
        let cluster = if cluster.is_empty() { "unknown cluster" } else { cluster };
        let endpoints = slices.iter().map(|slice| slice.endpoints.len()).sum::<usize>();
        let ports: BTreeSet<_> = slices.iter().flat_map(|slice| &slice.ports).collect();
        let ports = or(list(ports), "none");
        let count = slices.len();
        self.line(
            2,
            &format!("{cluster}: endpoints {endpoints}, EndpointSlices {count}, ports {ports}"),
        );
        let mut fates = BTreeMap::<(EndpointFate, String), Vec<String>>::new();
        for endpoint in slices.iter().flat_map(|slice| &slice.endpoints) {
            for one in &endpoint.fates {
                let port = one.port.as_deref().filter(|port| !port.is_empty());
                let port = port.map(|port| format!(" for {port}")).unwrap_or_default();
                let at = one
                    .backend
                    .map_or_else(|| endpoint.address.clone(), |backend| backend.to_string());
                let message =
                    one.message.clone().map(|why| format!(" ({why})")).unwrap_or_default();
                fates.entry((one.fate, port)).or_default().push(format!("{at}{message}"));
            }
        }
        for ((fate, port), addresses) in fates {
            let named = self.named(&addresses);
            self.line(3, &format!("{} {}{port}: {named}", addresses.len(), word(fate)));
            if let Some(fate) = fate.ok().filter(|fate| *fate != Fate::Used) {
                self.line(4, &fate.meaning());
            }
        }
    }

    fn named(&self, addresses: &[impl Display]) -> String {
        first(addresses, if self.all { addresses.len() } else { NAMED })
    }

    fn frontend(&mut self, view: &FrontendView) {
        let Some(state) = view.state else {
            self.line(1, &format!("frontend {}: not in the maps", view.frontend));
            return;
        };
        let differs = match (view.missing.len(), view.stale.len()) {
            (0, 0) => String::new(),
            (lacks, 0) => format!("; the rules want {lacks} more"),
            (0, has) => format!("; the rules do not want {has} of them"),
            (lacks, has) => format!("; the rules want {lacks} more, and not {has} of them"),
        };
        self.line(
            1,
            &format!(
                "frontend {} of {}: {state}, {} slots in the maps{differs}",
                view.frontend, view.import, view.slots
            ),
        );
        let mut clusters = BTreeMap::<&str, Vec<_>>::new();
        for backend in &view.backends {
            clusters.entry(backend.cluster()).or_default().push(backend.address);
        }
        for (cluster, backends) in clusters {
            let named = self.named(&backends);
            self.line(2, &format!("{cluster}: {named}"));
        }
        if !view.kept.is_empty() {
            let kept: Vec<_> = view.kept.iter().map(|backend| backend.address).collect();
            let named = self.named(&kept);
            self.line(2, &format!("kept for their UDP clients: {named}"));
        }
        if let Some((clients, seconds)) = view.affinity_clients.zip(view.affinity_seconds) {
            self.line(2, &format!("affinity of {seconds} s: {clients} clients"));
        }
        if let Some(flows) = view.flows.filter(|flows| *flows > 0) {
            let some = view.some_flows.iter();
            let some = list(some.map(|one| format!("{} to {}", one.client, one.backend)));
            self.line(2, &format!("{flows} flows of the packet path: {some}"));
        }
    }

    fn client(&mut self, client: &ClientView) {
        let cgroup = client.cgroup.as_ref().map(|path| format!(", cgroup {}", path.display()));
        self.line(1, &format!("client: {}{}", client.who, cgroup.unwrap_or_default()));
        let (run, others): (Vec<_>, Vec<_>) =
            client.hooks.iter().partition(|hook| hook.runs == Some(true));
        for (hooks, what) in [(run, "hooks that run"), (others, "hooks that do not run")] {
            if !hooks.is_empty() {
                let names = list(hooks.iter().map(|hook| hook.name));
                self.line(2, &format!("{what}: {names}"));
            }
        }
        if let Some(device) = &client.device {
            let programs = or(list(&device.programs), "no programs");
            self.line(2, &format!("device {}: {programs}", device.name));
        }
    }

    fn probe(&mut self, probe: &ProbeView) {
        self.line(1, "probe, by TCP:");
        for one in probe.vips.iter().chain(&probe.backends) {
            let cluster = one.cluster.as_ref().map(|cluster| format!(" ({cluster})"));
            self.line(
                2,
                &format!(
                    "{}{} {} in {} ms",
                    one.address,
                    cluster.unwrap_or_default(),
                    probe::word(one.outcome),
                    one.milliseconds
                ),
            );
        }
        if probe.left_out > 0 {
            self.line(2, &format!("{} backends were left out", probe.left_out));
        }
    }
}

fn or(text: String, instead: &str) -> String {
    if text.is_empty() { instead.to_owned() } else { text }
}
