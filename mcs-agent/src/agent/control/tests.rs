//! The control task on a kernel in memory.

use std::collections::BTreeMap;

use super::*;
use crate::{
    agent::{
        AuditPass, FilterReport, Report, kernel::testing::PinnedMaps, metrics::SyncMetrics,
        programs::fixture::Site,
    },
    loader::{Repair, Tampering},
    model::{
        EventBatch, Memory, Object, ObjectEvent,
        fixture::{import, slice},
    },
    reconcile::{MapContents, Maps as _, Step, compare},
};

const SMALL: Capacity = Capacity { vips: 1, frontends: 1, endpoints: 2, clusters: 1, imports: 1 };

struct World {
    site: Site,
    control: Control,
    published: Arc<Published>,
}

impl World {
    async fn new() -> Self {
        Self::on(Site::new()).await
    }

    async fn on(site: Site) -> Self {
        let installed = site.install().await.unwrap();
        let published = Arc::new(Published::new(SyncMetrics::new().unwrap()));
        let agent = AgentInfo::of_this_process();
        let control = Control::new(agent, installed, Arc::clone(&published));
        Self { control: control.unwrap(), site, published }
    }

    /// Runs on these batches until a report is as wanted.
    async fn run_until(
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
    fn contents(&self) -> &MapContents {
        let contents = self.control.installed.maps.maps.contents();
        assert_eq!(contents, self.control.engine.realized().contents());
        contents
    }
}

/// All objects: imports with one VIP and two endpoints each.
fn lists(count: usize) -> EventBatch {
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
    assert_eq!((&report.pending, report.outdated), (&vec![], false));
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
    let report = world.run_until([lists(1)], |report| !report.pending.is_empty()).await;
    assert!(report.pending[0].contains("the test wants it"), "{:?}", report.pending);
    assert!(world.published.oldest_change().is_some());
    world.run_until([], |report| report.pending.is_empty()).await;
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
    world.run_until([lists(1)], |report| !report.pending.is_empty()).await;
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
    assert!(!report.pending.is_empty() && report.synced);
    let report = world.run_until([], |report| report.pending.is_empty()).await;
    assert!(report.grown_at.is_some() && report.not_grown.is_none());
    assert_eq!(report.capacity, world.control.installed.capacity());
    assert_eq!(world.contents().frontends.len(), 4);
    assert!(world.site.kernel.attached() > Some(1));
}

/// A world with a filter that has been dense before, and the rebuild's steps once a report is as wanted.
async fn rebuild(
    failing: Option<&'static str>,
    is_wanted: impl Fn(&FilterReport) -> bool,
) -> (FilterReport, Vec<String>) {
    let mut world = World::new().await;
    world.site.kernel.fill_filter(6_400);
    if let Some(what) = failing {
        world.site.kernel.fail(what);
    }
    let report = world.run_until([lists(1)], |report| is_wanted(&report.address_filter)).await;
    let mut done = world.site.kernel.take_done();
    done.retain(|what| what.ends_with("rebuild") || what == "list addresses in use");
    (report.address_filter.clone(), done)
}

#[tokio::test(start_paused = true)]
async fn a_filter_of_addresses_that_have_gone_is_rebuilt() {
    let (report, done) = rebuild(None, |report| report.rebuilt_at.is_some()).await;
    assert_eq!((report.density.set, report.problem), (0, None));
    assert_eq!(done, ["begin rebuild", "list addresses in use", "finish rebuild"]);
}

#[tokio::test(start_paused = true)]
async fn a_filter_stays_while_the_addresses_in_use_are_unknown() {
    let failing = Some("list addresses in use");
    let (report, done) = rebuild(failing, |report| report.problem.is_some()).await;
    assert_eq!((report.density.set, report.rebuilt_at), (6_400, None));
    assert_eq!(done, ["begin rebuild", "list addresses in use"]);
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
    assert_eq!(world.control.engine.desired().rejections.len(), 1);
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

#[tokio::test(start_paused = true)]
async fn what_the_audit_finds_is_written_to_the_maps() {
    let mut world = World::new().await;
    world.run_until([lists(2)], |report| report.synced).await;
    let control = &mut world.control;
    let [own, foreign] = [1, 9].map(|last| IpAddr::from([10, 0, 0, last]).into());
    for step in [Step::DeleteVip(own), Step::InsertVip(foreign)] {
        control.installed.maps.maps.write(&step).unwrap();
    }
    let compared = |control: &Control| {
        let (expected, maps) = (control.engine.realized().contents(), control.installed.reader());
        Ok((compare(expected, maps, control.installed.capacity()).unwrap(), AuditPass::default()))
    };
    world.site.kernel.fail("write");
    control.note_audit(compared(control));
    assert_eq!(control.auditor.report.passes, 0, "a repair has failed");
    control.note_audit(compared(control));
    assert_eq!(control.auditor.report.passes, 1);
    assert_eq!(control.auditor.report.repairs, [("vips".to_owned(), 2)].into());
    assert_eq!(world.contents().vips.len(), 2);
}
