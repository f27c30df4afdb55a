//! Adds the block for clusterset.local to the configuration of CoreDNS, and removes it. deploy/dns/README.md gives the
//! reasons for its content.

use mcs_kube::dns_name::ZONE;

/// Excludes imported slices from the other blocks, which never answer for them.
const LABELS: &str = "labels !multicluster.kubernetes.io/source-cluster";

/// The block for the zone, equal to deploy/dns/Corefile.
pub(crate) const BLOCK: &str = "\
clusterset.local:53 {
    errors
    cache 30
    kubernetes clusterset.local {
        multicluster clusterset.local
        noendpoints
    }
}
";

/// A server block: its lines, from the one with the zones to the last brace.
struct Block {
    first: usize,
    last: usize,
}

/// Why a Corefile is not edited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum CorefileError {
    /// A brace is missing.
    #[error("its braces do not match")]
    Braces,
    /// It has no block to copy.
    #[error("it has no block for cluster.local")]
    NoCluster,
}

/// Whether a Corefile answers for the zone.
pub(crate) fn serves_zone(corefile: &str) -> bool {
    words(corefile).any(|mut words| {
        words.next() == Some("multicluster") && words.any(|word| word.trim_end_matches('.') == ZONE)
    })
}

/// Whether CoreDNS reads the Corefile again when it changes.
pub(crate) fn reloads(corefile: &str) -> bool {
    words(corefile).any(|mut words| words.next() == Some("reload"))
}

/// Whether a Corefile imports server blocks from other files, as those of k3s and AKS do.
pub(crate) fn imports_servers(corefile: &str) -> bool {
    words(corefile).any(|mut words| {
        words.next() == Some("import") && words.any(|word| word.ends_with(".server"))
    })
}

/// The Corefile with the block for the zone, and with imported slices excluded from its other blocks. A Corefile that
/// serves the zone stays unchanged.
///
/// # Errors
/// The Corefile is none.
pub(crate) fn with_zone(corefile: &str) -> Result<String, CorefileError> {
    blocks(corefile)?;
    if serves_zone(corefile) {
        return Ok(corefile.to_owned());
    }
    let mut lines: Vec<String> = BLOCK.lines().map(str::to_owned).collect();
    let mut section: Option<String> = None;
    for line in corefile.lines() {
        let indentation = &line[..line.len() - line.trim_start().len()];
        let content = content(line);
        if let Some(of_section) = &section
            && content == "}"
        {
            lines.push(format!("{of_section}    {LABELS}"));
            section = None;
        } else if section.is_some() && content.starts_with("labels ") {
            // The block has its own rule for slices.
            section = None;
        }
        let is_kubernetes = content.split_whitespace().next() == Some("kubernetes");
        if is_kubernetes && content.ends_with('{') {
            section = Some(indentation.to_owned());
        }
        if is_kubernetes && !content.ends_with('{') {
            lines.push(format!("{indentation}{content} {{"));
            lines.push(format!("{indentation}    {LABELS}"));
            lines.push(format!("{indentation}}}"));
        } else {
            lines.push(line.to_owned());
        }
    }
    Ok(text(&lines))
}

/// The Corefile without the block for the zone, and without the additions of [`with_zone`] to other blocks.
///
/// # Errors
/// The Corefile is none.
pub(crate) fn without_zone(corefile: &str) -> Result<String, CorefileError> {
    let lines: Vec<&str> = corefile.lines().collect();
    let is_of_zone = |block: &&Block| serves_zone(&lines[block.first..=block.last].join("\n"));
    let blocks = blocks(corefile)?;
    let taken: Vec<&Block> = blocks.iter().filter(is_of_zone).collect();
    let mut left: Vec<String> = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let is_taken = taken.iter().any(|block| (block.first..=block.last).contains(&number));
        if is_taken || content(line) == LABELS {
            continue;
        }
        let is_empty_section = content(line) == "}"
            && left.last().is_some_and(|last| {
                content(last).starts_with("kubernetes ") && last.trim_end().ends_with('{')
            });
        if is_empty_section && let Some(last) = left.last_mut() {
            let without = last.trim_end().trim_end_matches('{').trim_end().to_owned();
            *last = without;
            continue;
        }
        left.push((*line).to_owned());
    }
    Ok(text(&left))
}

/// The Corefile of NodeLocal DNSCache with a block for the zone: a copy of the block for cluster.local, which forwards to
/// CoreDNS. The copy lacks `health`: only one block can have its port.
///
/// # Errors
/// The Corefile is none, or has no block for cluster.local.
pub(crate) fn node_local_with_zone(corefile: &str) -> Result<String, CorefileError> {
    let lines: Vec<&str> = corefile.lines().collect();
    let blocks = blocks(corefile)?;
    let is_of = |block: &&Block, zone: &str| {
        lines[block.first].split_whitespace().any(|word| zone_of(word) == zone)
    };
    if blocks.iter().any(|block| is_of(&block, ZONE)) {
        return Ok(corefile.to_owned());
    }
    let model = blocks.iter().find(|block| is_of(block, "cluster.local"));
    let Block { first, last } = *model.ok_or(CorefileError::NoCluster)?;
    let mut copy = vec![format!("{ZONE}:53 {{")];
    let inner = lines[first + 1..=last].iter();
    copy.extend(
        inner.filter(|line| !content(line).starts_with("health")).map(|line| (*line).to_owned()),
    );
    copy.extend(lines.iter().map(|line| (*line).to_owned()));
    Ok(text(&copy))
}

