//! The values of metrics follow traffic and changes.

use mcs_agent::core::kernel::loader::capacity_within;
use mcs_tests::procfs::Status;

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("counters of the programs move with traffic", counters);
    suite.case("frontends, backends and capacity", contents);
    suite.case("rejections by reason", rejections);
    suite.case("changes are counted", changes);
    suite.case("what the process takes", process);
    suite.case("every metric is documented, and no other", documented);
}

fn counters(world: &mut World) -> Result {
    let event = |event| format!("mcs_datapath_events_total{{event=\"{event}\"}}");
    let (translated, refused) = (event("connect_translated"), event("refused_no_backend"));
    let before = samples(&world.network.node.netns)?;
    for _ in 0..3 {
        connect(world, WEB)?;
    }
    ensure!(connect(world, EMPTY).is_err(), "somebody answered without a backend");
    let after = samples(&world.network.node.netns)?;
    assert_eq!(after[&translated] - before[&translated], 3.0);
    assert_eq!(after[&refused] - before[&refused], 1.0);
    assert_eq!(
        world.site.agent.counters()?.len(),
        after.keys().filter(|name| name.starts_with("mcs_datapath_events_total")).count()
    );
    Ok(())
}

fn contents(world: &mut World) -> Result {
    let most = capacity_within("256Mi".parse()?);
    let figures = samples(&world.network.node.netns)?;
    for (name, expected) in [
        ("mcs_service_imports{state=\"Ready\"}", 1.0),
        ("mcs_service_imports{state=\"Refusing\"}", 1.0),
        ("mcs_vips", 2.0),
        ("mcs_frontends{state=\"ready\"}", 1.0),
        ("mcs_frontends{state=\"refusing\"}", 1.0),
        ("mcs_backends{source_cluster=\"east\"}", 1.0),
        ("mcs_backends{source_cluster=\"west\"}", 1.0),
        ("mcs_capacity_used{resource=\"endpoints\"}", 2.0),
        ("mcs_capacity_room{resource=\"frontends\"}", 1024.0),
        ("mcs_capacity_room{resource=\"endpoints\"}", 4096.0),
        ("mcs_capacity_limit{resource=\"frontends\"}", f64::from(most.frontends)),
        ("mcs_capacity_limit{resource=\"endpoints\"}", f64::from(most.endpoints)),
        ("mcs_source_synced{resource=\"manifests\"}", 1.0),
        ("mcs_pending", 0.0),
    ] {
        assert_eq!(figures.get(name), Some(&expected), "{name}");
    }
    Ok(())
}

fn rejections(world: &mut World) -> Result {
    let looped = Service::new("looped", ["127.0.0.9".parse()?]).port(Protocol::Tcp, 80, 8080);
    world.site.manifests.write(&looped)?;
    wait_for_sample(world, "mcs_rejections{reason=\"vip_forbidden\"}", 1.0)?;
    world.site.manifests.remove("looped")?;
    wait::until("the rejection to go", || {
        let figures = samples(&world.network.node.netns)?;
        ensure!(!figures.keys().any(|name| name.starts_with("mcs_rejections")), "it is there");
        Ok(())
    })
}

fn changes(world: &mut World) -> Result {
    let imports = "kubeproxy_sync_proxy_rules_service_changes_total";
    let slices = "kubeproxy_sync_proxy_rules_endpoint_changes_total";
    let rounds = "kubeproxy_sync_proxy_rules_duration_seconds_count";
    let queued = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds";
    let written = "kubeproxy_sync_proxy_rules_last_timestamp_seconds";
    let before = samples(&world.network.node.netns)?;
    let more = Service::new("more", ["10.78.0.3".parse()?])
        .port(Protocol::Tcp, 80, 8080)
        .endpoints("east", PODS.map(pod_address));
    world.site.apply(&more)?;
    // The import, and a slice of each family.
    wait_for_sample(world, imports, before[imports] + 1.0)?;
    wait_for_sample(world, slices, before[slices] + 2.0)?;
    let after = samples(&world.network.node.netns)?;
    ensure!(after[rounds] > before[rounds], "{} rounds", after[rounds]);
    ensure!(after[queued] > before[queued], "queued at {}", after[queued]);
    ensure!(after[written] >= after[queued], "written at {}", after[written]);
    assert_eq!(after["kubeproxy_sync_proxy_rules_service_changes_pending"], 0.0);
    assert_eq!(after["kubeproxy_sync_proxy_rules_endpoint_changes_pending"], 0.0);
    world.site.remove(&more)?;
    wait_for_sample(world, imports, before[imports] + 2.0)
}

fn process(world: &mut World) -> Result {
    let figures = samples(&world.network.node.netns)?;
    let pid = world.site.agent.pid();
    let resident = f64::from(u32::try_from(Status::of(pid)?.number("VmRSS")?)?);
    let reported = figures["process_resident_memory_bytes"] / 1024.0;
    // The kernel counts in batches, and not the same ones.
    ensure!((reported / resident - 1.0).abs() < 0.2, "{reported} KiB instead of {resident}");
    let open = fs::read_dir(format!("/proc/{pid}/fd"))?.count();
    let reported = figures["process_open_fds"];
    ensure!(
        (reported - f64::from(u32::try_from(open)?)).abs() < 5.0,
        "{reported} instead of {open}"
    );
    ensure!(figures["process_cpu_seconds_total"] > 0.0, "no CPU time");
    Ok(())
}

fn documented(world: &mut World) -> Result {
    // Those that have no series before there is something to tell.
    world.site.manifests.write(&Service::new("looped", ["127.0.0.9".parse()?]).port(
        Protocol::Tcp,
        80,
        8080,
    ))?;
    wait_for_sample(world, "mcs_rejections{reason=\"vip_forbidden\"}", 1.0)?;
    let text =
        wait::within(Duration::from_mins(1), "a pass of the audit, and the self-test", || {
            let text = scrape(&world.network.node.netns)?;
            ensure!(text.contains("\nmcs_audit_pass_seconds "), "no pass");
            ensure!(text.contains("\nmcs_attachment_witness 1\n"), "no self-test");
            Ok(text)
        })?;
    world.site.manifests.remove("looped")?;
    let typed = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let served: BTreeSet<&str> = typed.filter_map(|line| line.split(' ').next()).collect();
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/metrics.md");
    let document = fs::read_to_string(&document).with_context(|| document.display().to_string())?;
    // The events are values of a label.
    let (document, _) = document.split_once("\n## Events\n").context("no events")?;
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let names: BTreeSet<&str> = rows.map(|name| name.split('{').next().unwrap_or(name)).collect();
    // Only the packet path has flows, and only with traffic. Agents of suites connect to no pods. The case about latency
    // writes slices that name a time. No backend is ejected here.
    let rare = [
        "mcs_flows_by_state",
        "mcs_import_ejected_backends",
        "mcs_import_failed_connects_total",
        "mcs_propagation_duration_seconds",
    ];
    let is_asked = |name: &&&str| !rare.contains(*name) && !name.starts_with("mcs_reach_");
    let absent: Vec<_> = names.difference(&served).filter(is_asked).collect();
    ensure!(absent.is_empty(), "documented, but not served: {absent:?}");
    let more: Vec<_> = served.difference(&names).collect();
    ensure!(more.is_empty(), "served, but not documented: {more:?}");
    Ok(())
}
