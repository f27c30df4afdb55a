//! The names of the rows and columns of figures.

use std::{collections::BTreeSet, sync::Arc};

use mcs_common::{FigureRow, Refusal};

use super::ByImport;
use crate::core::model::ObjectKey;

/// Counts since the agent started, each with its labels.
#[derive(PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    /// By import and source cluster.
    pub(crate) connections: ByImport<u64>,
    /// By import and reason.
    pub(crate) refusals: ByImport<u64>,
}

impl Counts {
    /// The imports that have some.
    pub(crate) fn imports(&self) -> BTreeSet<&str> {
        self.connections.iter().chain(&self.refusals).map(|([import, _], _)| &**import).collect()
    }
}

/// The imports and source clusters with figures of their own.
pub(crate) struct Labels {
    imports: BTreeSet<Arc<str>>,
    clusters: BTreeSet<Arc<str>>,
    other: Arc<str>,
    unknown: Arc<str>,
}

impl Labels {
    /// The label of an import.
    pub(crate) fn import(&self, import: &ObjectKey) -> Arc<str> {
        Arc::clone(self.imports.get(&*import.to_string()).unwrap_or(&self.other))
    }

    /// Whether both are labels now.
    pub(crate) fn has(&self, import: &str, cluster: &str) -> bool {
        self.imports.contains(import) && self.clusters.contains(cluster)
    }

    /// The label of a source cluster. Slices that name no cluster have the empty name.
    pub(crate) fn cluster(&self, cluster: &str) -> Arc<str> {
        if cluster.is_empty() {
            return Arc::clone(&self.unknown);
        }
        Arc::clone(self.clusters.get(cluster).unwrap_or(&self.other))
    }
}

/// The names of rows and columns.
pub(super) struct Names {
    /// By row. The first one is of all imports without a row of their own.
    imports: Vec<Option<Arc<str>>>,
    /// By column. The first one is of all source clusters without a column of their own, the second one of slices that name
    /// none.
    clusters: Vec<Arc<str>>,
    /// How many imports have no row of their own.
    pub(super) without_row: usize,
}

impl Names {
    pub(super) fn new(rows: usize, [other, unknown]: [&str; 2]) -> Self {
        let mut imports = vec![None; rows];
        if let Some(others) = imports.first_mut() {
            *others = Some(other.into());
        }
        Self { imports, clusters: vec![other.into(), unknown.into()], without_row: 0 }
    }

    /// The named imports and clusters.
    pub(super) fn labels(&self) -> Labels {
        let [other, unknown] = [0, 1].map(|column| Arc::clone(&self.clusters[column]));
        Labels {
            imports: self.imports.iter().flatten().cloned().collect(),
            clusters: self.clusters.iter().cloned().collect(),
            other,
            unknown,
        }
    }

    /// Names a row, whose counts are zero, or takes its name away.
    pub(super) fn set_import(&mut self, row: u32, name: Option<Arc<str>>) {
        if name.is_some() {
            // An import that is added again can get another row while its former row still has its name.
            self.imports.iter_mut().filter(|one| **one == name).for_each(|one| *one = None);
        }
        self.imports[row as usize] = name;
    }

    /// The column of a cluster, which gets one if there is room.
    pub(super) fn column_of(&mut self, name: &str) -> Option<u8> {
        let known = self.clusters.iter().position(|one| **one == *name);
        let column = known.unwrap_or(self.clusters.len());
        if column == FigureRow::CLUSTERS as usize {
            return None;
        }
        if known.is_none() {
            self.clusters.push(name.into());
        }
        u8::try_from(column).ok()
    }

    /// The counts. `read` returns those of a row.
    pub(super) fn counts(&self, read: impl Fn(u32) -> Option<FigureRow>) -> Counts {
        let mut counts = Counts::default();
        for (row, name) in (0..).zip(&self.imports) {
            let Some(name) = name else { continue };
            let Some(FigureRow { counts: row }) = read(row) else { continue };
            for (cluster, count) in self.clusters.iter().zip(row).filter(|(_, count)| *count > 0) {
                counts.connections.push(([name.clone(), cluster.clone()], count));
            }
            for refusal in Refusal::ALL {
                let count = row[refusal.column() as usize];
                if count > 0 {
                    counts.refusals.push(([name.clone(), refusal.name().into()], count));
                }
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use bytemuck::Zeroable as _;

    use super::*;

    /// The counts as text: `import cluster count`. Each row counts its number in the column of `east` and as refusals.
    fn says(names: &mut Names) -> String {
        let east = names.column_of("east").unwrap();
        let read = |row: u32| {
            let mut counts = FigureRow::zeroed();
            for column in [east.into(), Refusal::NoBackend.column()] {
                counts.counts[column as usize] = row.into();
            }
            (row != 3).then_some(counts)
        };
        let Counts { connections, refusals } = names.counts(read);
        let lines = connections.into_iter().chain(refusals);
        let lines = lines.map(|([one, two], count)| format!("{one} {two} {count}"));
        lines.collect::<Vec<_>>().join(", ")
    }

    fn names() -> Names {
        Names::new(5, ["other", "unknown"])
    }

    #[test]
    fn counts_have_the_names_of_rows_and_columns() {
        let mut names = names();
        for (row, name) in [(1, "shop/web"), (3, "shop/unread"), (4, "shop/db")] {
            names.set_import(row, Some(name.into()));
        }
        let web = "shop/web east 1, shop/db east 4, shop/web no_backend 1, shop/db no_backend 4";
        assert_eq!(says(&mut names), web);
        names.set_import(4, None);
        assert_eq!(says(&mut names), "shop/web east 1, shop/web no_backend 1");
        names.set_import(2, Some("shop/web".into()));
        assert_eq!(says(&mut names), "shop/web east 2, shop/web no_backend 2", "once");
    }

    #[test]
    fn the_first_clusters_have_columns_of_their_own() {
        let mut names = names();
        let columns: Vec<_> = (0..13).map(|n| names.column_of(&format!("c{n}"))).collect();
        let expected: Vec<_> = (2..13).map(Some).chain([None, None]).collect();
        assert_eq!(columns, expected);
        assert_eq!((names.column_of("c1"), names.column_of("unknown")), (Some(3), Some(1)));
        let labels = names.labels();
        assert_eq!(
            ["c10", "c11", ""].map(|name| labels.cluster(name).to_string()),
            ["c10", "other", "unknown"]
        );
    }
}