/// The Corefile of NodeLocal DNSCache without the block for the zone.
///
/// # Errors
/// The Corefile is none.
pub(crate) fn node_local_without_zone(corefile: &str) -> Result<String, CorefileError> {
    let lines: Vec<&str> = corefile.lines().collect();
    let blocks = blocks(corefile)?;
    let is_of_zone = |block: &&Block| {
        lines[block.first].split_whitespace().map(zone_of).filter(|word| *word != "{").eq([ZONE])
    };
    let taken: Vec<&Block> = blocks.iter().filter(is_of_zone).collect();
    let is_left =
        |number: &usize| !taken.iter().any(|block| (block.first..=block.last).contains(number));
    let left = lines.iter().enumerate().filter(|(number, _)| is_left(number));
    Ok(text(&left.map(|(_, line)| (*line).to_owned()).collect::<Vec<_>>()))
}

/// The server blocks of a Corefile. An opening brace is the last word of its line, and a closing brace is alone on its
/// line.
fn blocks(corefile: &str) -> Result<Vec<Block>, CorefileError> {
    let mut blocks = Vec::new();
    let mut open = Vec::new();
    for (number, line) in corefile.lines().enumerate() {
        let content = content(line);
        if content.split_whitespace().next_back() == Some("{") {
            open.push(number);
        } else if content == "}" {
            let first = open.pop().ok_or(CorefileError::Braces)?;
            if open.is_empty() {
                blocks.push(Block { first, last: number });
            }
        }
    }
    if open.is_empty() { Ok(blocks) } else { Err(CorefileError::Braces) }
}

/// A line without its comment and indentation.
fn content(line: &str) -> &str {
    let is_comment = |(at, _): &(usize, &str)| *at == 0 || line[..*at].ends_with([' ', '\t']);
    let comment = line.match_indices('#').find(is_comment).map_or(line.len(), |(at, _)| at);
    line[..comment].trim()
}

fn words(corefile: &str) -> impl Iterator<Item = std::str::SplitWhitespace<'_>> {
    corefile.lines().map(|line| content(line).split_whitespace())
}

/// The zone of a server block: `cluster.local` for `dns://cluster.local:53`.
fn zone_of(word: &str) -> &str {
    let word = word.trim_start_matches("dns://").trim_end_matches(',');
    word.split(':').next().unwrap_or(word).trim_end_matches('.')
}

fn text(lines: &[String]) -> String {
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As kubeadm writes it.
    const KUBEADM: &str = "\
.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30
    loop
    reload
    loadbalance
}
";

    #[test]
    fn the_block_is_that_of_the_documents() {
        for document in [
            include_str!("../../deploy/dns/Corefile"),
            include_str!("../../deploy/helm/mcs/dns/clusterset.server"),
        ] {
            assert!(document.contains(BLOCK.trim_end()), "{document}");
        }
    }

    #[test]
    fn the_zone_comes_and_goes_and_leaves_nothing() {
        let short = "example.org {\n  forward . 10.0.0.1 # { no brace\n}\n.:53 {\n  kubernetes cluster.local\n}\n";
        for before in [KUBEADM, short] {
            let after = with_zone(before).unwrap();
            assert!(serves_zone(&after) && after.starts_with(BLOCK), "{after}");
            assert_eq!(after.matches(LABELS).count(), 1, "{after}");
            assert_eq!(with_zone(&after).as_ref(), Ok(&after), "a second time");
            assert_eq!(without_zone(&after).as_deref(), Ok(before));
            assert_eq!(without_zone(before).as_deref(), Ok(before));
        }
    }

    #[test]
    fn what_others_wrote_stays() {
        let own = KUBEADM.replace("ttl 30", "labels tier=web");
        let after = with_zone(&own).unwrap();
        assert!(!after.contains(LABELS) && after.contains("labels tier=web"), "{after}");
        assert_eq!(without_zone(&after), Ok(own));
    }

    #[test]
    fn text_that_is_no_corefile_is_left_alone() {
        for broken in [".:53 {\n  errors\n", "}\n", ".:53 {\n}\n}\n"] {
            assert_eq!(with_zone(broken), Err(CorefileError::Braces), "{broken}");
            assert_eq!(without_zone(broken), Err(CorefileError::Braces));
        }
        assert!(!serves_zone(".:53 {\n  # multicluster clusterset.local\n}"));
        assert!(reloads(KUBEADM) && !reloads(".:53 {\n  # reload\n}"));
    }

    #[test]
    fn imported_servers_are_found() {
        let k3s = ".:53 {\n  import /etc/coredns/custom/*.override\n}\nimport /etc/coredns/custom/*.server\n";
        assert!(imports_servers(k3s) && !imports_servers(KUBEADM));
    }

    #[test]
    fn node_local_dns_cache_gets_a_copy_of_its_block_for_the_cluster() {
        let before = "\
cluster.local:53 {
    errors
    bind 169.254.20.10 10.96.0.10
    forward . __PILLAR__CLUSTER__DNS__ {
        force_tcp
    }
    health 169.254.20.10:8080
}
.:53 {
    bind 169.254.20.10 10.96.0.10
    forward . __PILLAR__UPSTREAM__SERVERS__
}
";
        let after = node_local_with_zone(before).unwrap();
        assert!(
            after.starts_with("clusterset.local:53 {\n    errors\n    bind 169.254.20.10"),
            "{after}"
        );
        assert_eq!(after.matches("health").count(), 1, "{after}");
        assert_eq!(node_local_with_zone(&after).as_ref(), Ok(&after));
        assert_eq!(node_local_without_zone(&after).as_deref(), Ok(before));
        assert_eq!(node_local_with_zone(".:53 {\n}\n"), Err(CorefileError::NoCluster));
    }
}
