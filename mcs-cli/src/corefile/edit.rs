//! Writes what `mcs` adds to a Corefile, and takes it out again. All other text stays byte for byte.

use std::ops::Range;

use mcs_kube::names::ZONE;

use super::{
    Block, Corefile, CorefileError, Directive, MARK, Model,
    zone::{cluster_block, sends_zone},
};

/// Excludes imported slices from the other blocks, which never answer for them.
const LABELS: [&str; 2] = ["labels", "!multicluster.kubernetes.io/source-cluster"];
/// The first line of a block that `mcs` has written.
const BLOCK_MARK: &str = "# written by mcs: `mcs dns undo` takes this block out";

/// A change of a text: what takes the place of a range.
type Edit = (Range<usize>, String);

/// The Corefile with the block for the zone before all others. In the Corefile of the cluster, imported slices are excluded from
/// the other blocks (`is_main`); a file that it imports has the block alone.
///
/// # Errors
/// The result would have changed more.
pub(crate) fn with_zone(
    corefile: &Corefile<'_>,
    model: &Model,
    is_main: bool,
) -> Result<String, CorefileError> {
    let mut changes = vec![(corefile.begin(), block(model))];
    if is_main {
        let blocks = corefile.blocks.iter().flat_map(|block| &block.directives);
        let sections = blocks.filter(|one| one.name() == "kubernetes");
        changes.extend(sections.flat_map(|section| labels(corefile.text, section)));
    }
    changed(corefile, changes)
}

/// The Corefile of a cache with a block for the zone: a copy of the block for the domain of the cluster, which forwards to CoreDNS.
/// The copy lacks `health`, whose port one block can have. `None` if the cache sends names of the zone there already.
///
/// # Errors
/// It has no block for the domain, or another DNS answers the zone.
pub(crate) fn with_cached_zone(
    corefile: &Corefile<'_>,
    domain: &str,
) -> Result<Option<String>, CorefileError> {
    if sends_zone(corefile, domain)? {
        return Ok(None);
    }
    let model = cluster_block(corefile, domain)?;
    let keys = model.keys().filter(|key| key.covers(domain));
    let port = keys.max_by_key(|key| key.zone.len()).and_then(|key| key.port);
    let mut body = corefile.text[model.inside.clone()].to_owned();
    for health in model.directives.iter().rev().filter(|one| one.name() == "health") {
        let lines = whole_lines(corefile.text, &health.span);
        let start = model.inside.start;
        body.replace_range(
            lines.start.max(start) - start..lines.end.min(model.inside.end) - start,
            "",
        );
    }
    let begins_line = body.trim_start_matches([' ', '\t', '\r']).starts_with('\n');
    let line = if begins_line { "" } else { "\n" };
    let copy = format!("{} {{\n    {BLOCK_MARK}{line}{body}}}\n", header(port));
    changed(corefile, vec![(corefile.begin(), copy)]).map(Some)
}

/// The Corefile without what `mcs` has written: blocks whose header is the zone alone and whose first line is the mark, and lines
/// with the mark.
///
/// # Errors
/// The result would have changed more.
pub(crate) fn without_zone(corefile: &Corefile<'_>) -> Result<String, CorefileError> {
    let own = corefile.blocks.iter().filter(|block| is_own(corefile, block));
    let mut changes: Vec<Edit> =
        own.map(|block| (past_line(corefile.text, &block.span), String::new())).collect();
    let others = corefile.blocks.iter().filter(|block| !is_own(corefile, block));
    let sections =
        others.flat_map(|block| &block.directives).filter(|one| one.name() == "kubernetes");
    changes.extend(sections.flat_map(|section| own_labels(corefile, section)));
    changed(corefile, changes)
}

/// Whether it has anything that `mcs` has written.
pub(crate) fn is_edited(corefile: &Corefile<'_>) -> bool {
    corefile.comments.iter().any(|comment| corefile.text[comment.clone()].starts_with(MARK))
}

/// Whether a text that cannot be parsed may have anything that `mcs` has written.
pub(crate) fn may_be_edited(text: &str) -> bool {
    text.contains(MARK)
}

/// The block for the zone. deploy/dns/README.md gives the reasons for its content.
pub(super) fn block(model: &Model) -> String {
    let line = |depth: usize, text: &str| format!("{}{text}\n", "    ".repeat(depth));
    let mut text = format!("{} {{\n", header(model.port.as_deref()));
    text += &line(1, BLOCK_MARK);
    text += &line(1, "errors");
    text += &line(1, "cache 30");
    text.extend(model.bind.iter().map(|bind| line(1, bind)));
    text += &line(1, &format!("kubernetes {ZONE} {{"));
    text.extend(model.server.iter().map(|server| line(2, server)));
    text += &line(2, &format!("multicluster {ZONE}"));
    text += &line(2, "noendpoints");
    text += &line(1, "}");
    text + "}\n"
}

fn header(port: Option<&str>) -> String {
    port.map_or_else(|| ZONE.to_owned(), |port| format!("{ZONE}:{port}"))
}

