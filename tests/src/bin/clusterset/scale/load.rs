//! What the programs of the scale case use: CPU time of each step, and memory.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use comfy_table::{Table, presets::NOTHING};
use mcs_tests::{
    procfs::{Status, cpu_time},
    suite::tell,
};

use crate::world::World;

/// A program that uses less than this part of a CPU has nothing to do but to follow Leases.
const CALM: f64 = 0.05;
const LOOK: Duration = Duration::from_millis(500);

/// The steps of a case, and what each has used.
pub(super) struct Loads {
    rows: Vec<Vec<String>>,
    began: Instant,
    before: [Duration; 4],
    most: u64,
}

const PROGRAMS: [&str; 4] = ["controller", "its API server", "the hub", "etcd"];

impl Loads {
    pub(super) fn begin(world: &World) -> anyhow::Result<Self> {
        let before = cpu_times(world)?;
        Ok(Self { rows: vec![], began: Instant::now(), before, most: 0 })
    }

    /// The next step begins now, with a controller that is about to start.
    pub(super) fn restart(&mut self, world: &World) -> anyhow::Result<()> {
        self.before = cpu_times(world)?;
        self.began = Instant::now();
        Ok(())
    }

    /// A step ends. Returns how long it took.
    pub(super) fn note(&mut self, world: &World, step: &str) -> anyhow::Result<Duration> {
        let took = self.began.elapsed();
        let now = cpu_times(world)?;
        let mut row = vec![step.to_owned(), seconds(took)];
        let used = now.iter().zip(self.before).map(|(now, before)| now.saturating_sub(before));
        row.extend(used.map(seconds));
        let (resident, most) = memory(world.second().controller.pid()?)?;
        row.extend([resident.to_string(), most.to_string()]);
        self.most = self.most.max(most);
        self.rows.push(row);
        self.before = now;
        self.began = Instant::now();
        Ok(took)
    }

    /// What the controller had resident at most, in MiB.
    pub(super) const fn most_memory(&self) -> u64 {
        self.most
    }

    /// Prints the steps.
    pub(super) fn tell(self, world: &World) -> anyhow::Result<()> {
        let mut table = Table::new();
        table.load_style(NOTHING);
        let mut header = vec!["step".to_owned(), "s".to_owned()];
        header.extend(PROGRAMS.map(|program| format!("CPU s: {program}")));
        header.extend(["MiB".to_owned(), "at most".to_owned()]);
        table.set_header(header);
        table.add_rows(self.rows);
        for line in table.lines() {
            tell(line.trim_end());
        }
        for (program, pid) in PROGRAMS.iter().zip(pids(world)?).skip(1) {
            if let Some(pid) = pid {
                tell(format!("{program}: {} MiB resident at most", memory(pid)?.1));
            }
        }
        Ok(())
    }
}

/// Waits until the controller has nothing more to do.
pub(super) fn wait_until_calm(world: &World) -> anyhow::Result<()> {
    let pid = world.second().controller.pid()?;
    let mut before = cpu_time(pid)?;
    loop {
        sleep(LOOK);
        let now = cpu_time(pid)?;
        if now.saturating_sub(before) < LOOK.mul_f64(CALM) {
            return Ok(());
        }
        before = now;
    }
}

fn pids(world: &World) -> anyhow::Result<[Option<u32>; 4]> {
    let controller = &world.second().controller;
    Ok([
        controller.is_running().then(|| controller.pid()).transpose()?,
        Some(world.second().server.pid()),
        Some(world.clusters[2].server.pid()),
        Some(world.control.etcd_pid()),
    ])
}

/// A controller that is not there has used nothing.
fn cpu_times(world: &World) -> anyhow::Result<[Duration; 4]> {
    let mut times = [Duration::ZERO; 4];
    for (time, pid) in times.iter_mut().zip(pids(world)?) {
        *time = pid.map(cpu_time).transpose()?.unwrap_or_default();
    }
    Ok(times)
}

/// What is resident, and was at most, in MiB.
fn memory(pid: u32) -> anyhow::Result<(u64, u64)> {
    let status = Status::of(pid)?;
    Ok((status.number("VmRSS")? / 1024, status.number("VmHWM")? / 1024))
}

fn seconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64())
}
