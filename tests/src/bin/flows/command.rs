//! `mcs-agent flows` and the line in `status`.

use mcs_agent::core::kernel::flows::monotonic_ns;
use mcs_common::Tuple;

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("`flows` names what each flow belongs to, with the agent down too", lists);
    suite.case("`status` counts the flows", counts);
    suite.case(
        "`services` and `backends` list backends of no source cluster",
        lists_unnamed_clusters,
    );
}

fn service() -> Result<Service> {
    Ok(Service::new("web", ["10.99.0.1".parse()?])
        .port(Protocol::Tcp, 80, 8080)
        .port(Protocol::Udp, 80, 8080)
        .endpoints("east", ["10.77.1.10".parse()?]))
}

fn lists(world: &mut World) -> Result {
    let mut site = Site::start(&world.run, "lists", &world.netns, &[], &[&service()?])?;
    let mut table = open(&Pins::new(site.bpffs.path()).flows())?;
    let now = monotonic_ns();
    let seen = |seconds| now.saturating_sub(seconds * SECOND);
    // The first frontend, port 80 of TCP, has index and id 1.
    add(&mut table, &flow(TCP, 1, seen(5)))?;
    for mut entry in flow(TCP, 2, seen(5)).entries() {
        let port = |tuple: &mut Tuple| match tuple.dst_port {
            8080 => tuple.src_port = 61_000,
            40_000 if tuple.src_port == 8080 => tuple.dst_port = 61_000,
            _ => {}
        };
        port(&mut entry.key);
        port(&mut entry.flow.to);
        table.add(&entry)?;
    }
    // The backend is of another generation, and the entry for replies is gone.
    let former = flow(TCP, 3, seen(5)).entries().next().context("no entry")?;
    table.add(&with_generation(former, 7))?;
    // The frontend's index is another frontend's by now.
    add(&mut table, &flow(UDP, 4, seen(5)))?;

    let flows = |arguments: &[&str]| -> Result<Value> {
        let arguments = [&["flows", "-o", "json"], arguments].concat();
        let mut flows = process::json(&site.agent.command(&arguments)?)?;
        for flow in flows.as_array_mut().context("no list")? {
            let idle = flow["idle_seconds"].take();
            assert!((5..30).contains(&idle.as_u64().context("no number")?), "idle {idle}");
        }
        Ok(flows)
    };
    let known = |client: &str, cluster: Value, state: &str, flags: &[&str]| {
        json!({
            "namespace": "default", "name": "web",
            "ip": "10.99.0.1", "port": 80, "protocol": "TCP",
            "client": client, "backend": "10.77.1.10:8080", "cluster": cluster,
            "state": state, "idle_seconds": null, "flags": flags,
        })
    };
    let expected = json!([
        known("10.0.0.1:40000", "east".into(), "established", &[]),
        known("10.0.0.2:40000", "east".into(), "established", &["port-changed"]),
        known("10.0.0.3:40000", Value::Null, "unreplied", &["backend-gone", "half"]),
    ]);
    assert_eq!(flows(&["default/web"])?, expected);
    site.agent.stop()?;
    let flows = |arguments: &[&str]| -> Result<String> {
        let output = site.agent.command(&[&["flows"], arguments].concat())?;
        Ok(String::from_utf8(if output.status.success() { output.stdout } else { output.stderr })?)
    };
    let all = flows(&[])?;
    let lines: Vec<Vec<&str>> = all.lines().map(|line| line.split_whitespace().collect()).collect();
    let header = ["CLIENT", "VIP", "BACKEND", "CLUSTER", "SERVICE", "STATE", "IDLE", "FLAGS"];
    assert_eq!(lines[0], header, "{all}");
    assert_eq!(
        lines[1][..6],
        ["10.0.0.4:40000", "10.99.0.1:80/UDP", "10.77.1.10:8080", "east", "-", "replied"],
        "{all}"
    );
    assert_eq!(
        lines[2][..6],
        [
            "10.0.0.1:40000",
            "10.99.0.1:80/TCP",
            "10.77.1.10:8080",
            "east",
            "default/web",
            "established"
        ],
        "{all}"
    );
    assert_eq!(lines.len(), 5, "{all}");
    let unknown = flows(&["default/other"])?;
    assert!(
        unknown.contains(
            "default/other has no frontend; whether there is such an import: known as of"
        ),
        "{unknown}"
    );
    Ok(())
}

fn lists_unnamed_clusters(world: &mut World) -> Result {
    let service = Service::new("unnamed", ["10.99.0.2".parse()?])
        .port(Protocol::Tcp, 80, 8080)
        .endpoints("", ["10.77.1.10".parse()?, "10.77.1.11".parse()?]);
    let site = Site::start(&world.run, "unnamed", &world.netns, &[], &[&service])?;
    site.agent.wait_for(&service)?;
    let rows = |arguments: &[&str]| -> Result<Vec<Vec<String>>> {
        let output = String::from_utf8(site.agent.command(arguments)?.stdout)?;
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        Ok(output.lines().skip(1).map(words).collect())
    };
    assert_eq!(
        rows(&["services"])?,
        [["default/unnamed", "10.99.0.2", "80", "TCP", "-", "unknown:2", "ready"]]
    );
    assert_eq!(
        rows(&["backends", "default/unnamed"])?,
        [
            ["10.99.0.2:80/TCP", "10.77.1.10:8080", "unknown", "50.0%", "1", "active"],
            ["10.99.0.2:80/TCP", "10.77.1.11:8080", "unknown", "50.0%", "2", "active"],
        ]
    );
    Ok(())
}

fn with_generation(mut entry: FlowEntry, generation: u32) -> FlowEntry {
    entry.flow.chosen.generation = generation;
    entry
}

fn counts(world: &mut World) -> Result {
    let mut site = Site::start(&world.run, "counts", &world.netns, &[], &[])?;
    let mut table = open(&Pins::new(site.bpffs.path()).flows())?;
    for n in 0..3 {
        add(&mut table, &flow(TCP, n, monotonic_ns()))?;
    }
    add(&mut table, &flow(UDP, 3, 0))?;
    site.agent.stop()?;
    // It finds flows from before, and forgets the flow that has ended.
    site.agent.come_back(&[])?;
    let line = wait::until("the first sweep to be reported", || {
        let status = String::from_utf8(site.agent.command(&["status"])?.stdout)?;
        let line = status.lines().find(|line| line.starts_with("Flows:"));
        Ok(line.context("no line of flows")?.to_owned())
    })?;
    assert_eq!(line, "Flows: 3 of 65536 (TCP: 3 established), 1 forgotten");
    let flows = site.agent.status()?["report"]["flows"].take();
    assert_eq!(flows["entries"], 6);
    assert_eq!(flows["states"], json!({"TCP": {"established": 3}}));
    Ok(())
}