/// The line with `labels` in a section `kubernetes` without one.
fn labels(text: &str, section: &Directive) -> Vec<Edit> {
    let has_own = |one: &Directive| ["labels", "multicluster"].contains(&one.name());
    if section.inner().iter().any(has_own) {
        return vec![];
    }
    let indentation = |at: usize| {
        let line = &text[line_start(text, at)..];
        &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
    };
    let line = |indentation: &str| format!("{indentation}    {} {MARK}\n", LABELS.join(" "));
    let Some(body) = &section.body else {
        let indentation = indentation(section.span.start);
        let end = line_end(text, section.span.end);
        let brace = format!("{}{indentation}}} {MARK}\n", line(indentation));
        return vec![(section.span.end..section.span.end, " {".to_owned()), (end..end, brace)];
    };
    let close = body.inside.end;
    let start = line_start(text, close);
    let is_alone = text[start..close].trim().is_empty();
    // In a section of one line CoreDNS reads words after a brace as arguments.
    if is_alone { vec![(start..start, line(indentation(close)))] } else { vec![] }
}

/// The changes that take the marked line, and the marked braces around it, out of a section.
fn own_labels(corefile: &Corefile<'_>, section: &Directive) -> Vec<Edit> {
    let text = corefile.text;
    let Some(body) = &section.body else { return vec![] };
    let labels = body.directives.iter().find(|one| is_own_line(text, one));
    let Some(labels) = labels else { return vec![] };
    let line = (whole_lines(text, &labels.span), String::new());
    if body.directives.len() > 1 || !has_mark(text, body.inside.end + 1) {
        return vec![line];
    }
    // The brace after a space, and the line of the other one.
    let open = body.inside.start - 1;
    let space = usize::from(text[..open].ends_with(' '));
    let close = whole_lines(text, &(body.inside.end..body.inside.end + 1));
    vec![(open - space..open + 1, String::new()), line, (close, String::new())]
}

fn is_own_line(text: &str, directive: &Directive) -> bool {
    directive.words == LABELS && has_mark(text, directive.span.end)
}

/// Whether the mark follows on the same line.
fn has_mark(text: &str, at: usize) -> bool {
    text[at..line_end(text, at)].trim() == MARK
}

fn is_own(corefile: &Corefile<'_>, block: &Block) -> bool {
    let body = corefile.text[block.inside.clone()].trim_start();
    block.is_of_zone_alone()
        && body.lines().next().is_some_and(|line| line.trim_end() == BLOCK_MARK)
}

/// The text with these changes, if nothing else has changed in it.
fn changed(corefile: &Corefile<'_>, mut changes: Vec<Edit>) -> Result<String, CorefileError> {
    let eol = if corefile.text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut text = corefile.text.to_owned();
    changes.sort_by_key(|(range, _)| range.start);
    for (range, new) in changes.into_iter().rev() {
        // What was copied has its ends of lines.
        let new = new.replace("\r\n", "\n").replace('\n', eol);
        text.replace_range(range, &new);
    }
    let after = Corefile::parse(&text).map_err(|_| CorefileError::Harm)?;
    if rest(corefile) == rest(&after) { Ok(text) } else { Err(CorefileError::Harm) }
}

/// What no edit changes: everything but what has the mark. So no edit takes the block of a cluster's domain away.
fn rest<'a>(corefile: &'a Corefile<'_>) -> Vec<(&'a [String], Vec<&'a [String]>)> {
    let mut all = Vec::new();
    for block in corefile.blocks.iter().filter(|block| !is_own(corefile, block)) {
        let mut of_block = Vec::new();
        words(corefile.text, &block.directives, &mut of_block);
        all.push((&*block.keys, of_block));
    }
    all.extend(corefile.imports.iter().map(|import| (&*import.words, vec![])));
    all
}

fn words<'a>(text: &str, directives: &'a [Directive], all: &mut Vec<&'a [String]>) {
    for directive in directives.iter().filter(|one| !is_own_line(text, one)) {
        all.push(&directive.words);
        words(text, directive.inner(), all);
    }
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |end| end + 1)
}

/// The place after the end of a line.
fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |end| at + end + 1)
}

/// A range with the rest of its last line, if nothing follows there.
fn past_line(text: &str, range: &Range<usize>) -> Range<usize> {
    let end = line_end(text, range.end);
    let is_last = text[range.end..end].trim().is_empty();
    range.start..if is_last { end } else { range.end }
}

/// The lines of a range, as far as they have nothing before it and no more than a comment after it.
fn whole_lines(text: &str, range: &Range<usize>) -> Range<usize> {
    let (start, end) = (line_start(text, range.start), line_end(text, range.end));
    let is_first = text[start..range.start].trim().is_empty();
    let rest = text[range.end..end].trim();
    let is_last = rest.is_empty() || rest.starts_with('#');
    if is_first && is_last { start..end } else { range.clone() }
}

impl Corefile<'_> {
    /// The place for a block before all others: after a byte order mark.
    fn begin(&self) -> Range<usize> {
        let at = self.text.len() - self.text.trim_start_matches('\u{feff}').len();
        at..at
    }
}
