//! `--page`: a page for people about the clusterset, as this controller sees it. It costs a copy of the states of all
//! services every ten seconds, and nothing while it is off.

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

/// How often the view is published.
const PERIOD: Duration = Duration::from_secs(10);

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
    next_at: Instant,
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
    Box::new(Shown { data, next_at: clock::now() })
}

impl Feature for Shown {
    fn act(&mut self, core: &mut Core, now: Instant) {
        if let Some(peers) = core.peers.as_deref().filter(|_| core.was_synced)
            && now >= self.next_at
        {
            self.next_at = now + PERIOD;
            self.data.set(view(core, peers));
        }
    }
}
