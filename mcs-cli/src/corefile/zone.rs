//! Which blocks of Corefiles serve the domain of the cluster and the zone of the clusterset.

use std::{collections::BTreeSet, ptr};

use mcs_kube::names::ZONE;

use super::{Block, Corefile, CorefileError, Directive, name_zone, normal};

/// The usual domain of a cluster.
const CLUSTER: &str = "cluster.local";
/// Directives that say nothing about who answers.
const ASIDE: [&str; 13] = [
    "bind",
    "bufsize",
    "cache",
    "debug",
    "errors",
    "health",
    "import",
    "log",
    "loop",
    "loadbalance",
    "prometheus",
    "ready",
    "reload",
];

/// The block that serves the domain of the cluster: the one for the zone has its port and what follows from where CoreDNS runs.
pub(crate) struct Model {
    /// The domain of the cluster.
    pub(crate) domain: String,
    /// Its port, as the header has it.
    pub(super) port: Option<String>,
    /// Its lines about addresses.
    pub(super) bind: Vec<String>,
    /// The lines of `kubernetes` about the API server.
    pub(super) server: Vec<String>,
}

/// Who answers the zone.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum State {
    Nobody,
    /// The block with this header.
    Block(String),
}

/// A block that serves the domain of a cluster by `kubernetes`.
struct Candidate<'a> {
    domain: String,
    corefile: &'a Corefile<'a>,
    block: &'a Block,
    kubernetes: &'a Directive,
}

/// The block for the domain of the cluster, among those of a Corefile and of what it imports.
///
/// # Errors
/// There is none, or several.
pub(crate) fn model(corefiles: &[&Corefile<'_>]) -> Result<Model, CorefileError> {
    let candidates: Vec<_> = corefiles.iter().flat_map(|one| candidates(one)).collect();
    let domains: BTreeSet<_> = candidates.iter().map(|one| one.domain.as_str()).collect();
    let domain = match domains.first() {
        None => return Err(CorefileError::NoCluster),
        Some(_) if domains.contains(CLUSTER) => CLUSTER,
        Some(domain) if domains.len() == 1 => *domain,
        Some(_) => {
            return Err(CorefileError::Domains(joined(domains.iter().copied())));
        }
    };
    let of_domain: Vec<_> = candidates.iter().filter(|one| one.domain == domain).collect();
    let blocks: Vec<_> = of_domain.iter().map(|one| one.block).collect();
    if ports(&blocks, domain).len() > 1 {
        return Err(several(&blocks, domain));
    }
    let block = best(blocks.into_iter(), domain)?;
    let served = of_domain.iter().find(|one| block.is_some_and(|block| ptr::eq(one.block, block)));
    let Some(Candidate { corefile, block, kubernetes, .. }) = served else {
        return Err(CorefileError::NoCluster);
    };
    let lines = |directives: &[&Directive], names: &[&str]| {
        let named = directives.iter().filter(|one| names.contains(&one.name()));
        named.map(|one| corefile.text_of(one).to_owned()).collect()
    };
    let inner: Vec<_> = kubernetes.inner().iter().collect();
    Ok(Model {
        domain: domain.to_owned(),
        port: block
            .keys()
            .find(|key| key.covers(domain))
            .and_then(|key| key.port.map(str::to_owned)),
        bind: lines(&corefile.directives(block), &["bind"]),
        server: lines(&inner, &["endpoint", "tls", "kubeconfig"]),
    })
}

fn candidates<'a>(corefile: &'a Corefile<'a>) -> Vec<Candidate<'a>> {
    let mut all = Vec::new();
    for block in corefile.servers() {
        for kubernetes in corefile.directives(block) {
            if kubernetes.name() != "kubernetes" {
                continue;
            }
            let domains = zones(kubernetes, block).into_iter().filter(|zone| {
                !zone.is_empty()
                    && zone != ZONE
                    && !zone.contains('/')
                    && zone.rsplit('.').next() != Some("arpa")
            });
            let domains = domains.filter(|zone| block.keys().any(|key| key.covers(zone)));
            all.extend(domains.map(|domain| Candidate { domain, corefile, block, kubernetes }));
        }
    }
    all
}

/// The zones of `kubernetes`: by default those of its block.
fn zones(kubernetes: &Directive, block: &Block) -> BTreeSet<String> {
    match kubernetes.arguments() {
        [] => block.keys().map(|key| key.zone).collect(),
        zones => zones.iter().map(|zone| normal(zone)).collect(),
    }
}

/// The block with the longest zone above a domain.
///
/// # Errors
/// Several have it, or one has it on several ports.
fn best<'a>(
    blocks: impl Iterator<Item = &'a Block>,
    domain: &str,
) -> Result<Option<&'a Block>, CorefileError> {
    let length = |block: &Block| {
        let keys = block.keys().filter(|key| key.covers(domain));
        keys.map(|key| key.zone.len()).max()
    };
    let blocks: Vec<_> = blocks.filter_map(|block| Some((length(block)?, block))).collect();
    let Some(longest) = blocks.iter().map(|(length, _)| *length).max() else { return Ok(None) };
    let found = blocks.iter().filter(|(length, _)| *length == longest).map(|(_, block)| *block);
    let found: Vec<_> = found.collect();
    match *found {
        [block] if ports(&found, domain).len() == 1 => Ok(Some(block)),
        _ => Err(several(&found, domain)),
    }
}

