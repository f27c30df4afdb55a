//! What a change costs the node besides CPU time: system calls.

use mcs_tests::procfs::Status;
use rustix::process::{Pid, kill_process};

use crate::prelude::*;

const CHANGES: u32 = 100;
/// System calls for a change, beside what the agent does without any. It takes one to be woken, some
/// to read from the API server and to look for more, and some for timers and the report.
const MOST: u32 = 15;
/// How long the agent is watched while nothing changes.
const IDLE: Duration = Duration::from_secs(5);

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a change takes few system calls", few);
}

fn few(world: &mut World) -> Result {
    let mut swing = Swing::begin(world, "counted")?;
    let idle = Trace::begin(world, "idle")?;
    thread::sleep(IDLE);
    let idle = idle.end()? / IDLE.as_secs_f64();

    let trace = Trace::begin(world, "changes")?;
    let begin = Instant::now();
    for _ in 0..CHANGES {
        swing.change()?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let calls = (trace.end()? - idle * seconds) / f64::from(CHANGES);
    tell(format!("{calls:.1} system calls a change, {idle:.0} a second without one"));
    ensure!(calls <= f64::from(MOST), "{calls:.1} system calls a change, {MOST} are allowed");
    swing.end()
}

/// Counts the system calls of the agent.
struct Trace {
    strace: Child,
    summary: PathBuf,
}

impl Trace {
    fn begin(world: &World, name: &str) -> Result<Self> {
        let pid = world.site.agent.pid();
        let summary = world.run.directory().join(format!("{name}.strace"));
        let mut strace = Command::new("strace");
        strace.args([
            "--quiet=attach,exit",
            "--follow-forks",
            "--summary-only",
            "--attach",
            &pid.to_string(),
            "--output",
        ]);
        let strace = strace.arg(&summary).spawn().context("cannot start strace")?;
        let trace = Self { strace, summary };
        wait::until("strace to be attached", || {
            ensure!(Status::of(pid)?.number("TracerPid")? != 0, "no tracer");
            Ok(())
        })?;
        Ok(trace)
    }

    /// How many there were.
    fn end(mut self) -> Result<f64> {
        let pid = Pid::from_child(&self.strace);
        kill_process(pid, Signal::INT)?;
        self.strace.wait()?;
        let summary = fs::read_to_string(&self.summary)?;
        // "100.00    0.012345          12      1234       123 total"
        let total = summary.lines().find(|line| line.ends_with(" total"));
        let calls = total.and_then(|line| line.split_whitespace().nth(3)?.parse().ok());
        calls.with_context(|| format!("strace says no total:\n{summary}"))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // It detaches by itself where it is gone already.
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}
