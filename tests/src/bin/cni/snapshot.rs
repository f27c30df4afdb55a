//! What is on the nodes: devices, qdiscs, filters, programs, pins, rules and routes.

use mcs_tests::bpf::{AttachType, attached_to_interface};

use crate::prelude::*;

/// What commands say on each node. What they print counts nothing.
const COMMANDS: [(&str, &[&str]); 9] = [
    ("ip", &["-oneline", "link"]),
    ("tc", &["qdisc", "show"]),
    ("nft", &["--stateless", "list", "ruleset"]),
    ("ip", &["-4", "rule"]),
    ("ip", &["-6", "rule"]),
    ("ip", &["-4", "route", "show", "table", "all"]),
    ("ip", &["-6", "route", "show", "table", "all"]),
    ("find", &["/sys/fs/bpf"]),
    ("bpftool", &["net"]),
];

/// Of every node with the CNI.
pub(crate) struct Snapshot(BTreeMap<String, BTreeSet<String>>);

impl Snapshot {
    /// Looks at all of them.
    pub(crate) fn take(stage: &Stage) -> Result<Self> {
        let (mut seen, names) = (BTreeMap::new(), names()?);
        for node in stage.importer.nodes() {
            let lines = |text: String| text.lines().map(without_ids).collect::<BTreeSet<_>>();
            for (program, words) in COMMANDS {
                let said = process::run(node.command(program).args(words), "")?;
                seen.insert(format!("{node}: {program} {}", words.join(" ")), lines(said));
            }
            let cgroup = node.cgroup()?;
            let programs =
                process::run(Command::new("bpftool").args(["cgroup", "tree"]).arg(&cgroup), "")?;
            seen.insert(format!("{node}: programs of cgroups"), lines(programs));
            seen.insert(format!("{node}: tcx"), by_tcx(node, &names)?);
        }
        Ok(Self(seen))
    }

    /// How many lines there are.
    pub(crate) fn count(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    /// What has gone since, and what has come.
    pub(crate) fn differences(&self, later: &Self) -> Vec<String> {
        let none = BTreeSet::new();
        let mut differences = Vec::new();
        for (what, now) in &later.0 {
            let before = self.0.get(what).unwrap_or(&none);
            let gone = before.difference(now).map(|line| format!("{what}: gone: {line}"));
            differences.extend(gone);
            let come = now.difference(before).map(|line| format!("{what}: has come: {line}"));
            differences.extend(come);
        }
        differences
    }
}

/// A line without the ids of programs and links: a CNI that starts again loads its programs anew.
fn without_ids(line: &str) -> String {
    let mut words: Vec<_> = line.split_whitespace().collect();
    if let Some(place) = words.iter().position(|word| *word == "id") {
        words.truncate(place);
    }
    // bpftool lists those of cgroups so.
    let is_number = words.first().is_some_and(|word| word.parse::<u32>().is_ok());
    words.get(usize::from(is_number)..).unwrap_or_default().join(" ")
}

/// The names of all programs, by their ids.
fn names() -> Result<BTreeMap<u64, String>> {
    let said = process::run(Command::new("bpftool").args(["--json", "prog", "show"]), "")?;
    let programs: Vec<Value> = serde_json::from_str(&said)?;
    let name = |program: &Value| {
        Some((program["id"].as_u64()?, program["name"].as_str().unwrap_or_default().to_owned()))
    };
    Ok(programs.iter().filter_map(name).collect())
}

/// The programs of each device in their order, which bpftool of Debian 12 does not list.
fn by_tcx(node: Node, names: &BTreeMap<u64, String>) -> Result<BTreeSet<String>> {
    let netns = Namespace::open(&node.netns())?;
    let links: Value = serde_json::from_str(&netns.output("ip", &["-json", "link"])?)?;
    netns.run(|| {
        let mut seen = BTreeSet::new();
        for link in links.as_array().into_iter().flatten() {
            let index =
                u32::try_from(link["ifindex"].as_u64().context("a link without an index")?)?;
            for (name, hook) in
                [("ingress", AttachType::BPF_TCX_INGRESS), ("egress", AttachType::BPF_TCX_EGRESS)]
            {
                let programs = attached_to_interface(index, hook)?;
                let programs: Vec<_> =
                    programs.into_iter().map(|id| names.get(&u64::from(id))).collect();
                seen.insert(format!("{} {name}: {programs:?}", link["ifname"]));
            }
        }
        Ok(seen)
    })?
}
