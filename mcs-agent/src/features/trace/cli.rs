//! `mcs-agent trace`: what the programs decide, as they decide it.

use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use mcs_kube::{
    program::{
        self, TraceFormat, Verdict, has_reader, input_ended, print, takes_output, trace_duration,
    },
    report::TraceTotals,
};
use tokio::time::{Instant, interval, sleep, sleep_until};

use crate::{
    core::{
        cli::{BpffsArg, ImportFilter, view},
        kernel::{
            dataplane::{KernelMapsReader, read_run_record},
            loader::{CgroupRoot, Pins, mount_of},
        },
    },
    features::trace::{
        Channel, Names, TraceFilter,
        events::TraceReader,
        view::{header, of_event, row},
    },
};

/// How often the ring buffer is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How many events are looked at before a signal is.
const AT_A_TIME: usize = 16_384;
/// Bytes that are written at once: what a pipe takes if it takes anything.
const PAGE: usize = 4096;
/// How long a reader has for the last lines.
const LAST: Duration = Duration::from_secs(5);

/// Show each decision as it is made: which backend a connect gets, or why it is refused
///
/// The agent attaches programs that tell what they decide, and takes them away when this ends: nothing is left of it, and no
/// connection fails by it. It tells each connect to a VIP, each datagram that an unconnected socket sends to one, and each new
/// flow of the packet path. With several ClusterSetIPs of one import all of them count. One trace runs at a time on a node: a
/// second one ends the first. Decisions that come faster than they are printed are lost and counted.
///
/// Exits with 0 if it ends as asked, else with 1: no agent runs, the kernel does not take the programs, or the agent ends it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs-agent trace
  mcs-agent trace shop/cart --verdict refused
  mcs-agent trace --pid 4711 --for 1m
  mcs-agent trace -o json | jq -r 'select(.\"mcs.affinity\") | .\"network.peer.address\"'")]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    filter: ImportFilter,

    /// Only what this pod's processes do, by its uid
    #[arg(long, value_name = "UID")]
    pod: Option<String>,

    /// Only what this process does, by its id on the node
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,

    /// Only decisions of this kind
    #[arg(long, value_name = "VERDICT")]
    verdict: Option<Verdict>,

    /// End after this time, at most 1h
    #[arg(long = "for", value_name = "DURATION", value_parser = trace_duration, default_value = "5m")]
    duration: Duration,

    /// End after so many decisions
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// End when the standard input is closed. `kubectl exec --stdin` closes it when it is killed, and leaves the command alone
    /// otherwise
    #[arg(long)]
    until_input_ends: bool,

    #[command(flatten)]
    bpffs: BpffsArg,

    /// Output format
    #[arg(short, long, env = "MCS_OUTPUT", value_name = "FORMAT", default_value = "table")]
    output: TraceFormat,
}

pub(crate) fn run(args: &TraceArgs) -> anyhow::Result<ExitCode> {
    program::block_on(trace(args))?;
    Ok(ExitCode::SUCCESS)
}

async fn trace(args: &TraceArgs) -> anyhow::Result<()> {
    // Before the agent is asked, so that a signal ends a trace in order.
    let mut signals = program::Signals::listen()?;
    let pins = Pins::new(&args.bpffs.bpffs);
    let import = args.filter.import();
    if let Some(import) = &import {
        let frontends = view::frontends(view::of(&view::read_maps(&pins)?));
        if let Err(error) = view::expect_import(import, &frontends, &pins) {
            // It may come.
            eprintln!("mcs-agent: {error:#}; waiting for it");
        }
    }
    let filter = TraceFilter {
        import,
        namespace: args.filter.namespace.namespace.clone(),
        pod: args.pod.clone(),
        process: args.pid,
        verdict: args.verdict,
    };
    let run = read_run_record(&pins.run())
        .context("no agent has run here: start `mcs-agent run`, or give the agent's --bpffs")?;
    let (mut channel, maps) = Channel::open(&run.directory).map_err(refused)?;
    let reader = TraceReader::new(maps).context("cannot read the events")?;
    let report = view::read_report(&pins).ok();
    let cgroup = report.map(|report| report.cgroup_path).filter(|path| path.is_dir());
    let cgroups = mount_of(&CgroupRoot::find(cgroup.as_deref())?.path);
    let names = Names::new(KernelMapsReader::open(&pins.config())?, &cgroups);
    let waiting = Vec::new();
    let mut printer = Printer { reader, names, filter, args, waiting, shown: 0, seen: 0, lost: 0 };
    printer.begin()?;
    let end = Instant::now() + args.duration;
    let mut look = interval(LOOK);
    let ended = loop {
        let is_over = tokio::select! {
            () = signals.next() => true,
            () = sleep_until(end) => true,
            _ = look.tick() => false,
        };
        let ended = channel.ended();
        let goes_on = printer.print()? && has_reader();
        let is_over = is_over || (args.until_input_ends && input_ended());
        if is_over || !goes_on || ended.is_some() {
            break ended;
        }
    };
    printer.end().await?;
    match ended {
        Some(why) => Err(anyhow::Error::new(why).context("the trace has ended")),
        None => Ok(()),
    }
}

