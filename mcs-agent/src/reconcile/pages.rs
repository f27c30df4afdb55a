use std::{
    ops::{Index, IndexMut},
    sync::Arc,
};

use bytemuck::Zeroable;

/// Entries that are copied together.
const PAGE: usize = 1024;

/// An array whose copies share what neither has written since: to copy a million entries takes a
/// thousand reference counts. What is past its end is zero.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pages<T> {
    /// Each whole, except the last.
    pages: Vec<Arc<Vec<T>>>,
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self { pages: Vec::new() }
    }
}

impl<T: Copy + Zeroable> Pages<T> {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.pages.last().map_or(0, |last| (self.pages.len() - 1) * PAGE + last.len())
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// The entry at `index`; `None` past the end.
    pub fn get(&self, index: usize) -> Option<&T> {
        self.pages.get(index / PAGE)?.get(index % PAGE)
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flat_map(|page| page.iter())
    }

    /// The entry at `index`, to be written. The array reaches this far from now on.
    pub(super) fn entry(&mut self, index: usize) -> &mut T {
        let page = index / PAGE;
        while self.pages.len() <= page {
            if let Some(last) = self.pages.last_mut() {
                Arc::make_mut(last).resize(PAGE, T::zeroed());
            }
            self.pages.push(Arc::default());
        }
        let page = Arc::make_mut(&mut self.pages[page]);
        if page.len() <= index % PAGE {
            page.resize(index % PAGE + 1, T::zeroed());
        }
        &mut page[index % PAGE]
    }
}

impl<T> Index<usize> for Pages<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.pages[index / PAGE][index % PAGE]
    }
}

impl<T: Clone> IndexMut<usize> for Pages<T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut Arc::make_mut(&mut self.pages[index / PAGE])[index % PAGE]
    }
}

impl<T: Copy> FromIterator<T> for Pages<T> {
    fn from_iter<I: IntoIterator<Item = T>>(entries: I) -> Self {
        let mut entries = entries.into_iter();
        let mut pages = Vec::new();
        loop {
            let page: Vec<T> = entries.by_ref().take(PAGE).collect();
            if page.is_empty() {
                return Self { pages };
            }
            pages.push(Arc::new(page));
        }
    }
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
            writes in vec((0_usize..3 * PAGE, any::<u32>()), 0..40),
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
                *pages.entry(index) = value;
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
