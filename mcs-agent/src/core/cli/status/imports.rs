//! The imports that are not fully served, and the imports that the agent leaves alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::core::{
    cli::{Style, print},
    model::{ImportReport, ImportState, LeftAloneReason, ObjectKey},
};

/// How many left-alone imports with one reason are listed.
const LISTED: usize = 10;

/// Prints one line for each import that is not ready, unless the reason is a message of `rejected`. Of many that are left alone for one reason, it
/// prints some and counts the others.
pub(super) fn print_tables(
    imports: &[Arc<ImportReport>],
    rejected: &BTreeSet<(&ObjectKey, &str)>,
    style: Style,
) -> anyhow::Result<()> {
    let not_served: Vec<_> = imports
        .iter()
        .filter(|import| import.left_alone.is_none() && !import.message.is_empty())
        .filter(|import| import.state != ImportState::Ready)
        .filter(|import| !rejected.contains(&(&import.import, &*import.message)))
        .map(|import| row(import, &import.state.to_string()))
        .collect();
    if !not_served.is_empty() {
        print("\nServiceImports not fully served:")?;
        style.table(&["NAME", "STATE", "WHY"], not_served)?;
    }
    print_drained(imports, style)?;
    let (left_alone, others) = left_alone(imports);
    if !left_alone.is_empty() {
        print("\nServiceImports left alone:")?;
        style.table(&["NAME", "REASON", "WHY"], left_alone)?;
    }
    for (reason, count) in others {
        print(&format!("and {count} more: {reason}"))?;
    }
    Ok(())
}

/// Prints some imports that clusters out of use serve, since no other cluster can, and how many more there are.
fn print_drained(imports: &[Arc<ImportReport>], style: Style) -> anyhow::Result<()> {
    let is_drained = |import: &&Arc<ImportReport>| {
        import.state == ImportState::Ready && !import.message.is_empty()
    };
    let drained: Vec<_> = imports.iter().filter(is_drained).collect();
    if drained.is_empty() {
        return Ok(());
    }
    print("\nServiceImports that clusters out of use serve:")?;
    let rows = drained.iter().take(LISTED).map(|import| row(import, &import.state.to_string()));
    style.table(&["NAME", "STATE", "WHY"], rows)?;
    match drained.len().checked_sub(LISTED) {
        Some(more @ 1..) => print(&format!("and {more} more")),
        _ => Ok(()),
    }
}

/// A row for some imports of each reason, and how many more there are.
fn left_alone(
    imports: &[Arc<ImportReport>],
) -> (Vec<Vec<String>>, BTreeMap<LeftAloneReason, usize>) {
    let mut counts: BTreeMap<LeftAloneReason, usize> = BTreeMap::new();
    let mut rows = Vec::new();
    for import in imports {
        let Some(reason) = import.left_alone else { continue };
        let count = counts.entry(reason).or_default();
        *count += 1;
        if *count <= LISTED {
            rows.push(row(import, &reason.to_string()));
        }
    }
    let more = |count: usize| count.checked_sub(LISTED).filter(|more| *more > 0);
    let others = counts.into_iter().filter_map(|(reason, count)| Some((reason, more(count)?)));
    (rows, others.collect())
}

fn row(import: &ImportReport, state: &str) -> Vec<String> {
    vec![import.import.to_string(), state.to_owned(), import.message.clone()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::{Sections, fixture::key};

    #[test]
    fn of_thousands_that_are_left_alone_a_few_are_listed() {
        let report = |number: usize, reason| {
            Arc::new(ImportReport {
                import: key(&format!("shop/{number}")),
                state: ImportState::LeftAlone,
                message: "why; what to do".to_owned(),
                left_alone: Some(reason),
                tiers: None,
                sections: Sections::default(),
            })
        };
        let mut imports: Vec<_> = (0..5_000).map(|n| report(n, LeftAloneReason::Record)).collect();
        imports.push(report(5_000, LeftAloneReason::Headless));
        imports.extend((0..LISTED).map(|n| report(n, LeftAloneReason::ServiceRange)));
        let (rows, others) = left_alone(&imports);
        assert_eq!(rows.len(), 2 * LISTED + 1);
        assert_eq!(rows[LISTED], ["shop/5000", "headless", "why; what to do"]);
        assert_eq!(others, [(LeftAloneReason::Record, 5_000 - LISTED)].into());
    }
}
