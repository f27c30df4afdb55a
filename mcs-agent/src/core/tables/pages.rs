//! A large array whose clones share their unchanged parts.
//!
//! `imbl::Vector` 7.0.2 needs as much memory (33.0 bytes for a record of 32, this type 32.8), but random
//! reads are 10 to 20 times slower and first writes after a copy 1.5 to 4 times, with 100,000 and with
//! 3,000,000 records. It copies 3,000,000 records in 60 ns and this type in 5 µs, but the agent reads
//! far more often than it copies.

use std::{
    ops::{Index, IndexMut},
    sync::Arc,
};

use bytemuck::Zeroable;

/// The entries of a page, which are copied together.
const PAGE: usize = 64;
/// The pages of a chapter, whose references are copied together.
const CHAPTER: usize = 64;
const CHAPTER_ENTRIES: usize = CHAPTER * PAGE;

/// An array whose copies share the pages that neither has written since. A copy of a million entries
/// increments some 250 reference counts. The first write after it copies a page of 64 entries and
/// increments 64 counts. Entries past the end are zero.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pages<T> {
    /// All are full, except the last.
    chapters: Vec<Arc<Chapter<T>>>,
}

/// Pages, all full except the last.
type Chapter<T> = Vec<Arc<Vec<T>>>;

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self { chapters: Vec::new() }
    }
}

impl<T: Copy + Zeroable> Pages<T> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        let Some((chapter, whole)) = self.chapters.split_last() else { return 0 };
        let pages = chapter.split_last();
        let in_last = pages.map_or(0, |(page, whole)| whole.len() * PAGE + page.len());
        whole.len() * CHAPTER_ENTRIES + in_last
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.chapters.is_empty()
    }

    /// The entry at `index`; `None` past the end.
    pub fn get(&self, index: usize) -> Option<&T> {
        self.chapters.get(index / CHAPTER_ENTRIES)?.get(index / PAGE % CHAPTER)?.get(index % PAGE)
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chapters.iter().flat_map(|chapter| chapter.iter()).flat_map(|page| page.iter())
    }

    /// The entry at `index` for writing. The array grows to this index if it is shorter.
    pub(super) fn entry(&mut self, index: usize) -> &mut T {
        let chapter = full_up_to(&mut self.chapters, index / CHAPTER_ENTRIES, |chapter| {
            let last = full_up_to(chapter, CHAPTER - 1, |page| page.resize(PAGE, T::zeroed()));
            last.resize(PAGE, T::zeroed());
        });
        let page = full_up_to(chapter, index / PAGE % CHAPTER, |page| {
            page.resize(PAGE, T::zeroed());
        });
        if page.len() <= index % PAGE {
            page.resize(index % PAGE + 1, T::zeroed());
        }
        &mut page[index % PAGE]
    }
}

/// The part at `index`, no longer shared. Parts before it that are not full are filled.
fn full_up_to<P: Clone + Default>(
    parts: &mut Vec<Arc<P>>,
    index: usize,
    fill: impl Fn(&mut P),
) -> &mut P {
    while parts.len() <= index {
        if let Some(last) = parts.last_mut() {
            fill(Arc::make_mut(last));
        }
        parts.push(Arc::default());
    }
    Arc::make_mut(&mut parts[index])
}

impl<T> Index<usize> for Pages<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.chapters[index / CHAPTER_ENTRIES][index / PAGE % CHAPTER][index % PAGE]
    }
}

impl<T: Clone> IndexMut<usize> for Pages<T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        let chapter = Arc::make_mut(&mut self.chapters[index / CHAPTER_ENTRIES]);
        &mut Arc::make_mut(&mut chapter[index / PAGE % CHAPTER])[index % PAGE]
    }
}

impl<T: Copy> FromIterator<T> for Pages<T> {
    fn from_iter<I: IntoIterator<Item = T>>(entries: I) -> Self {
        let pages = parts(entries.into_iter(), PAGE);
        Self { chapters: parts(pages, CHAPTER).collect() }
    }
}

/// Splits into parts of `size`; the last part can be smaller.
fn parts<T>(mut all: impl Iterator<Item = T>, size: usize) -> impl Iterator<Item = Arc<Vec<T>>> {
    std::iter::from_fn(move || {
        let part: Vec<T> = all.by_ref().take(size).collect();
        (!part.is_empty()).then(|| Arc::new(part))
    })
}

impl<T: Copy> From<Vec<T>> for Pages<T> {
    fn from(entries: Vec<T>) -> Self {
        entries.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn is_an_array_that_reaches_as_far_as_it_was_written(
            writes in vec((0_usize..3 * CHAPTER_ENTRIES, any::<u32>()), 0..40),
            copied_at in 0_usize..40,
        ) {
            let mut array = Vec::<u32>::new();
            let mut pages = Pages::default();
            let mut copy = None;
            for (turn, (index, value)) in writes.into_iter().enumerate() {
                if turn == copied_at {
                    copy = Some((pages.clone(), array.clone()));
                }
                array.resize(array.len().max(index + 1), 0);
                array[index] = value;
                *pages.entry(index) = !value;
                pages[index] = value;
            }
            for (pages, array) in copy.into_iter().chain([(pages, array)]) {
                prop_assert_eq!(pages.len(), array.len());
                prop_assert_eq!(pages.is_empty(), array.is_empty());
                prop_assert_eq!(pages.get(array.len()), None);
                prop_assert!(pages.iter().eq(&array));
                prop_assert_eq!(&pages, &Pages::from(array));
            }
        }
    }
}
