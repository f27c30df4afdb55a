//! From a change of an object to what clients meet.

use mcs_tests::api_server::Api;

use super::{Case, Sizes};
use crate::{busy::Busy, prelude::*, probe::Change};

pub(crate) const CASE: Case = Case {
    name: mcs_tests::subjects::PROGRAMMING.name,
    note: "A client connects every 50 us until another backend answers (later every 0.5 % of the time it \
           waited); all other daemons are stopped. Between single changes kube-proxy has the second \
           that it rests for after each. The watch is one of this process, which may be told later than the \
           daemon: from there is a lower bound. CPU is of the daemon and the programs it runs, for as long as \
           it has to do with the changes of a span, and in percent of that span. On a busy node a process for each CPU \
           never rests, with all the weight that kubelet gives to others beside a daemon that requests 50m.",
    sizes: Sizes::Each,
    contenders: &Contender::FOLLOWING,
    time,
    run: |session| session.served(run),
};

const RATE: u32 = 100;
/// Changes that have to arrive each second.
const FEWEST_AT_RATE: f64 = 95.0;
/// Between two changes that a client waits for while others come.
const PAUSE: Duration = Duration::from_millis(250);

/// After this time [`FEWEST`] changes are enough.
const LONGEST: Duration = Duration::from_secs(30);
const FEWEST: u32 = 5;
/// Of fewer there is no 99th percentile.
const FEWEST_FOR_P99: usize = 100;

pub(crate) const FROM_EVENT_P99: &str = "one change, watch event to effect, p99";
pub(crate) const CPU_AT_RATE: &str = "100 changes/s, CPU";
const CAME: &str = "100 changes/s, as many came";

/// What is told of changes, and of their 99th percentile: from the API write to effect, and from the watch
/// event.
type Quantities = [(&'static str, &'static str); 2];

const ONE: Quantities = [
    ("one change, API write to effect", "one change, API write to effect, p99"),
    ("one change, watch event to effect", FROM_EVENT_P99),
];
const BUSY: Quantities = [
    (
        "one change on a busy node, API write to effect",
        "one change on a busy node, API write to effect, p99",
    ),
    (
        "one change on a busy node, watch event to effect",
        "one change on a busy node, watch event to effect, p99",
    ),
];
const AT_RATE: Quantities = [
    ("100 changes/s, API write to effect", "100 changes/s, API write to effect, p99"),
    ("100 changes/s, watch event to effect", "100 changes/s, watch event to effect, p99"),
];

fn time(plan: &Plan, services: u32) -> Duration {
    // kube-proxy takes milliseconds for each service; at a rate it is never done.
    let slow = Duration::from_millis(1) * services + Contender::Nftables.rests();
    (slow * plan.changes).min(LONGEST) * 2 + plan.rate_span * 3 + Duration::from_secs(10)
}

fn run(session: &mut Session<'_>) -> Result {
    let mut probe = Probe::create(session.world)?;
    let writer = session.world.member.server.another_client()?;
    for contender in Contender::FOLLOWING.into_iter().filter(|one| one.is_there()) {
        session.progress.detail(format!("one change at a time by {contender}"));
        let changes = one_by_one(session, &mut probe, contender, Node::Calm);
        tell(session, contender, ONE, changes);
        session.progress.detail(format!("one change at a time by {contender} on a busy node"));
        let changes = one_by_one(session, &mut probe, contender, Node::Busy);
        tell(session, contender, BUSY, changes);
        session.progress.detail(format!("{RATE} changes a second for {contender}"));
        match at_a_rate(session, &mut probe, &writer, contender) {
            Ok(Rated { changes, cpu, rate }) => {
                tell(session, contender, AT_RATE, Ok(changes));
                session.add(CPU_AT_RATE, Unit::PercentOfCore, contender, Ok(vec![cpu]));
                session.add(CAME, Unit::PerSecond, contender, Ok(vec![rate]));
            }
            Err(error) => {
                let others = [(CPU_AT_RATE, Unit::PercentOfCore), (CAME, Unit::PerSecond)];
                session.fail(&others, contender, &error);
                tell(session, contender, AT_RATE, Err(error));
            }
        }
    }
    Ok(())
}

