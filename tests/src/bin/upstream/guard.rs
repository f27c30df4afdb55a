//! A rule on every node that drops and counts what reaches netfilter for a ClusterIP, before kube-proxy's rules translate it.

use mcs_tests::{cluster::Node, nft, prelude::*};

const TABLE: &str = "inet mcs-upstream-guard";

/// Puts it on nodes, which may have it already.
pub(crate) fn put(nodes: &[Node], ranges: &[String]) -> Result {
    let rule = |range: &String| {
        let family = if range.contains(':') { "ip6" } else { "ip" };
        format!("    {family} daddr {range} counter drop\n")
    };
    let rules: Vec<_> = ranges.iter().map(rule).collect();
    let rules = rules.concat();
    // Before the translation of destinations, which has -100.
    let chain = |hook: &str| {
        format!("  chain {hook} {{\n    type filter hook {hook} priority -150;\n{rules}  }}\n")
    };
    let (before, output) = (chain("prerouting"), chain("output"));
    let text =
        format!("table {TABLE}\ndelete table {TABLE}\ntable {TABLE} {{\n{before}{output}}}\n");
    for node in nodes {
        process::run(node.command("nft").args(["--file", "-"]), &text)?;
    }
    Ok(())
}

/// Takes it away.
pub(crate) fn remove(nodes: &[Node]) -> Result {
    let text = format!("table {TABLE}\ndelete table {TABLE}\n");
    for node in nodes {
        process::run(node.command("nft").args(["--file", "-"]), &text)?;
    }
    Ok(())
}

/// How many packets it has dropped on all nodes.
pub(crate) fn dropped(nodes: &[Node]) -> Result<u64> {
    let mut sum = 0;
    for node in nodes {
        let mut list = node.command("nft");
        list.args(["list", "table"]).args(TABLE.split(' '));
        sum += nft::counted(&process::run(&mut list, "")?).into_iter().sum::<u64>();
    }
    Ok(sum)
}