/// The ports on which blocks serve a domain.
fn ports<'a>(blocks: &[&'a Block], domain: &str) -> BTreeSet<&'a str> {
    let keys = blocks.iter().flat_map(|block| block.keys());
    keys.filter(|key| key.covers(domain)).map(|key| key.port()).collect()
}

fn several(blocks: &[&Block], domain: &str) -> CorefileError {
    let headers = joined(blocks.iter().map(|block| block.header()));
    let what = format!("{headers}; ports {}", joined(ports(blocks, domain).into_iter()));
    CorefileError::Several(domain.to_owned(), what)
}

fn joined(all: impl Iterator<Item = impl ToString>) -> String {
    all.map(|one| one.to_string()).collect::<Vec<_>>().join(", ")
}

/// Who answers the zone on the port of the model.
///
/// # Errors
/// Another DNS does, or the block is on another port.
pub(crate) fn state(corefile: &Corefile<'_>, model: &Model) -> Result<State, CorefileError> {
    let port = model.port();
    let length = |block: &Block| {
        let keys = block.keys().filter(|key| key.port() == port && key.covers(ZONE));
        keys.map(|key| key.zone.len()).max()
    };
    let longest = corefile.servers().filter_map(length).max();
    let mut answers = State::Nobody;
    for block in corefile.servers() {
        let directives = corefile.directives(block);
        let header = block.header();
        if directives.iter().any(|one| is_multicluster(one)) {
            if longest.is_some() && length(block) == longest {
                answers = State::Block(header);
            } else if block.is_of_zone() {
                let (domain, port) = (model.domain.clone(), port.to_owned());
                return Err(CorefileError::OtherPort { header, domain, port });
            }
        } else if let Some(by) = other_dns(block, &directives) {
            return Err(CorefileError::Served { header, by });
        }
    }
    Ok(answers)
}

/// What in a block lets another DNS answer the zone.
fn other_dns(block: &Block, directives: &[&Directive]) -> Option<String> {
    let mut all = directives.iter().filter(|one| !ASIDE.contains(&one.name()));
    let found = if block.is_of_zone() || block.is_below_zone() {
        all.next()
    } else {
        return all.find(|one| name_zone(one.arguments())).map(|one| one.words.join(" "));
    };
    Some(found.map_or_else(|| "no `multicluster`".to_owned(), |one| one.words.join(" ")))
}

/// Whether a directive answers the zone by the plugin `kubernetes`, or by the plugin `multicluster` that came before.
fn is_multicluster(directive: &Directive) -> bool {
    let names_zone = |one: &Directive| one.name() == "multicluster" && name_zone(one.arguments());
    match directive.name() {
        "kubernetes" => directive.inner().iter().any(names_zone),
        _ => names_zone(directive),
    }
}

/// The headers of blocks that answer the zone.
pub(crate) fn answering(corefile: &Corefile<'_>) -> Vec<String> {
    let answers = |block: &&Block| {
        block.is_of_zone() || corefile.directives(block).iter().any(|one| is_multicluster(one))
    };
    corefile.servers().filter(answers).map(Block::header).collect()
}

/// Whether a cache sends names of the zone where it sends those of the cluster.
///
/// # Errors
/// It has no block for the domain of the cluster, or sends the zone elsewhere by intent.
pub(crate) fn sends_zone(corefile: &Corefile<'_>, domain: &str) -> Result<bool, CorefileError> {
    let block = cluster_block(corefile, domain)?;
    let targets = |block: &Block| {
        let directives = corefile.directives(block);
        let forwards = directives.iter().filter(|one| one.name() == "forward");
        forwards.flat_map(|one| one.arguments().iter().skip(1).cloned()).collect::<Vec<_>>()
    };
    let elsewhere = |other: &Block| {
        let by = format!("forward {}", targets(other).join(" "));
        Err(CorefileError::Served { header: other.header(), by })
    };
    let mut below = corefile.servers().filter(|block| block.is_below_zone());
    if let Some(other) = below.find(|other| targets(other) != targets(block)) {
        return elsewhere(other);
    }
    if let Some(of_zone) = corefile.servers().find(|block| block.is_of_zone()) {
        if targets(of_zone) == targets(block) {
            return Ok(true);
        }
        return elsewhere(of_zone);
    }
    Ok(best(corefile.servers(), ZONE)?.is_some_and(|other| ptr::eq(other, block)))
}

/// The block of a cache for the domain of the cluster.
pub(super) fn cluster_block<'a>(
    corefile: &'a Corefile<'_>,
    domain: &str,
) -> Result<&'a Block, CorefileError> {
    best(corefile.servers(), domain)?.ok_or_else(|| CorefileError::NoBlock(domain.to_owned()))
}

impl Model {
    pub(super) fn port(&self) -> &str {
        self.port.as_deref().unwrap_or(super::DEFAULT_PORT)
    }
}
