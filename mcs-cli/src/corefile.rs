//! A Corefile: which of its blocks serves a zone, and on which port. No crate reads this format; `parser` follows
//! github.com/coredns/caddy.

mod edit;
mod parser;
mod tokens;
mod zone;

use std::ops::Range;

use mcs_kube::names::ZONE;

use self::parser::{Block, Directive};

pub(crate) use self::{
    edit::{is_edited, may_be_edited, with_cached_zone, with_zone, without_zone},
    zone::{Model, State, answering, model, sends_zone, state},
};

/// The comment after what `mcs` has written. `undo` looks for it.
const MARK: &str = "# written by mcs";
/// The port of a block whose header has none.
const DEFAULT_PORT: &str = "53";
/// How deep snippets import snippets.
const DEPTH: u8 = 16;

/// Why a Corefile is not edited.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum CorefileError {
    #[error("line {0}: its braces do not match, or a server block has none")]
    Braces(usize),
    #[error("line {0}: a quotation has no end")]
    Quotation(usize),
    #[error(
        "no block of it serves a cluster domain by `kubernetes`: let your DNS server answer clusterset.local (deploy/dns)"
    )]
    NoCluster,
    #[error("it has no block for {0}")]
    NoBlock(String),
    #[error(
        "`kubernetes` serves several cluster domains ({0}), and none is cluster.local: add the block by hand (deploy/dns)"
    )]
    Domains(String),
    #[error(
        "{0} is served by several blocks ({1}): add the block for clusterset.local by hand, for each (deploy/dns)"
    )]
    Several(String, String),
    #[error(
        "its block `{header}` has `{by}`: another DNS serves clusterset.local, and CoreDNS does not start with two blocks for a zone. Take \
         that out first"
    )]
    Served { header: String, by: String },
    #[error(
        "its block `{header}` answers clusterset.local on another port than {domain}, whose port is {port}: pods do not ask there. Take \
         that block out first"
    )]
    OtherPort { header: String, domain: String, port: String },
    #[error(
        "the header `{0}` takes a zone from the environment, which may be clusterset.local: write the zone there"
    )]
    Variable(String),
    #[error(
        "the edit would change more than clusterset.local, so nothing is written: add the block by hand (deploy/dns)"
    )]
    Harm,
}

/// A Corefile that was parsed.
pub(crate) struct Corefile<'a> {
    text: &'a str,
    blocks: Vec<Block>,
    imports: Vec<Directive>,
    comments: Vec<Range<usize>>,
}

impl<'a> Corefile<'a> {
    /// # Errors
    /// CoreDNS would not read it, or `mcs` does not.
    pub(crate) fn parse(text: &'a str) -> Result<Self, CorefileError> {
        let parser::Parts { blocks, imports, comments } = parser::parse(text)?;
        let corefile = Self { text, blocks, imports, comments };
        let variable = corefile.servers().find(|block| {
            block.keys().any(|key| key.zone.contains(['$', '%']) && key.zone.contains('{'))
        });
        match variable {
            Some(block) => Err(CorefileError::Variable(block.header())),
            None => Ok(corefile),
        }
    }

    /// Whether CoreDNS reads the Corefile again when it changes.
    pub(crate) fn reloads(&self) -> bool {
        let is_reload = |block| self.directives(block).iter().any(|one| one.name() == "reload");
        self.servers().any(is_reload)
    }

    /// Whether it imports server blocks from a file of this name, as Corefiles of k3s and AKS do.
    pub(crate) fn imports(&self, file: &str) -> bool {
        self.imports.iter().any(|import| import.imports(file))
    }

    /// Whether one of its blocks imports a file of this name.
    pub(crate) fn imports_below(&self, file: &str) -> bool {
        let directives = self.blocks.iter().flat_map(|block| &block.directives);
        directives.filter(|one| one.name() == "import").any(|import| import.imports(file))
    }

