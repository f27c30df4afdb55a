//! The bench: mcs-agent beside kube-proxy and beside no translation at all, in network namespaces that
//! lead nowhere.

use std::process;

use clap::{Parser, builder::PossibleValuesParser};
use mcs_tests::{run, subjects::SUBJECTS};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use self::cases::{CASES, Case};
use crate::prelude::*;

mod busy;
mod cases;
mod cilium;
mod contender;
mod cpu;
mod daemon;
mod figures;
mod hooks;
mod lane;
mod machine;
mod objects;
mod plan;
mod prelude;
mod probe;
mod progress;
mod report;
mod servers;
mod session;
mod statistics;
mod traffic;
mod world;

/// Measure mcs-agent beside kube-proxy and beside no translation at all
#[derive(Parser)]
struct Args {
    /// What to measure; by default all
    #[arg(value_name = "CASE", value_parser = PossibleValuesParser::new(CASES.iter().map(|case| case.name)))]
    cases: Vec<String>,
    /// Fewer services and rounds, in less than ten minutes
    #[arg(long)]
    quick: bool,
    /// Numbers of services, ascending
    #[arg(long, value_name = "N", value_delimiter = ',')]
    services: Vec<u32>,
    /// How often each contender has its turn
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Where results are written
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    output: PathBuf,
    /// Where programs of other projects are built
    #[arg(long, value_name = "DIR", default_value = "target/bench/cache")]
    cache: PathBuf,
    /// Be the process that is measured: how many services, and endpoints of each
    #[arg(long, hide = true, value_name = "N,N", value_delimiter = ',')]
    cold_start: Vec<u32>,
}

impl Args {
    fn plan(&self) -> Plan {
        let mut plan = if self.quick { Plan::quick() } else { Plan::full() };
        if !self.services.is_empty() {
            plan.sizes.clone_from(&self.services);
            plan.sizes.sort_unstable();
            plan.sizes.dedup();
        }
        plan.rounds = self.rounds.unwrap_or(plan.rounds);
        plan
    }

    fn cases(&self) -> Vec<&'static Case> {
        let chosen =
            |case: &&Case| self.cases.is_empty() || self.cases.iter().any(|name| name == case.name);
        CASES.into_iter().filter(chosen).collect()
    }
}

