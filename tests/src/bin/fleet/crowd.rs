//! The processes of many followers of an API server.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use mcs_tests::{
    cluster::Programs,
    netns::Namespace,
    procfs::{self, Status},
    wait,
};

use crate::followers::{NODE, Progress};

/// The first argument of this program when it follows an API server.
pub(crate) const VERB: &str = "follow";
/// The most followers of one process.
const IN_ONE: usize = 250;

/// What the followers are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The sources and stores of agents.
    Agents,
    /// The watches of kube-proxies, by client-go: `tests/programs/kube-proxy-watches`.
    KubeProxies,
}

/// Followers in a namespace. They end when this is dropped.
pub(crate) struct Crowd {
    processes: Vec<Process>,
    pub(crate) count: usize,
}

struct Process {
    child: Child,
    question: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Crowd {
    /// Starts `count` followers at once.
    pub(crate) fn start(
        netns: &Namespace,
        kind: Kind,
        kubeconfig: &Path,
        count: usize,
    ) -> anyhow::Result<Self> {
        let shares = (0..count).step_by(IN_ONE).map(|first| IN_ONE.min(count - first));
        let processes = shares
            .map(|share| Process::start(netns, kind, kubeconfig, share))
            .collect::<Result<_, _>>()?;
        Ok(Self { processes, count })
    }

    /// How far all are.
    pub(crate) fn progress(&mut self) -> anyhow::Result<Progress> {
        let mut processes = self.processes.iter_mut();
        processes.try_fold(Progress::default(), |all, process| Ok(all.and(process.progress()?)))
    }

    /// Waits until all have read everything. Returns how long that took.
    pub(crate) fn wait_until_synced(&mut self, patience: Duration) -> anyhow::Result<Duration> {
        let (begin, count) = (Instant::now(), self.count);
        self.wait(patience, "followers to read everything", |progress| {
            (progress.synced, (progress.synced == count).then(|| begin.elapsed()))
        })
    }

    /// Waits until all have seen this change, made at `begin_ns`. Returns how long the last one took.
    pub(crate) fn wait_for(
        &mut self,
        mark: u16,
        begin_ns: u64,
        patience: Duration,
    ) -> anyhow::Result<Duration> {
        let count = self.count;
        self.wait(patience, "followers to see a change", |progress| {
            let (seen, last) = progress.marks.get(&mark).copied().unwrap_or_default();
            (seen, (seen >= count).then(|| Duration::from_nanos(last.saturating_sub(begin_ns))))
        })
    }

    /// Waits until all followers together have read this number of complete lists.
    pub(crate) fn wait_for_lists(
        &mut self,
        lists: usize,
        patience: Duration,
    ) -> anyhow::Result<()> {
        self.wait(patience, "followers to list", |progress| {
            (progress.lists, (progress.lists >= lists).then_some(Duration::ZERO))
        })
        .map(drop)
    }

    /// Waits until `judge` is content. It says how many followers are there, too.
    fn wait(
        &mut self,
        patience: Duration,
        what: &str,
        judge: impl Fn(&Progress) -> (usize, Option<Duration>),
    ) -> anyhow::Result<Duration> {
        wait::within(patience, what, || {
            // Followers that have ended do not come back.
            let progress = match self.progress() {
                Ok(progress) => progress,
                Err(ended) => return Ok(Err(ended)),
            };
            let (there, took) = judge(&progress);
            let failure = progress.failure.unwrap_or_default();
            let took = took.with_context(|| format!("{there} of {} are. {failure}", self.count))?;
            Ok(Ok(took))
        })?
    }

    /// The CPU time of all.
    pub(crate) fn cpu_time(&self) -> anyhow::Result<Duration> {
        self.processes.iter().map(|process| procfs::cpu_time(process.child.id())).sum()
    }

    /// The memory of all, in bytes.
    pub(crate) fn memory(&self) -> anyhow::Result<u64> {
        self.processes.iter().map(|process| memory(process.child.id())).sum()
    }
}

/// The memory of a process, in bytes.
pub(crate) fn memory(pid: u32) -> anyhow::Result<u64> {
    Ok(Status::of(pid)?.number("VmRSS")? * 1024)
}

impl Process {
    fn start(
        netns: &Namespace,
        kind: Kind,
        kubeconfig: &Path,
        count: usize,
    ) -> anyhow::Result<Self> {
        let mut command = match kind {
            Kind::Agents => {
                let mut command = netns.command(env::current_exe()?);
                command.arg(VERB);
                command
            }
            Kind::KubeProxies => netns.command(Programs::from_env().find("kube-proxy-watches")?),
        };
        let mut child = command
            .arg(kubeconfig)
            .arg(NODE)
            .arg(count.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("followers cannot be started")?;
        let question = child.stdin.take().context("no standard input")?;
        let answers = BufReader::new(child.stdout.take().context("no standard output")?);
        Ok(Self { child, question, answers })
    }

    fn progress(&mut self) -> anyhow::Result<Progress> {
        writeln!(self.question).context("followers have ended")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        serde_json::from_str(&answer).context("followers have ended")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Progress {
    /// Of these followers and of others.
    fn and(mut self, other: Self) -> Self {
        self.synced += other.synced;
        self.lists += other.lists;
        self.removed += other.removed;
        for (mark, (count, last)) in other.marks {
            let known = self.marks.entry(mark).or_default();
            *known = (known.0 + count, known.1.max(last));
        }
        self.failure = self.failure.or(other.failure);
        self
    }
}
