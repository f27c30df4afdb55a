//! `--page`: a page for people about the clusterset, as this controller sees it. It costs a copy of the states of all
//! services every ten seconds, every second while somebody looks, and nothing while it is off.

mod data;
mod view;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use clap::{Args, FromArgMatches as _, builder::BoolishValueParser};
use mcs_kube::program::page;

use self::{
    data::{PageData, count},
    view::view,
};
use crate::core::{
    clock,
    feature::{Core, Entry, Feature, Wiring},
};

/// How often the view is published while nobody looks. Somebody looks: each time that features act.
const PERIOD: Duration = Duration::from_secs(10);
/// How long somebody looks who has asked for the page, which loads itself again every 10 seconds.
const LOOK: Duration = Duration::from_secs(15);
/// How many times as long as it takes to make a view the next one waits: other work of the control task goes on.
const REST: u32 = 20;

/// The feature in the list.
pub(crate) const ENTRY: Entry = Entry {
    flags: PageFlags::augment_args,
    start: |matches, wiring| {
        let is_on = PageFlags::from_arg_matches(matches)?.page;
        Ok(is_on.then(|| start(wiring)))
    },
    ..Entry::NONE
};

#[derive(Args)]
#[group(skip)]
struct PageFlags {
    /// Serve a page for people at /page of these addresses too, to clients in the same network namespace alone, such as a
    /// port-forward: `mcs ui --controller`
    #[arg(long, env = "MCS_PAGE", value_parser = BoolishValueParser::new())]
    page: bool,
}

struct Shown {
    data: Arc<PageData>,
    turn: Turn,
}

/// When the view is published.
struct Turn {
    seen_at: Option<Instant>,
    /// How long the last view took.
    took: Duration,
    looks_until: Instant,
}

impl Turn {
    fn new(now: Instant) -> Self {
        Self { seen_at: None, took: Duration::ZERO, looks_until: now }
    }

    /// Whether the view is due. `is_asked`: somebody has asked for the page.
    fn is_due(&mut self, is_asked: bool, now: Instant) -> bool {
        if is_asked {
            self.looks_until = now + LOOK;
        }
        let pause = if now < self.looks_until { REST * self.took } else { PERIOD };
        self.seen_at.is_none_or(|at| now >= at + pause)
    }
}

fn start(wiring: &mut Wiring<'_>) -> Box<dyn Feature> {
    let data = Arc::new(PageData::default());
    let (answering, counting) = (Arc::clone(&data), Arc::clone(&data));
    wiring.published.answers.push(Box::new(move |serves, uri| {
        page::answer(serves, uri, |query| answering.page(query))
    }));
    let writes = wiring.published.metrics.writes.clone();
    wiring.beside.push(Box::pin(async move {
        counting.figures.follow(|| Some(count(&writes))).await;
    }));
    Box::new(Shown { data, turn: Turn::new(clock::now()) })
}

impl Feature for Shown {
    fn act(&mut self, core: &mut Core, now: Instant) {
        if let Some(peers) = core.peers.as_deref().filter(|_| core.was_synced)
            && self.turn.is_due(self.data.was_asked(), now)
        {
            self.data.set(view(core, peers));
            self.turn.seen_at = Some(now);
            self.turn.took = clock::now().saturating_duration_since(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_looks_sees_the_last_second_and_costs_a_twentieth_of_the_time() {
        let begin = Instant::now();
        let published = |took: Duration, asked: &[u64]| {
            let mut turn = Turn::new(begin);
            let seconds = (0..40).filter(|second| {
                let now = begin + Duration::from_secs(*second);
                let is_due = turn.is_due(asked.contains(second), now);
                if is_due {
                    (turn.seen_at, turn.took) = (Some(now), took);
                }
                is_due
            });
            seconds.collect::<Vec<_>>()
        };
        let quick = Duration::from_millis(1);
        assert_eq!(published(quick, &[]), [0, 10, 20, 30]);
        let looks: Vec<_> = [0, 10].into_iter().chain(12..27).chain([36]).collect();
        assert_eq!(published(quick, &[12]), looks);
        let slow = Duration::from_millis(200);
        assert_eq!(published(slow, &[12]), [0, 10, 14, 18, 22, 26, 36]);
    }
}