fn main() -> ExitCode {
    match bench(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn bench(args: &Args) -> Result {
    if let [services, endpoints] = args.cold_start[..] {
        return cases::cold::child(services, endpoints);
    }
    let (plan, cases, machine) = (args.plan(), args.cases(), Machine::look_at()?);
    fs::create_dir_all(&args.output)
        .with_context(|| format!("cannot make {}", args.output.display()))?;
    end_on_signals().context("cannot handle signals")?;
    let (figures, failures) = measure(&plan, &cases, &args.cache)?;
    let machine = machine.at_the_end()?;
    println!(
        "{machine}; TCP with {}; medians of {} rounds (quartiles), x: to direct",
        traffic::CONGESTION,
        plan.rounds
    );
    let notes = cases.iter().map(|case| (case.name, case.note));
    for (case, note) in notes.chain([(GROWTH, GROWTH_NOTE)]) {
        println!("\n{note}\n{}", report::table::of_case(&figures, case));
    }
    if let Some(table) = report::table::to_before(&figures) {
        println!("\nTo the agent before, by ratios of paired rounds.\n{table}");
    }
    let targets = report::targets::evaluate(&figures);
    println!("\n{}\n", report::targets::table(&targets));
    let titles = cases.iter().map(|case| (case.name, title(case.name)));
    for (case, title) in titles.chain([(GROWTH, GROWTH_TITLE.to_owned())]) {
        let file = args.output.join(format!("{case}.svg"));
        if report::plot::write(&figures, case, &title, &file)? {
            println!("{}", file.display());
        }
    }
    let file = args.output.join("results.json");
    let document = report::json::document(&figures, &targets, &machine, &plan)?;
    fs::write(&file, format!("{document:#}\n"))
        .with_context(|| format!("cannot write {}", file.display()))?;
    println!("{}", file.display());
    ensure!(failures.is_empty(), "not all was measured:\n  {}", failures.join("\n  "));
    Ok(())
}

/// The title of a case's plot.
fn title(case: &str) -> String {
    let subject = SUBJECTS.iter().find(|subject| subject.name == case);
    let about = subject.map_or_else(String::new, |subject| format!(": {}", subject.about));
    format!("{case}{about}")
}

/// Daemons are stopped most of the time: a signal that ends this process alone would leave them stopped.
fn end_on_signals() -> io::Result<()> {
    /// As shells have it.
    const INTERRUPTED: i32 = 130;

    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::spawn(move || {
        signals.forever().next();
        if let Err(error) = run::abandon(World::RUN) {
            eprintln!("\nerror: {error:#}");
        }
        process::exit(INTERRUPTED);
    });
    Ok(())
}

/// The name of the case that is measured while services are added.
const GROWTH: &str = "services";
const GROWTH_TITLE: &str = "services: from all objects at once until the last one is in effect";
const GROWTH_NOTE: &str = "All objects are there when daemons are let go on, all at a time.";

/// Returns with the figures which cases failed, and why.
fn measure(plan: &Plan, cases: &[&'static Case], cache: &Path) -> Result<(Figures, Vec<String>)> {
    let mut progress = Progress::new(shares(plan, cases));
    progress.step("control plane and contenders");
    let takes_part =
        |contender: &Contender| cases.iter().any(|case| case.contenders.contains(contender));
    let there = Contender::ALL.into_iter().filter(|contender| contender.is_there());
    let contenders: Vec<_> = there.filter(takes_part).collect();
    let mut world = World::begin(&contenders, cache)?;
    for (contender, reason) in &world.absent {
        progress.note(format!("{contender} does not take part: {reason}"));
    }
    let (mut figures, mut failures) = (Figures::default(), Vec::new());
    for services in plan.sizes.iter().copied() {
        progress.step(format!("{services} services"));
        for (contender, time) in world.grow(services, &progress)? {
            let outcome = time.map(|time| vec![time.as_secs_f64()]).into();
            let key = Key {
                case: GROWTH,
                services: Some(services),
                quantity: "until the last one is in effect".to_owned(),
            };
            figures.add(Figure { key, contender, unit: Unit::Seconds, outcome });
        }
        for case in cases.iter().filter(|case| case.is_run_at(plan, services)) {
            progress.step(format!("{} at {services} services", case.name));
            let mut session = Session {
                case: case.name,
                services,
                world: &world,
                plan,
                progress: &progress,
                figures: &mut figures,
            };
            if let Err(error) = (case.run)(&mut session) {
                let failure = format!("{} at {services} services: {error:#}", case.name);
                progress.note(&failure);
                failures.push(failure);
            }
        }
    }
    progress.end();
    if !failures.is_empty() {
        failures.push(format!("logs are in {}", world.keep_logs().display()));
    }
    Ok((figures, failures))
}

/// How long steps are thought to take, in their order.
fn shares(plan: &Plan, cases: &[&'static Case]) -> Vec<Duration> {
    const BEGIN: Duration = Duration::from_secs(12);
    /// All of its objects, and until they are in effect; and more of it for each service that there is:
    /// the API server looks through all VIPs for a free one.
    const SERVICE: Duration = Duration::from_millis(12);
    const OTHER_SERVICE: Duration = Duration::from_nanos(1500);

    let mut shares = vec![BEGIN];
    let mut before = 0;
    for services in plan.sizes.iter().copied() {
        shares.push((SERVICE + OTHER_SERVICE * services) * (services - before));
        let here = cases.iter().filter(|case| case.is_run_at(plan, services));
        shares.extend(here.map(|case| (case.time)(plan, services)));
        before = services;
    }
    shares
}