    /// The blocks that are no snippets.
    fn servers(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|block| block.snippet().is_none())
    }

    /// The directives of a block, and those of the snippets that it imports.
    fn directives<'b>(&'b self, block: &'b Block) -> Vec<&'b Directive> {
        let mut all = Vec::new();
        self.collect(block, DEPTH, &mut all);
        all
    }

    fn collect<'b>(&'b self, block: &'b Block, depth: u8, all: &mut Vec<&'b Directive>) {
        for directive in &block.directives {
            let snippet = directive.arguments().first().filter(|_| directive.name() == "import");
            let is_named =
                |other: &&Block| snippet.is_some_and(|name| other.snippet() == Some(name.as_str()));
            match self.blocks.iter().find(is_named) {
                Some(snippet) if depth > 0 => self.collect(snippet, depth - 1, all),
                _ => all.push(directive),
            }
        }
    }

    /// The text of a directive.
    fn text_of(&self, directive: &Directive) -> &'a str {
        &self.text[directive.span.clone()]
    }
}

impl Directive {
    /// Whether this `import` has a file of that name.
    fn imports(&self, file: &str) -> bool {
        self.arguments().iter().any(|pattern| {
            let name = pattern.rsplit('/').next().unwrap_or(pattern);
            match name.split_once('*') {
                Some((begin, end)) => file.starts_with(begin) && file.ends_with(end),
                None => file == name,
            }
        })
    }
}

impl Block {
    /// Its header in one line.
    fn header(&self) -> String {
        self.keys.join(" ")
    }

    /// The name of the snippet that it is.
    fn snippet(&self) -> Option<&str> {
        match &*self.keys {
            [key] => key.strip_prefix('(')?.strip_suffix(')'),
            _ => None,
        }
    }

    /// What it serves in plain DNS.
    fn keys(&self) -> impl Iterator<Item = Key<'_>> {
        self.keys.iter().filter_map(|key| Key::of(key))
    }

    /// Whether its header names the zone.
    fn is_of_zone(&self) -> bool {
        self.keys().any(|key| key.zone == ZONE)
    }

    /// Whether it serves names of services, all or some, and not the zone itself. CoreDNS asks the block with the longest zone.
    fn is_below_zone(&self) -> bool {
        let is_below = |zone: &str| {
            let rest = zone.strip_suffix(ZONE).and_then(|rest| rest.strip_suffix("svc."));
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        !self.is_of_zone() && self.keys().any(|key| is_below(&key.zone))
    }

    /// Whether its header names nothing but the zone.
    fn is_of_zone_alone(&self) -> bool {
        !self.keys.is_empty()
            && self.keys.iter().all(|key| Key::of(key).is_some_and(|key| key.zone == ZONE))
    }
}

/// A zone of a header and its port.
struct Key<'a> {
    /// In lower case, without the last dot. The root is empty.
    zone: String,
    /// As the header has it, if it does.
    port: Option<&'a str>,
}

impl<'a> Key<'a> {
    /// `None` for a key of another protocol, such as `tls://.`.
    fn of(word: &'a str) -> Option<Self> {
        let rest = match word.split_once("://") {
            Some(("dns", rest)) => rest,
            Some(_) => return None,
            None => word,
        };
        let is_port =
            |port: &str| port.contains('$') || port.bytes().all(|digit| digit.is_ascii_digit());
        let (zone, port) = match rest.rsplit_once(':') {
            Some((zone, port)) if !port.is_empty() && is_port(port) => (zone, Some(port)),
            _ => (rest, None),
        };
        Some(Self { zone: normal(zone), port })
    }

    fn port(&self) -> &'a str {
        self.port.unwrap_or(DEFAULT_PORT)
    }

    /// Whether names of the zone are below this one.
    fn covers(&self, zone: &str) -> bool {
        let above = zone.strip_suffix(&self.zone);
        self.zone.is_empty() || above.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }
}

/// A zone in lower case without its last dot.
fn normal(zone: &str) -> String {
    zone.trim_end_matches('.').to_ascii_lowercase()
}

/// Whether one of these words is the zone of the clusterset.
fn name_zone(words: &[String]) -> bool {
    words.iter().any(|word| normal(word) == ZONE)
}

#[cfg(test)]
mod tests;