fn refused(error: io::Error) -> anyhow::Error {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    let advice = match error.kind() {
        NotFound | ConnectionRefused => "no agent runs that can be traced",
        _ => "the agent does not trace",
    };
    anyhow::Error::new(error).context(advice)
}

/// Prints the events that are wanted.
struct Printer<'a> {
    reader: TraceReader,
    names: Names,
    filter: TraceFilter,
    args: &'a TraceArgs,
    /// Lines that the reader does not take yet.
    waiting: Vec<u8>,
    shown: u64,
    seen: u64,
    /// As told last.
    lost: u64,
}

impl Printer<'_> {
    fn begin(&self) -> anyhow::Result<()> {
        let format = self.args.output;
        if format == TraceFormat::Json {
            let line = serde_json::to_string(&self.told())?;
            return print(&line);
        }
        print(&header(format == TraceFormat::Wide))
    }

    /// Prints what came, as far as the reader takes it: then events wait in the ring buffer, which loses and counts them.
    /// Returns whether more is wanted.
    fn print(&mut self) -> anyhow::Result<bool> {
        for _ in 0..AT_A_TIME {
            if self.is_enough() || (self.waiting.len() >= PAGE && !self.write()?) {
                break;
            }
            let Some(event) = self.reader.next_event() else { break };
            self.seen += 1;
            if !self.filter.wants(&event, &mut self.names) {
                continue;
            }
            let Some(view) = of_event(&event, &mut self.names) else { continue };
            self.shown += 1;
            match self.args.output {
                TraceFormat::Json => serde_json::to_writer(&mut self.waiting, &view)?,
                TraceFormat::Table | TraceFormat::Wide => {
                    self.waiting.extend(row(&view, self.args.output == TraceFormat::Wide).bytes());
                }
            }
            self.waiting.push(b'\n');
        }
        let lost = self.reader.lost().context("cannot read how many events were lost")?;
        if lost != self.lost && self.write()? {
            self.lost = lost;
            match self.args.output {
                TraceFormat::Json => self.tell()?,
                TraceFormat::Table | TraceFormat::Wide => {
                    writeln!(self.waiting, "... {lost} decisions lost so far: they came too fast")?;
                }
            }
        }
        self.write()?;
        Ok(!self.is_enough())
    }

    /// Writes what waits. Returns whether nothing waits any more. A reader that is gone is no error: [`has_reader`] sees it.
    fn write(&mut self) -> anyhow::Result<bool> {
        while !self.waiting.is_empty() {
            if !takes_output() {
                return Ok(false);
            }
            let page = self.waiting.len().min(PAGE);
            let mut out = io::stdout().lock();
            match out.write_all(&self.waiting[..page]).and_then(|()| out.flush()) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.waiting.clear(),
                written => {
                    written?;
                    self.waiting.drain(..page);
                }
            }
        }
        Ok(true)
    }

    fn is_enough(&self) -> bool {
        self.args.count.is_some_and(|count| self.shown >= count)
    }

    async fn end(&mut self) -> anyhow::Result<()> {
        if self.args.output == TraceFormat::Json {
            self.tell()?;
        }
        let end = Instant::now() + LAST;
        while !self.write()? && has_reader() && Instant::now() < end {
            sleep(LOOK).await;
        }
        if self.args.output != TraceFormat::Json {
            let TraceTotals { shown, seen, lost, .. } = self.told();
            eprintln!("{shown} of {seen} decisions shown, {lost} lost");
        }
        Ok(())
    }

    /// Adds a line of JSON with the numbers.
    fn tell(&mut self) -> anyhow::Result<()> {
        let told = self.told();
        serde_json::to_writer(&mut self.waiting, &told)?;
        self.waiting.push(b'\n');
        Ok(())
    }

    fn told(&self) -> TraceTotals {
        TraceTotals {
            timestamp: Timestamp::now(),
            shown: self.shown,
            seen: self.seen,
            lost: self.lost,
        }
    }
}
