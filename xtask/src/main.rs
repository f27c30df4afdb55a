//! The verbs of mcs-agent's development, run as `cargo xtask VERB`.

use std::process::ExitCode;

use clap::Parser;

use crate::{
    lab::{bench, clusters, demo, kernels, kind},
    workspace::Workspace,
};

mod btf;
mod build;
mod cost;
mod cross;
mod deploy;
mod dwarf;
mod fuzz;
mod image;
mod interrupt;
mod lab;
mod lint;
mod process;
mod release;
mod screen;
mod setup;
mod test;
mod variant;
mod version;
mod workspace;

/// Build, check and test mcs-agent.
///
/// Every verb first sees to it that what it needs is installed; nothing has to be prepared by hand.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
enum Verb {
    Setup(setup::Args),
    Build(build::Args),
    Bench(bench::Args),
    Cost(cost::Args),
    Demo(demo::Args),
    Kernels(kernels::Args),
    Kind(kind::Args),
    Image(image::Args),
    Deploy(deploy::Args),
    Release(release::Args),
    Clusters(clusters::Args),
    Fuzz(fuzz::Args),
    Lint(lint::Args),
    Test(test::Args),
    #[command(hide = true)]
    Pod(demo::pod::Args),
}

impl Verb {
    /// Whether it has started things that it ends itself, also when nobody reads its output any more.
    fn cleans_up(&self) -> bool {
        matches!(
            self,
            Self::Bench(_)
                | Self::Clusters(_)
                | Self::Cost(_)
                | Self::Demo(_)
                | Self::Fuzz(_)
                | Self::Kernels(_)
                | Self::Kind(_)
                | Self::Pod(_)
                | Self::Test(_)
        )
    }
}

fn main() -> ExitCode {
    let verb = Verb::parse();
    if !verb.cleans_up()
        && let Err(error) = interrupt::end_with_output()
    {
        eprintln!("error: cannot handle signals: {error}");
        return ExitCode::FAILURE;
    }
    let outcome = Workspace::discover().and_then(|workspace| match verb {
        Verb::Setup(args) => setup::run(&workspace, &args),
        Verb::Build(args) => build::run(&workspace, &args),
        Verb::Bench(args) => bench::run(&workspace, &args),
        Verb::Cost(args) => cost::run(&workspace, &args),
        Verb::Demo(args) => demo::run(&workspace, &args),
        Verb::Kernels(args) => kernels::run(&workspace, &args),
        Verb::Kind(args) => kind::run(&workspace, &args),
        Verb::Deploy(args) => deploy::run(&workspace, &args),
        Verb::Release(args) => release::run(&workspace, &args),
        Verb::Fuzz(args) => fuzz::run(&workspace, &args),
        Verb::Image(args) => image::run(&workspace, &args),
        Verb::Clusters(args) => clusters::run(&workspace, &args),
        Verb::Lint(args) => lint::run(&workspace, &args),
        Verb::Test(args) => test::run(&workspace, &args),
        Verb::Pod(args) => demo::pod::run(&args),
    });
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
