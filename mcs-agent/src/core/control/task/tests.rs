//! The control task on a kernel in memory.

use std::collections::BTreeMap;

use super::*;
use crate::core::{
    control::{Report, kernel::testing::PinnedMaps, metrics::SyncMetrics, programs::fixture::Site},
    feature::{ChosenFeatures, Definition},
    kernel::loader::{Repair, Tampering},
    model::{
        EventBatch, Memory, Object, ObjectEvent,
        fixture::{import, slice},
    },
    tables::MapContents,
};

const SMALL: Capacity = Capacity { vips: 1, frontends: 1, endpoints: 2, clusters: 1, imports: 1 };

pub(crate) struct World {
    pub(crate) site: Site,
    pub(crate) control: Control,
    published: Arc<Published>,
}

impl World {
    async fn new() -> Self {
        Self::on(Site::new()).await
    }

    /// With this feature alone, and the defaults of its flags.
    pub(crate) async fn of(features: &'static [Definition]) -> Self {
        let mut site = Site::new();
        site.features = ChosenFeatures::with(features, &[]);
        Self::on(site).await
    }

    async fn on(site: Site) -> Self {
        let installed = site.install().await.unwrap();
        let published = Arc::new(Published::new(SyncMetrics::new().unwrap()));
        let agent = crate::core::control::report::this_process();
        let control = Control::new(agent, installed, &site.features, Arc::clone(&published));
        Self { control: control.unwrap(), site, published }
    }

