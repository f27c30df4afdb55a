//! Records which programs, media, families and counters the suite has covered.

use std::cell::RefCell;

use crate::prelude::*;

/// Counters that only move if the kernel has no memory.
const UNREACHABLE: &[Counter] = &[Counter::PacketDroppedFailed];

/// The coverage so far.
#[derive(Default)]
pub(crate) struct Coverage(RefCell<Tally>);

#[derive(Default)]
struct Tally {
    /// By theme and family.
    cases: BTreeMap<String, BTreeMap<Family, usize>>,
    runs: BTreeMap<Hook, BTreeMap<(Family, Medium), usize>>,
    counted: BTreeMap<&'static str, usize>,
}

impl Coverage {
    /// Notes a case that has passed.
    pub(crate) fn held(&self, name: &str, family: Family) {
        let theme = name.split(':').next().unwrap_or(name).to_owned();
        *self.0.borrow_mut().cases.entry(theme).or_default().entry(family).or_default() += 1;
    }

    /// Notes a run of a program.
    pub(crate) fn ran(&self, hook: Hook, family: Family, medium: Medium) {
        let mut tally = self.0.borrow_mut();
        *tally.runs.entry(hook).or_default().entry((family, medium)).or_default() += 1;
    }

    /// Notes a counter that a case expected to increase.
    pub(crate) fn counted(&self, counter: Counter) {
        *self.0.borrow_mut().counted.entry(counter.name()).or_default() += 1;
    }

    /// Fails if a program has not seen both families on every medium that the kernel has, or if a counter of the packet
    /// path was never expected to move.
    pub(crate) fn check(&self, has: impl Fn(Medium) -> bool) -> Result {
        let tally = self.0.borrow();
        for hook in Hook::ALL {
            for medium in Medium::ALL.into_iter().filter(|medium| has(*medium)) {
                for family in Family::ALL {
                    let runs = tally.runs.get(&hook);
                    let has_run = runs.is_some_and(|runs| runs.contains_key(&(family, medium)));
                    ensure!(has_run, "{hook:?} has seen no {family} on {medium}");
                }
            }
        }
        let of_packets = Counter::PacketTranslated as usize..=Counter::PacketPassed as usize;
        let never = Counter::ALL[of_packets].iter().filter(|counter| {
            !UNREACHABLE.contains(counter) && !tally.counted.contains_key(counter.name())
        });
        let never: Vec<_> = never.map(|counter| counter.name()).collect();
        ensure!(never.is_empty(), "never counted: {}", never.join(", "));
        Ok(())
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tally = self.0.borrow();
        writeln!(f, "{:<16}{:>8}{:>8}", "cases", Family::V4, Family::V6)?;
        let mut sums = BTreeMap::<Family, usize>::new();
        for (theme, cases) in &tally.cases {
            let count = |family| cases.get(&family).copied().unwrap_or_default();
            writeln!(f, "{theme:<16}{:>8}{:>8}", count(Family::V4), count(Family::V6))?;
            for (family, count) in cases {
                *sums.entry(*family).or_default() += count;
            }
        }
        let sum = |family| sums.get(&family).copied().unwrap_or_default();
        writeln!(f, "{:<16}{:>8}{:>8}", "all", sum(Family::V4), sum(Family::V6))?;
        writeln!(f)?;
        write!(f, "{:<20}", "packets")?;
        Hook::ALL
            .iter()
            .try_for_each(|hook| write!(f, "{:>10}", hook.program(Medium::Ethernet)))?;
        for medium in Medium::ALL {
            for family in Family::ALL {
                write!(f, "\n{:<20}", format!("{medium}, {family}"))?;
                for hook in Hook::ALL {
                    let runs = tally.runs.get(&hook);
                    let count = runs.and_then(|runs| runs.get(&(family, medium)));
                    write!(f, "{:>10}", count.copied().unwrap_or_default())?;
                }
            }
        }
        let counters = tally.counted.len();
        write!(f, "\n\n{counters} counters moved as expected")
    }
}
