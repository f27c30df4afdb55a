//! Counts of answers, by pod.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

use super::example::{BACKENDS, Host};

/// Who answered how often, and what failed.
#[derive(Default)]
pub(super) struct Tally {
    answers: BTreeMap<Host, usize>,
    failures: Vec<String>,
}

impl Tally {
    pub(super) fn add(&mut self, answer: Result<Host>) {
        match answer {
            Ok(pod) => *self.answers.entry(pod).or_default() += 1,
            Err(error) => self.failures.push(format!("{error:#}")),
        }
    }

    pub(super) fn total(&self) -> usize {
        self.answers.values().sum::<usize>() + self.failed()
    }

    pub(super) const fn failed(&self) -> usize {
        self.failures.len()
    }

    /// An error if a request failed.
    pub(super) fn expect_no_failure(&self) -> Result<()> {
        let count = self.failed();
        let first = self.failures.first().map_or("", String::as_str);
        ensure!(count == 0, "{count} of {} requests failed, the first so: {first}", self.total());
        Ok(())
    }

    /// An error unless every request was answered, by all of `pods` and nobody else, and each had at
    /// least a quarter of its fair share.
    pub(super) fn expect_spread_over(&self, pods: &BTreeSet<Host>) -> Result<()> {
        self.expect_no_failure()?;
        for (pod, count) in &self.answers {
            ensure!(pods.contains(pod), "{pod} answered {count} requests and should have had none");
        }
        let least = self.total() / pods.len() / 4;
        for pod in pods {
            let count = self.answers.get(pod).copied().unwrap_or_default();
            ensure!(count > least, "{pod} answered {count} of {} requests", self.total());
        }
        Ok(())
    }
}

/// Lines of counts, one column for each pod.
pub(super) fn table<'a>(lines: impl IntoIterator<Item = (String, &'a Tally)>) -> String {
    let pods = BACKENDS.iter().map(Host::to_string);
    let mut text = row("", pods.chain(["failed".to_owned()]));
    for (label, tally) in lines {
        let count = |pod| tally.answers.get(pod).map_or_else(|| "-".to_owned(), usize::to_string);
        let counts = BACKENDS.iter().map(count).chain([tally.failed().to_string()]);
        text.push_str(&row(&label, counts));
    }
    text
}

fn row(label: &str, cells: impl Iterator<Item = String>) -> String {
    let row = cells.fold(format!("{label:<18}"), |row, cell| row + &format!("{cell:>13}"));
    row + "\n"
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    fn tally(counts: [usize; BACKENDS.len()], failures: usize) -> Tally {
        let mut tally = Tally::default();
        for (pod, count) in BACKENDS.into_iter().zip(counts) {
            (0..count).for_each(|_| tally.add(Ok(pod)));
        }
        (0..failures).for_each(|_| tally.add(Err(anyhow!("refused"))));
        tally
    }

    #[test]
    fn a_spread_misses_nobody_and_reaches_nobody_else() {
        let all = BTreeSet::from(BACKENDS);
        let first = BTreeSet::from([BACKENDS[0]]);
        let cases = [
            ([50, 48, 60, 42], 0, &all, true),
            ([50, 48, 60, 42], 1, &all, false),
            ([90, 90, 20, 0], 0, &all, false),
            ([65, 65, 65, 5], 0, &all, false),
            ([9, 0, 0, 0], 0, &first, true),
            ([9, 1, 0, 0], 0, &first, false),
            ([0, 0, 0, 0], 0, &first, false),
        ];
        for (counts, failures, pods, good) in cases {
            let tally = tally(counts, failures);
            assert_eq!(tally.expect_spread_over(pods).is_ok(), good, "{counts:?} {failures}");
        }
    }

    #[test]
    fn columns_are_aligned() {
        let (one, two) = (tally([1, 200, 30, 0], 0), tally([0, 0, 0, 4], 1));
        let expected = [
            "                    east/cart-1  east/cart-2  west/cart-1  west/cart-2       failed",
            "client  TCP  IPv4             1          200           30            -            0",
            "node    UDP  IPv6             -            -            -            4            1",
        ];
        let lines =
            [("client  TCP  IPv4".to_owned(), &one), ("node    UDP  IPv6".to_owned(), &two)];
        assert_eq!(table(lines).lines().collect::<Vec<_>>(), expected);
    }
}
