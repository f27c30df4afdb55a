//! Another process changes entries of the maps, and the audit restores them.

use aya::maps::{Array, Map, MapData};
use mcs_agent::core::{
    kernel::dataplane::KernelMaps,
    tables::{Maps as _, NameMap, Step},
};
use mcs_common::{
    Address, AddressKinds, BUCKETS_PER_WORD, BackendState, FilterBucket, FrontendKey,
};

use crate::prelude::*;

/// The documented limit for a repair.
const PASS: Duration = Duration::from_mins(5);

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("entries of maps are changed, removed and added, under load", is_repaired);
    suite.case("what a pass of the audit costs, under load", costs);
}

/// Changes of entries that no client of the load uses, each of one entry. Those of a group are of different entries.
type Groups = [Vec<Vec<Step>>; 2];

fn tamperings(dump: &MapContents, victim: &FrontendKey) -> Result<Groups> {
    let key = *victim;
    let index = *dump.frontends.get(&key).context("the victim is not in the maps")?;
    let state = dump.states[index as usize];
    let id = dump.slots[state.extent.block as usize];
    let backend = dump.backends[id as usize];
    let mut elsewhere = backend;
    elsewhere.port = 9;
    let mut retired = backend;
    retired.state = BackendState::RETIRED;
    let mut nobodys = state;
    nobodys.key.port = 9;
    let mut cut = state;
    cut.extent.count = 0;
    let foreign = FrontendKey { port: 999, ..key };
    let unused = u32::try_from(dump.backends.len())? + 5;
    let without_name =
        |map, id| vec![Step::WriteName { map, id, record: dump.names[map as usize][0].into() }];
    Ok([
        vec![
            vec![Step::WriteBackend { id, backend: retired }],
            vec![Step::WriteBackend { id: unused, backend }],
            vec![Step::WriteSlots { block: state.extent.block, ids: vec![0] }],
            vec![Step::WriteState { index, state: cut.into() }],
            vec![Step::DeleteFrontend(key)],
            vec![Step::InsertFrontend { key: foreign, index }],
            vec![Step::DeleteVip(key.vip)],
            vec![Step::InsertVip(std::net::Ipv4Addr::new(10, 99, 99, 99).into())],
            without_name(NameMap::Services, state.service),
            without_name(NameMap::Clusters, backend.cluster),
        ],
        vec![
            vec![Step::WriteBackend { id, backend: elsewhere }],
            vec![Step::WriteState { index, state: nobodys.into() }],
            vec![Step::DeleteFrontend(key), Step::InsertFrontend { key, index: index + 1 }],
        ],
    ])
}

