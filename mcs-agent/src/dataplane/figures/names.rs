//! The names of the rows and columns of figures.

use std::{collections::BTreeSet, sync::Arc};

use bytemuck::Zeroable as _;
use mcs_common::{FigureRow, Refusal};

use super::ByImport;
use crate::model::ObjectKey;

/// Counts since the agent started, each with its labels.
#[derive(PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// By import and source cluster.
    pub connections: ByImport<u64>,
    /// By import and reason.
    pub refusals: ByImport<u64>,
}

impl Counts {
    /// The imports that have some.
    pub fn imports(&self) -> BTreeSet<&str> {
        self.connections.iter().chain(&self.refusals).map(|([import, _], _)| &**import).collect()
    }
}

/// The imports and source clusters with figures of their own.
pub struct Labels {
    imports: BTreeSet<Arc<str>>,
    clusters: BTreeSet<Arc<str>>,
    other: Arc<str>,
    unknown: Arc<str>,
}

impl Labels {
    /// The label of an import.
    pub fn import(&self, import: &ObjectKey) -> Arc<str> {
        Arc::clone(self.imports.get(&*import.to_string()).unwrap_or(&self.other))
    }

    /// Whether both are labels now.
    pub fn has(&self, import: &str, cluster: &str) -> bool {
        self.imports.contains(import) && self.clusters.contains(cluster)
    }

