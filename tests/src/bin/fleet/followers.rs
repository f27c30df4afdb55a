//! A process that follows an API server as the agents of many nodes do. For each line of its standard input it prints the progress of
//! the followers.

use std::{
    collections::BTreeMap,
    env, io,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    process::ExitCode,
    rc::Rc,
    sync::{Arc, Mutex},
    thread,
};

use anyhow::Context as _;
use mcs_agent::{
    core::{
        feature::filter,
        kernel::flows::monotonic_ns,
        model::{EndpointAddress, EventBatch, Object, ObjectEvent},
        source::{KubernetesSource, ReadFrom, SourceOptions},
        store::{ChangeKind, ObjectStore},
    },
    features,
};
use serde::{Deserialize, Serialize};
use tokio::{runtime, sync::mpsc, task::LocalSet};

/// The slice whose address says which change has arrived.
pub(crate) const MARKED: &str = "marked";
/// Without optimisation the first poll of a source takes more than the 2 MiB of other threads.
const STACK: usize = 32 << 20;
/// The Node that every agent has.
pub(crate) const NODE: &str = "n1";

/// How far the followers are.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// How many have read everything once.
    pub(crate) synced: usize,
    /// Of each change of the marked slice: how many have seen it, and when the last one did, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) marks: BTreeMap<u16, (usize, u64)>,
    /// Complete lists of ServiceImports or slices that agents have read.
    pub(crate) lists: usize,
    /// Objects that agents hold no longer.
    pub(crate) removed: usize,
    /// Why the latest one that failed did.
    pub(crate) failure: Option<String>,
}

/// What all followers of this process report to.
type Shared = Arc<Mutex<Progress>>;

/// The address that the marked slice has at a change.
pub(crate) fn marked_address(mark: u16) -> Ipv4Addr {
    let [high, low] = mark.to_be_bytes();
    Ipv4Addr::new(10, 160, high, low)
}

/// The change at which the marked slice has this address.
const fn mark_at(address: Ipv4Addr) -> u16 {
    let [.., high, low] = address.octets();
    u16::from_be_bytes([high, low])
}

/// Runs followers until the standard input ends.
pub(crate) fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let mut arguments = env::args().skip(2);
    let mut next = || arguments.next().context("an argument is missing");
    let (kubeconfig, node) = (PathBuf::from(next()?), next()?);
    let count = next()?.parse::<usize>()?;
    let shared = Shared::default();
    let followers = Arc::clone(&shared);
    thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || follow(&kubeconfig, &node, count, &followers))?;
    for line in io::stdin().lines() {
        line?;
        let progress = shared.lock().map_err(|_| anyhow::anyhow!("a follower panicked"))?.clone();
        println!("{}", serde_json::to_string(&progress)?);
    }
    Ok(())
}

/// Follows on one thread, as each agent does.
fn follow(kubeconfig: &Path, node: &str, count: usize, shared: &Shared) {
    let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else { return };
    let local = LocalSet::new();
    let (kubeconfig, node): (Rc<Path>, Rc<str>) = (kubeconfig.into(), node.into());
    for _ in 0..count {
        let (kubeconfig, node) = (Rc::clone(&kubeconfig), Rc::clone(&node));
        let shared = Arc::clone(shared);
        local.spawn_local(async move {
            let ended = Box::pin(agent(&kubeconfig, &node, &shared)).await;
            let failure =
                ended.err().map_or_else(|| "it ended".to_owned(), |error| format!("{error:#}"));
            report(&shared, |progress| progress.failure = Some(failure));
        });
    }
    runtime.block_on(local);
}

/// The source and the store of an agent, as they are shipped.
async fn agent(kubeconfig: &Path, node: &str, shared: &Shared) -> anyhow::Result<()> {
    let from = ReadFrom { kubeconfig: Some(kubeconfig.to_owned()), ..ReadFrom::default() };
    let options = SourceOptions {
        from,
        node: Some(node.to_owned()),
        zone: true,
        cluster_id: true,
        service_ranges: true,
        vip_ranges: true,
        only: None,
    };
    let source = KubernetesSource::new(&options, filter(features::LIST, &options.from)).await?;
    let (sender, mut batches) = mpsc::channel(1);
    let store = async {
        let mut store = ObjectStore::default();
        let mut synced = false;
        while let Some(batch) = batches.recv().await {
            let mark = mark_of(&batch);
            let problem = batch.status.problems.first().map(|problem| problem.message.clone());
            let lists =
                batch.events.iter().filter(|event| matches!(event, ObjectEvent::Relist { .. }));
            let lists = lists.count();
            let changes = store.apply(batch);
            let removed =
                changes.iter().filter(|change| change.kind == ChangeKind::Removed).count();
            store.take_dirty();
            let is_new = !std::mem::replace(&mut synced, store.synced()) && synced;
            report(shared, |progress| {
                progress.synced += usize::from(is_new);
                progress.lists += lists;
                progress.removed += removed;
                if let Some(mark) = mark {
                    progress.seen(mark);
                }
                progress.failure = problem.or_else(|| progress.failure.take());
            });
        }
    };
    tokio::join!(source.run(sender), store);
    Ok(())
}

/// Which change of the marked slice a batch has.
fn mark_of(batch: &EventBatch) -> Option<u16> {
    let slice = |object: &Object| match object {
        Object::Slice(slice) if &*slice.key.name == MARKED => {
            match slice.endpoints.first()?.address {
                EndpointAddress::Ip(IpAddr::V4(ip)) => Some(mark_at(ip)),
                _ => None,
            }
        }
        _ => None,
    };
    batch.events.iter().rev().find_map(|event| match event {
        ObjectEvent::Apply(object) => slice(object),
        ObjectEvent::Relist { objects, .. } => objects.iter().find_map(slice),
        ObjectEvent::Delete(_) | ObjectEvent::Malformed { .. } => None,
    })
}

impl Progress {
    /// One more has seen this change.
    fn seen(&mut self, mark: u16) {
        let (count, last) = self.marks.entry(mark).or_default();
        *count += 1;
        *last = monotonic_ns();
    }
}

/// Changes what this process says.
fn report(shared: &Shared, change: impl FnOnce(&mut Progress)) {
    if let Ok(mut progress) = shared.lock() {
        change(&mut progress);
    }
}