fn tell(
    session: &mut Session<'_>,
    contender: Contender,
    quantities: Quantities,
    changes: Result<Vec<Change>>,
) {
    let [from_write, from_event] = quantities;
    let changes = match changes {
        Ok(changes) => changes,
        Err(error) => {
            let all = [from_write.0, from_write.1, from_event.0, from_event.1];
            let all = all.map(|quantity| (quantity, Unit::Milliseconds));
            return session.fail(&all, contender, &error);
        }
    };
    let writes = changes.iter().map(|change| change.from_write.as_secs_f64() * 1000.0);
    let events = changes.iter().map(|change| change.from_event * 1000.0);
    for ((all, p99), times) in
        [(from_write, writes.collect()), (from_event, events.collect::<Vec<_>>())]
    {
        let value = if times.len() < FEWEST_FOR_P99 {
            Err(anyhow!("a p99 takes {FEWEST_FOR_P99} changes, there were {}", times.len()))
        } else {
            quantile(&times, 0.99).context("nothing changed").map(|value| vec![value])
        };
        session.add(all, Unit::Milliseconds, contender, Ok(times));
        session.add(p99, Unit::Milliseconds, contender, value);
    }
}

/// Whether others use up the CPUs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Node {
    Calm,
    Busy,
}

fn one_by_one(
    session: &Session<'_>,
    probe: &mut Probe,
    contender: Contender,
    node: Node,
) -> Result<Vec<Change>> {
    let lane = session.lane(contender)?;
    probe.awake(lane, |probe| {
        let daemon = lane.daemon().filter(|_| node == Node::Busy);
        let _busy = daemon.map(Busy::begin).transpose()?;
        let (begin, mut changes) = (Instant::now(), Vec::new());
        for number in 0..session.plan.changes {
            if number >= FEWEST && begin.elapsed() > LONGEST {
                break;
            }
            changes.push(probe.change(lane)?);
            thread::sleep(contender.rests());
        }
        Ok(changes)
    })
}

/// What came of changes at a rate.
struct Rated {
    changes: Vec<Change>,
    /// Percent of a core, had all been done in the time of the changes.
    cpu: f64,
    /// A second, as the API server took them.
    rate: f64,
}

fn at_a_rate(
    session: &Session<'_>,
    probe: &mut Probe,
    writer: &Api,
    contender: Contender,
) -> Result<Rated> {
    let (lane, span) = (session.lane(contender)?, session.plan.rate_span);
    // The last one is the target.
    let services = session.services.saturating_sub(1).max(1);
    let done = AtomicBool::new(false);
    probe.awake(lane, |probe| {
        let begin = Instant::now();
        let change = || {
            thread::scope(|scope| {
                let writing = scope.spawn(|| {
                    let written = write_at_a_rate(writer, session.world, services, span);
                    done.store(true, Ordering::Relaxed);
                    anyhow::Ok((written?, begin.elapsed().as_secs_f64()))
                });
                let mut changes = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    changes.push(probe.change(lane)?);
                    thread::sleep(PAUSE);
                }
                let writing = writing.join();
                let writing = writing.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                anyhow::Ok((changes, writing?))
            })
        };
        let ((changes, (written, seconds)), cpu) = daemon::cpu_time_for(lane, change)?;
        let (cpu, rate) = (cpu.as_secs_f64() / seconds * 100.0, f64::from(written) / seconds);
        ensure!(rate >= FEWEST_AT_RATE, "{rate:.1} changes a second came, not {RATE}");
        Ok(Rated { changes, cpu, rate })
    })
}

/// Changes an endpoint of one service after the other. Returns how many changes that were.
fn write_at_a_rate(api: &Api, world: &World, services: u32, span: Duration) -> Result<u32> {
    let (begin, mut number) = (Instant::now(), 0);
    while begin.elapsed() < span {
        let service = world.changed(number % services);
        api.replace(&service.slices().swap_remove(0))?;
        number += 1;
        let next = Duration::from_secs(1) / RATE * number;
        thread::sleep(next.saturating_sub(begin.elapsed()));
    }
    Ok(number)
}