    /// The label of a source cluster. Slices that name no cluster have the empty name.
    pub fn cluster(&self, cluster: &str) -> Arc<str> {
        if cluster.is_empty() {
            return Arc::clone(&self.unknown);
        }
        Arc::clone(self.clusters.get(cluster).unwrap_or(&self.other))
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// The names of rows and columns.
pub(super) struct Names {
    /// By row. The first one is of all imports without a row of their own.
    imports: Vec<Import>,
    /// By column.
    clusters: Vec<Cluster>,
}

#[derive(Clone)]
struct Import {
    name: Option<Arc<str>>,
    was_named: bool,
    /// Earlier counts, of other imports or clusters.
    before: FigureRow,
}

#[derive(Clone, Default)]
struct Cluster {
    name: Option<Arc<str>>,
    was_named: bool,
}

impl Names {
    pub(super) fn new(rows: usize, [other, unknown]: [&str; 2]) -> Self {
        let unnamed = Import { name: None, was_named: false, before: FigureRow::zeroed() };
        let mut imports = vec![unnamed; rows];
        if let Some(others) = imports.first_mut() {
            (others.name, others.was_named) = (Some(other.into()), true);
        }
        let mut clusters = vec![Cluster::default(); FigureRow::CLUSTERS as usize];
        for (column, name) in clusters.iter_mut().zip([other, unknown]) {
            column.name = Some(name.into());
        }
        Self { imports, clusters }
    }

    /// The named imports and clusters.
    pub(super) fn labels(&self) -> Labels {
        Labels {
            imports: self.imports.iter().filter_map(|one| one.name.clone()).collect(),
            clusters: self.clusters.iter().filter_map(|one| one.name.clone()).collect(),
            other: self.clusters[0].name.clone().unwrap_or_default(),
            unknown: self.clusters[1].name.clone().unwrap_or_default(),
        }
    }

    /// Takes the name of a row away.
    pub(super) fn forget_import(&mut self, row: u32) {
        self.imports[row as usize].name = None;
    }

    /// Takes the name of a column away.
    pub(super) fn forget_cluster(&mut self, column: u32) {
        self.clusters[column as usize].name = None;
    }

    /// The rows with a name.
    pub(super) fn used(&self) -> Vec<u32> {
        let named = self.imports.iter().enumerate().filter(|(_, import)| import.name.is_some());
        named.map(|(row, _)| number(row)).collect()
    }

    /// Names a row. `read` returns the counts that a row has now.
    pub(super) fn set_import(&mut self, row: u32, name: Arc<str>, read: impl Fn(u32) -> FigureRow) {
        // An import that is added again can get another row while its former row still has its name.
        self.imports
            .iter_mut()
            .filter(|one| one.name.as_ref() == Some(&name))
            .for_each(|one| one.name = None);
        let import = &mut self.imports[row as usize];
        if import.was_named {
            import.before = read(row);
        }
        (import.name, import.was_named) = (Some(name), true);
    }

    /// Names a column. `read` returns the counts that a row has now.
    pub(super) fn set_cluster(
        &mut self,
        column: u32,
        name: Arc<str>,
        read: impl Fn(u32) -> FigureRow,
    ) {
        let column = column as usize;
        self.clusters[2..]
            .iter_mut()
            .filter(|one| one.name.as_ref() == Some(&name))
            .for_each(|one| one.name = None);
        if self.clusters[column].was_named {
            let rows = self.imports.iter_mut().enumerate().filter(|(_, one)| one.was_named);
            for (row, import) in rows {
                import.before.counts[column] = read(number(row)).counts[column];
            }
        }
        self.clusters[column] = Cluster { name: Some(name), was_named: true };
    }

    /// The counts in these rows.
    pub(super) fn counts(&self, rows: &[(u32, FigureRow)]) -> Counts {
        let mut counts = Counts::default();
        for (row, now) in rows {
            let import = &self.imports[*row as usize];
            let Some(name) = &import.name else { continue };
            let since = |column: usize| {
                now.counts[column]
                    .checked_sub(import.before.counts[column])
                    .filter(|count| *count > 0)
            };
            for (column, cluster) in self.clusters.iter().enumerate() {
                if let (Some(cluster), Some(count)) = (&cluster.name, since(column)) {
                    counts.connections.push(([name.clone(), cluster.clone()], count));
                }
            }
            for refusal in Refusal::ALL {
                if let Some(count) = since(refusal.column() as usize) {
                    counts.refusals.push(([name.clone(), refusal.name().into()], count));
                }
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Columns.
    const EAST: u32 = 2;
    const WEST: u32 = 3;

    /// The map of the programs.
    struct Kernel(RefCell<Vec<FigureRow>>);

    impl Kernel {
        fn new() -> Self {
            Self(RefCell::new(vec![FigureRow::zeroed(); 3]))
        }

        fn add(&self, row: usize, column: u32, count: u64) {
            self.0.borrow_mut()[row].counts[column as usize] += count;
        }

        fn row(&self, row: u32) -> FigureRow {
            self.0.borrow()[row as usize]
        }

        /// The counts as text: `import cluster count`.
        fn says(&self, names: &Names) -> String {
            let rows: Vec<_> = names.used().into_iter().map(|row| (row, self.row(row))).collect();
            let Counts { connections, refusals } = names.counts(&rows);
            let lines = connections.into_iter().chain(refusals);
            let lines = lines.map(|([one, two], count)| format!("{one} {two} {count}"));
            lines.collect::<Vec<_>>().join("\n")
        }
    }

    /// Row 1 is of `shop/web`.
    fn names(kernel: &Kernel) -> Names {
        let mut names = Names::new(3, ["other", "unknown"]);
        let read = |row| kernel.row(row);
        names.set_import(1, "shop/web".into(), read);
        names.set_cluster(EAST, "east".into(), read);
        names.set_cluster(WEST, "west".into(), read);
        names
    }

    #[test]
    fn a_row_with_another_name_begins_at_zero() {
        let kernel = Kernel::new();
        let mut names = names(&kernel);
        kernel.add(1, EAST, 5);
        kernel.add(1, Refusal::NoBackend.column(), 2);
        kernel.add(1, 1, 1);
        kernel.add(0, 0, 3);
        let first = "other other 3\nshop/web unknown 1\nshop/web east 5\nshop/web no_backend 2";
        assert_eq!(kernel.says(&names), first);

        names.forget_import(1);
        assert_eq!(kernel.says(&names), "other other 3");
        names.set_import(1, "shop/cart".into(), |row| kernel.row(row));
        assert_eq!(kernel.says(&names), "other other 3");
        kernel.add(1, EAST, 1);
        assert_eq!(kernel.says(&names), "other other 3\nshop/cart east 1");
    }

    #[test]
    fn a_column_with_another_name_begins_at_zero_in_each_row() {
        let kernel = Kernel::new();
        let mut names = names(&kernel);
        (0..2).for_each(|row| kernel.add(row, EAST, 5));
        kernel.add(1, WEST, 7);
        names.forget_cluster(EAST);
        names.set_cluster(EAST, "north".into(), |row| kernel.row(row));
        assert_eq!(kernel.says(&names), "shop/web west 7");
        (0..2).for_each(|row| kernel.add(row, EAST, 1));
        assert_eq!(kernel.says(&names), "other north 1\nshop/web north 1\nshop/web west 7");
    }

    #[test]
    fn a_name_that_moves_is_not_counted_twice() {
        let kernel = Kernel::new();
        let mut names = names(&kernel);
        let read = |row| kernel.row(row);
        kernel.add(1, EAST, 5);
        names.set_import(2, "shop/web".into(), read);
        names.set_cluster(4, "east".into(), read);
        kernel.add(2, 4, 1);
        assert_eq!(kernel.says(&names), "shop/web east 1");
    }

    #[test]
    fn what_was_read_before_a_change_of_names_has_no_count() {
        let kernel = Kernel::new();
        let mut names = names(&kernel);
        kernel.add(1, EAST, 5);
        let read = kernel.row(1);
        kernel.add(1, EAST, 1);
        names.set_import(1, "shop/cart".into(), |row| kernel.row(row));
        assert_eq!(names.counts(&[(1, read)]), Counts::default());
    }
}
