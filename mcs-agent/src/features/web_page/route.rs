//! The flag, and the answers of the page.

use std::{future::Future, pin::Pin};

use clap::{ArgMatches, Args, Command, FromArgMatches as _, builder::BoolishValueParser};
use hyper::Uri;
use mcs_kube::program::{
    http::{Answer, Serves},
    page,
};

use super::{PlotSamples, count, page as page_of};
use crate::core::{
    feature::{AgentView, Route},
    kernel::loader::Pins,
};

#[derive(Debug, Args)]
struct PageArgs {
    /// Serve a page for people at /page of these addresses too, to browsers on this node alone
    #[arg(long, env = "MCS_PAGE", value_parser = BoolishValueParser::new())]
    page: bool,
}

pub(super) fn flags(command: Command) -> Command {
    PageArgs::augment_args(command)
}

pub(super) fn route(matches: &ArgMatches) -> Option<Box<dyn Route>> {
    let is_on = PageArgs::from_arg_matches(matches).is_ok_and(|args| args.page);
    is_on.then(|| -> Box<dyn Route> { Box::new(PlotSamples::default()) })
}

impl Route for PlotSamples {
    fn answer(&self, agent: &AgentView<'_>, serves: Serves, uri: &Uri) -> Option<Answer> {
        page::answer(serves, uri, |query: &_| page_of(agent, self, query))
    }

    fn beside<'a>(&'a self, pins: &'a Pins) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async { self.follow(|| count(&pins.state())).await })
    }
}