    /// Runs on these batches until a report is as wanted.
    pub(crate) async fn run_until(
        &mut self,
        batches: impl IntoIterator<Item = EventBatch>,
        is_wanted: impl Fn(&Report) -> bool,
    ) -> Arc<Report> {
        let (sender, receiver) = mpsc::channel(64);
        for batch in batches {
            sender.send(batch).await.unwrap();
        }
        let published = Arc::clone(&self.published);
        let wanted = async {
            loop {
                if let Some(report) = published.report().filter(|report| is_wanted(report)) {
                    return report;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let result = tokio::select! {
            result = self.control.run(receiver) => panic!("it ended: {result:?}"),
            report = tokio::time::timeout(Duration::from_mins(1), wanted) => report,
        };
        result.expect("a report")
    }

    /// What the maps hold, which is what the engine takes them to hold.
    pub(crate) fn contents(&self) -> &MapContents {
        let contents = self.control.core.installed.maps.maps.contents();
        assert_eq!(contents, self.control.core.engine.realized().contents());
        contents
    }
}

/// All objects: imports with one VIP and two endpoints each.
pub(crate) fn lists(count: usize) -> EventBatch {
    let web = |number| {
        let name = format!("shop/web-{number}");
        import(&name).ip(&format!("10.0.0.{number}")).port("http", 80)
    };
    let pods = |number| {
        let slice = slice(&format!("shop/web-{number}-a"), &format!("web-{number}"));
        let slice = slice.port("http", 8080).address(&format!("10.1.{number}.1"));
        slice.address(&format!("10.1.{number}.2"))
    };
    let imports = (1..=count).map(|number| Object::Import(web(number))).collect();
    let slices = (1..=count).map(|number| Object::Slice(pods(number))).collect();
    let events = vec![
        ObjectEvent::Relist { kind: Kind::ServiceImport, objects: imports },
        ObjectEvent::Relist { kind: Kind::EndpointSlice, objects: slices },
    ];
    EventBatch { events, ..EventBatch::default() }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_written_and_reported() {
    let mut world = World::new().await;
    let report = world.run_until([], |_| true).await;
    assert_eq!((report.synced, report.imports.len()), (false, 0));
    let report = world.run_until([lists(3)], |report| report.imports.len() == 3).await;
    assert_eq!((report.synced, report.usage.endpoints), (true, 6));
    assert_eq!((&report.common.pending, report.outdated), (&vec![], false));
    assert_eq!(world.contents().frontends.len(), 3);
    // The programs leave the VIPs alone without such a sign.
    assert!(world.site.kernel.take_done().contains(&"live, synced".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn the_run_ends_with_the_batches() {
    let mut world = World::new().await;
    let (sender, receiver) = mpsc::channel(1);
    sender.send(lists(1)).await.unwrap();
    drop(sender);
    world.control.run(receiver).await.unwrap();
    assert_eq!(world.contents().frontends.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_is_reported_and_tried_again() {
    let mut world = World::new().await;
    // More tries than fit between a change and its report.
    (0..3).for_each(|_| world.site.kernel.fail("write"));
    let report = world.run_until([lists(1)], |report| !report.common.pending.is_empty()).await;
    assert!(report.common.pending[0].contains("the test wants it"), "{:?}", report.common.pending);
    assert!(world.published.oldest_change().is_some());
    world.run_until([], |report| report.common.pending.is_empty()).await;
    assert_eq!(world.contents().frontends.len(), 1);
    assert_eq!(world.published.oldest_change(), None);
}

#[tokio::test(start_paused = true)]
async fn programs_of_an_earlier_agent_stay_until_the_source_is_read() {
    let mut site = Site::new();
    let capacity = Capacity { endpoints: 1 << 22, ..Capacity::default() };
    site.kernel.pin(PinnedMaps { capacity, contents: None });
    site.config.max_memory = Memory(1 << 20);
    let mut world = World::on(site).await;
    world.run_until([EventBatch::default()], |report| report.outdated).await;
    assert_eq!(world.site.kernel.attached(), None);
    // Not before the maps have all that is desired.
    (0..3).for_each(|_| world.site.kernel.fail("write"));
    world.run_until([lists(1)], |report| !report.common.pending.is_empty()).await;
    assert_eq!(world.site.kernel.attached(), None);
    world.run_until([], |report| !report.outdated).await;
    assert_eq!(world.site.kernel.attached(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn growth_is_reported_and_one_that_fails_is_too() {
    let site = Site::new();
    site.kernel.pin(PinnedMaps { capacity: SMALL, contents: Some(MapContents::default()) });
    let mut world = World::on(site).await;
    world.site.kernel.fail("load");
    let report = world.run_until([lists(4)], |report| report.not_grown.is_some()).await;
    assert_eq!((report.capacity, report.grown_at), (SMALL, None));
    assert!(!report.common.pending.is_empty() && report.synced);
    let report = world.run_until([], |report| report.common.pending.is_empty()).await;
    assert!(report.grown_at.is_some() && report.not_grown.is_none());
    assert_eq!(report.capacity, world.control.core.installed.capacity());
    assert_eq!(world.contents().frontends.len(), 4);
    assert!(world.site.kernel.attached() > Some(1));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_reported_as_long_as_it_cannot() {
    let mut world = World::new().await;
    let problem = SourceProblem { place: "web.yaml".to_owned(), message: "cut".to_owned() };
    let status = SourceStatus { problems: vec![problem], ..SourceStatus::default() };
    let lost = EventBatch { status: status.into(), ..EventBatch::default() };
    let report = world.run_until([lists(1), lost], |report| report.synced).await;
    assert_eq!(report.source_lost.len(), 1);
    assert_eq!(world.contents().frontends.len(), 1);
    let found = EventBatch::default();
    world.run_until([found], |report| report.source_lost == BTreeMap::new()).await;
}

#[tokio::test(start_paused = true)]
async fn an_address_of_this_node_is_no_vip() {
    let mut world = World::new().await;
    world.run_until([lists(2)], |report| report.synced).await;
    let of_node: IpAddr = "10.0.0.1".parse().unwrap();
    world.control.set_addresses(Ok([of_node].into())).await;
    assert_eq!(world.control.core.engine.desired().rejections.len(), 1);
    assert_eq!(world.contents().frontends.len(), 1);
    world.control.set_addresses(Err(io::ErrorKind::OutOfMemory.into())).await;
    assert_eq!(world.contents().frontends.len(), 1, "what was read before counts");
    world.control.set_addresses(Ok(BTreeSet::new())).await;
    assert_eq!(world.contents().frontends.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn repairs_are_reported() {
    let mut world = World::new().await;
    let what = "connect4 was detached".to_owned();
    world.site.kernel.damage(Repair { tampering: Tampering::Hook, what });
    world.site.kernel.fail("repair pins");
    let report = world.run_until([], |report| !report.repairs.counts.is_empty()).await;
    assert_eq!(report.repairs.counts, [(Tampering::Hook, 1)].into());
    assert_eq!(report.repairs.problems.len(), 1);
    world.run_until([], |report| report.repairs.problems.is_empty()).await;
}
