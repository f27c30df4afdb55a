//! The entries that the programs have written, compared with the expected ones.

use std::fmt::{Debug, Write as _};

use crate::prelude::*;

/// A time of `CLOCK_MONOTONIC` that a program wrote, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Time {
    At(u64),
    /// While the program ran.
    Now,
    /// While the program ran, or still this one: which, depends on how long ago it is.
    Touched(u64),
}

impl Time {
    /// Whether `actual` is such a time, for a program that ran in `run`.
    fn fits(self, actual: u64, run: &RangeInclusive<u64>) -> bool {
        match self {
            Self::At(time) => actual == time,
            Self::Now => run.contains(&actual),
            Self::Touched(before) => {
                let touched = run.contains(&actual);
                let is_due = Flow::is_outdated(before, *run.end());
                let was_due = Flow::is_outdated(before, *run.start());
                (touched && is_due) || (actual == before && !was_due)
            }
        }
    }
}

/// A value with its time apart.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Timed<V> {
    pub(crate) value: V,
    pub(crate) time: Time,
}

/// Keys that can be sorted, of types that cannot.
pub(crate) trait Key: Copy {
    type Sorted: Ord + Clone + Debug;
    fn sorted(self) -> Self::Sorted;
}

impl Key for Tuple {
    type Sorted = Self;
    fn sorted(self) -> Self {
        self
    }
}

impl Key for FragmentKey {
    type Sorted = (Address, Address, u32, u8);
    fn sorted(self) -> Self::Sorted {
        (self.src, self.dst, self.id, self.protocol)
    }
}

impl Key for ClientKey {
    type Sorted = (Address, u32);
    fn sorted(self) -> Self::Sorted {
        (self.client, self.frontend)
    }
}

/// Entries of a map, their times apart.
pub(crate) type Table<K, V> = BTreeMap<<K as Key>::Sorted, Timed<V>>;

/// Everything that the programs write.
#[derive(Clone, Default)]
pub(crate) struct Tables {
    pub(crate) counters: BTreeMap<&'static str, u64>,
    pub(crate) flows_used: u32,
    pub(crate) flows: Table<Tuple, Flow>,
    pub(crate) fragments: Table<FragmentKey, Fragment>,
    pub(crate) affinity: Table<ClientKey, Affinity>,
}

impl Tables {
    /// Counts a counter.
    pub(crate) fn count(&mut self, counter: Counter) {
        *self.counters.entry(counter.name()).or_default() += 1;
    }

    /// Says how `actual` is not as expected, if it is not, for a program that ran in `run`.
    pub(crate) fn differences(&self, actual: &Self, run: &RangeInclusive<u64>) -> String {
        let mut text = String::new();
        for (name, expected) in &self.counters {
            let got = actual.counters.get(name).copied().unwrap_or_default();
            if got != *expected {
                let _ = writeln!(text, "counter {name}: expected {expected}, got {got}");
            }
        }
        if self.flows_used != actual.flows_used {
            let (expected, got) = (self.flows_used, actual.flows_used);
            let _ = writeln!(text, "flows_used: expected {expected}, got {got}");
        }
        compare(&mut text, "flow", &self.flows, &actual.flows, run, show_tuple, show_flow);
        compare(
            &mut text,
            "fragment",
            &self.fragments,
            &actual.fragments,
            run,
            |key| format!("{key:?}"),
            |fragment| format!("{} flags {}", show_tuple(&fragment.to), fragment.flags),
        );
        compare(
            &mut text,
            "affinity",
            &self.affinity,
            &actual.affinity,
            run,
            |(client, frontend)| format!("{} of frontend {frontend}", client.to_ip()),
            |affinity| format!("{:?}", affinity.backend),
        );
        text
    }
}

fn compare<K: Ord, V: PartialEq>(
    text: &mut String,
    what: &str,
    expected: &BTreeMap<K, Timed<V>>,
    actual: &BTreeMap<K, Timed<V>>,
    run: &RangeInclusive<u64>,
    show_key: impl Fn(&K) -> String,
    show: impl Fn(&V) -> String,
) {
    for (key, expected) in expected {
        let key_text = show_key(key);
        let expected_text = show(&expected.value);
        let Some(actual) = actual.get(key) else {
            let _ = writeln!(text, "{what} {key_text}\n  expected {expected_text}\n  got none");
            continue;
        };
        let fits = matches!(actual.time, Time::At(time) if expected.time.fits(time, run));
        if actual.value != expected.value || !fits {
            let (was, is) = (expected.time, actual.time);
            let got = show(&actual.value);
            let _ = writeln!(
                text,
                "{what} {key_text}\n  expected {expected_text} {was:?}\n  got      {got} {is:?} \
                 (ran in {run:?})"
            );
        }
    }
    for (key, actual) in actual.iter().filter(|(key, _)| !expected.contains_key(*key)) {
        let got = show(&actual.value);
        let _ = writeln!(text, "{what} {}\n  expected none\n  got {got}", show_key(key));
    }
}

fn show_tuple(tuple: &Tuple) -> String {
    let Tuple { src, dst, src_port, dst_port, protocol, .. } = tuple;
    format!("{} {src_port} > {} {dst_port} ({protocol})", src.to_ip(), dst.to_ip())
}

fn show_flow(flow: &Flow) -> String {
    let Flow { to, chosen, frontend, flags, seen, .. } = flow;
    let (id, generation) = (chosen.id, chosen.generation);
    let side = if flow.is_reply() { " reply" } else { "" };
    let hairpin = if flags & FlowFlags::HAIRPIN != 0 { " hairpin" } else { "" };
    let seen = Bits(*seen);
    format!(
        "to {}, backend {id} ({generation}) of frontend {frontend},{side}{hairpin} seen {seen}",
        show_tuple(to)
    )
}

struct Bits(u32);

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Seen::ANY, "any"),
            (Seen::SYN, "syn"),
            (Seen::ACK, "ack"),
            (Seen::FIN, "fin"),
            (Seen::RST, "rst"),
        ];
        let known: u32 = names.iter().map(|(bit, _)| bit).sum();
        let set = names.iter().filter(|(bit, _)| self.0 & bit != 0).map(|(_, name)| *name);
        write!(f, "[{}]", set.collect::<Vec<_>>().join(" "))?;
        if self.0 & !known != 0 { write!(f, " and {:#x}", self.0 & !known) } else { Ok(()) }
    }
}
