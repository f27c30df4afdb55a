//! Shortens a history that shows a fault.

use std::time::Instant;

use super::draw::{Section, text};

/// What every history begins with: seed and clusters.
const HEAD: usize = 2;

/// A shorter history for which `fails` holds as well, as far as it is found until `end`. `line` is the one of the step that
/// has failed.
pub(super) fn shorten(
    sections: &[Section],
    line: usize,
    end: Instant,
    fails: impl Fn(&[Section]) -> bool,
) -> Vec<Section> {
    let mut all = sections.to_vec();
    let length = |count: usize| text(&sections[..count]).lines().count();
    let needed = (0..sections.len()).find(|count| length(*count) >= line).unwrap_or(sections.len());
    let mut cut = sections[..needed.max(HEAD)].to_vec();
    end_with_proof(&mut cut, sections);
    if fails(&cut) {
        all = cut;
    }
    let mut size = (all.len() / 2).max(1);
    while Instant::now() < end {
        let mut at = HEAD;
        let mut is_shorter = false;
        while at < all.len().saturating_sub(1) && Instant::now() < end {
            let last = (at + size).min(all.len() - 1);
            let mut fewer = all.clone();
            fewer.drain(at..last);
            if fails(&fewer) {
                all = fewer;
                is_shorter = true;
            } else {
                at = last;
            }
        }
        if size == 1 && !is_shorter {
            break;
        }
        size = (size / 2).max(1);
    }
    all
}

/// A story ends with a step that shows something.
fn end_with_proof(cut: &mut Vec<Section>, sections: &[Section]) {
    let is_proof = |section: &Section| section.marker.starts_with("settle");
    if !cut.last().is_some_and(is_proof) {
        cut.extend(sections.last().cloned());
    }
}