fn is_repaired(world: &mut World) -> Result {
    let target = world.target("audited");
    let victim = Service::new("victim", [[10, 90, 0, 200].into()])
        .port(Protocol::Tcp, 80, 80)
        .endpoints("remote", [1, 2].map(|last| [11, 0, 0, last].into()));
    // Small maps, so that a pass of the audit is short.
    let site = world.start("audited", &["--max-memory=64Ki"], &[&target.service])?;
    let _in_cgroup = site.cgroup.visit()?;
    site.apply(&victim)?;
    let pins = Pins::new(site.bpffs.path());
    let mut maps = KernelMaps::open(&pins.config(), &pins.hints())?;
    let dump = maps.read_all()?;
    let (ip, port, _) = *victim.frontends().keys().next().context("no frontend")?;
    let key = FrontendKey::new(ip.into(), port, 6);
    let groups = tamperings(&dump, &key)?;
    let (mut passes, mut expected) = (groups.iter().map(|group| group.concat()).collect(), 13);
    if is_full() {
        // Each by itself as well.
        passes = groups.into_iter().flatten().chain(passes).collect::<Vec<_>>();
        expected *= 2;
    }
    let mut slowest = Duration::ZERO;
    Load::of(&target).during(&world.network.pod, || {
        for steps in &passes {
            for step in steps {
                let before = maps.read_all()?;
                maps.write(step)?;
                ensure!(maps.read_all()? != before, "{step} changed nothing");
            }
            slowest = slowest.max(until_repaired(&maps, &dump)?);
        }
        clear_hint(&pins.hints(), &key.vip)?;
        ensure!(!maps.kinds_of(&key.vip).may_be_vip(), "the hint of the VIP is still there");
        slowest = slowest.max(until_repaired(&maps, &dump)?);
        wait::within(PASS, "the hint of the VIP", || {
            ensure!(maps.kinds_of(&key.vip).may_be_vip(), "programs miss the VIP");
            Ok(())
        })?;
        let index = *dump.frontends.get(&key).context("no frontend")?;
        let pair = key_of(dump.states[index as usize].extent.block / 2);
        let pin = pins.config().join("slots");
        let mut update = Command::new("bpftool");
        update.args(["map", "update", "pinned"]).arg(pin).arg("key").args(pair);
        process::run(update.arg("value").args(["9"; 8]), "")?;
        slowest = slowest.max(until_repaired(&maps, &dump)?);
        Ok(())
    })?;
    let counted = |report: &Value| -> u64 {
        let repairs = report["audit"]["repairs"].as_object();
        repairs.into_iter().flat_map(|maps| maps.values()).filter_map(Value::as_u64).sum()
    };
    // A hint, and bpftool writes two slots.
    expected += 1 + 2;
    wait::until("the repairs to be reported", || {
        let reported = counted(&site.agent.status()?["report"]);
        ensure!(reported == expected, "{reported} repairs instead of {expected}");
        Ok(())
    })?;
    let log = site.agent.log()?;
    let is_repair =
        |line: &str| line.contains("another process changed map") && line.contains("; repaired");
    ensure!(log.lines().any(is_repair), "not logged");
    site.agent.wait_for(&victim)?;
    tell(format!("{expected} entries changed, each restored within {slowest:.1?}"));
    Ok(())
}

/// Clears what hints that an address is a VIP.
fn clear_hint(pin: &Path, vip: &Address) -> Result {
    let map = MapData::from_pin(pin)?;
    let bucket = FilterBucket::of(vip, map.info()?.max_entries() * BUCKETS_PER_WORD);
    let mut words = Array::<_, u64>::try_from(Map::Array(map))?;
    let others = words.get(&bucket.word(), 0)? & !bucket.bits(AddressKinds::VIP);
    Ok(words.set(bucket.word(), others, 0)?)
}

/// The bytes of a key, for bpftool.
fn key_of(index: u32) -> [String; 4] {
    index.to_ne_bytes().map(|byte| byte.to_string())
}

fn until_repaired(maps: &KernelMaps, expected: &MapContents) -> Result<Duration> {
    let start = Instant::now();
    wait::within(PASS, "the audit", || {
        ensure!(maps.read_all()? == *expected, "the maps hold something else still");
        Ok(())
    })?;
    Ok(start.elapsed())
}

fn costs(world: &mut World) -> Result {
    let services = if is_full() { 500 } else { 2 };
    let (target, site, _in_cgroup) = world.stage("costly", &[])?;
    let pass = Load::of(&target).during(&world.network.pod, || {
        (0..services).try_for_each(|one| site.manifests.write(&large(one)))?;
        wait_for(&site, services * 1000)?;
        // One pass that began after that.
        let passes = |status: &Value| status["report"]["audit"]["passes"].as_u64().unwrap_or(0);
        let before = passes(&site.agent.status()?);
        wait::within(2 * PASS, "a pass", || {
            let mut status = site.agent.status()?;
            ensure!(passes(&status) >= before + 2, "{} passes", passes(&status));
            Ok(status["report"]["audit"]["last"].take())
        })
    })?;
    let figure = |name: &str| pass[name].as_f64().with_context(|| format!("no {name} in {pass}"));
    let seconds = figure("seconds")?;
    tell(format!(
        "{} endpoints, {} entries: {seconds:.2} s, {:.0} ms of CPU time",
        services * 1000,
        figure("entries")?,
        figure("cpu_seconds")? * 1e3,
    ));
    ensure!(Duration::from_secs_f64(seconds) < PASS, "a pass took {seconds} s");
    let repairs = &site.agent.status()?["report"]["audit"]["repairs"];
    ensure!(repairs.as_object().is_none_or(serde_json::Map::is_empty), "repaired: {repairs}");
    Ok(())
}
