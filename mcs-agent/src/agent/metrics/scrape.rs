//! The answer to `/metrics`, from the report, the kernel's counters and the process.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use prometheus::{Result, TextEncoder};

use super::{OTHER, UNKNOWN, families::Families, process, sync::seconds_since_epoch};
use crate::{
    agent::{
        config::SocketLb,
        figures::ImportFigures,
        health::{Attachments, Check, failings},
        published::Published,
        report::Report,
        source_lost::MANIFESTS,
    },
    dataplane::read_counters,
    devices::Role,
    loader::{Pins, Tampering},
    model::{Capacity, ImportState},
    reconcile::audited_maps,
};

/// The most source clusters with their own series: the first by name. [`OTHER`] counts the backends of all others.
const CLUSTERS: usize = 250;

/// All metrics, as text.
///
/// This takes no lock that the control task waits for. From the kernel it reads only the counters, the socket hooks
/// and the links of each device.
pub(in crate::agent) fn scrape(published: &Published, pins: &Pins) -> Result<String> {
    let mut families = Families::default();
    families.gauges(
        "mcs_build_info",
        "1, with the version of the agent",
        ["version"],
        [([env!("CARGO_PKG_VERSION")], 1.0)],
    )?;
    families.extend(published.metrics.gather());
    families.gauge(
        "mcs_control_silence_seconds",
        "Seconds since the control loop last reported; /livez fails above --liveness-timeout",
        published.life.silence().as_secs_f64(),
    )?;
    if let Some(report) = published.report() {
        realized(&mut families, &report)?;
        source(&mut families, &report)?;
        capacity(&mut families, &report)?;
        flows(&mut families, &report)?;
        address_filter(&mut families, &report)?;
        stale(&mut families, &report)?;
        reach(&mut families, &report)?;
        tampering(&mut families, &report)?;
        attachments(&mut families, &report, pins)?;
        if let Some(figures) = published.figures.get() {
            by_import(&mut families, &report, figures)?;
        }
    }
    if let Ok(counts) = read_counters(&pins.state()) {
        families.counters(
            "mcs_datapath_events_total",
            "Actions of the eBPF programs, by counter of `mcs-agent status`",
            ["event"],
            counts.into_iter().map(|(event, count)| ([event], count)),
        )?;
    }
    process::collect(&mut families)?;
    TextEncoder::new().encode_to_string(families.all())
}

fn attachments(families: &mut Families, report: &Report, pins: &Pins) -> Result<()> {
    let attachments = Attachments::read(pins);
    let failings = failings(report, &attachments);
    families.gauges(
            "mcs_check_ok",
            "1 if the check passes, else 0: the checks of /readyz, and source (changes of the source arrive)",
            ["check"],
            Check::ALL.map(|check| {
                ([check.name()], truth(failings.iter().all(|(failing, _)| *failing != check)))
            }),
        )?;
    if report.socket_lb != SocketLb::Off {
        families.gauges(
            "mcs_hook_attached",
            "1 if the kernel lists the socket hook as attached to its cgroup, else 0",
            ["hook"],
            attachments.hooks.iter().map(|hook| {
                ([hook.name.as_str()], truth(hook.cgroup_id == Some(report.cgroup_id)))
            }),
        )?;
    }
    let mut devices = BTreeMap::new();
    for role in [Role::Pod, Role::Uplink] {
        for state in ["attached", "left_alone", "failing"] {
            devices.insert([role.to_string(), state.to_owned()], 0.0);
        }
    }
    for device in &report.tc.devices {
        let state = if !device.failings(&attachments.links).is_empty() {
            "failing"
        } else if device.left_alone.is_some() {
            "left_alone"
        } else {
            "attached"
        };
        *devices.entry([device.role.to_string(), state.to_owned()]).or_default() += 1.0;
    }
    families.gauges(
        "mcs_devices",
        "Network devices of the packet path, by role and state",
        ["role", "state"],
        devices,
    )
}

fn realized(families: &mut Families, report: &Report) -> Result<()> {
    let imports = |state| report.imports.iter().filter(|import| import.state == state).count();
    families.gauges(
        "mcs_service_imports",
        "ServiceImports, by state",
        ["state"],
        ImportState::ALL.map(|state| ([state.to_string()], figure(imports(state)))),
    )?;
    families.gauge("mcs_vips", "ClusterSetIPs in the maps", figure(report.usage.vips))?;
    families.gauges(
        "mcs_vips_departed",
        "Addresses in the maps that were ClusterSetIPs: handed back, or refused since their import has gone",
        ["state"],
        report.usage.departed().map(|(departure, count)| ([departure.name()], figure(count))),
    )?;
    let ready = report.usage.frontends.saturating_sub(report.refusing);
    families.gauges(
        "mcs_frontends",
        "Frontends: ready, or refusing because there is no usable backend",
        ["state"],
        [(["ready"], figure(ready)), (["refusing"], figure(report.refusing))],
    )?;
    families.gauges(
        "mcs_backends",
        "Backends of all frontends, by source cluster",
        ["source_cluster"],
        by_cluster(&report.backends),
    )?;
    let clusters = report.backends.keys();
    let mut ejected: BTreeMap<_, _> = clusters.map(|cluster| (cluster.clone(), 0)).collect();
    for one in report.ejections.iter().filter(|one| one.is_out()) {
        *ejected.entry(one.cluster.to_string()).or_default() += 1;
    }
    families.gauges(
        "mcs_ejected_backends",
        "Backends that do not answer clients of this node and get no new ones, by source cluster",
        ["source_cluster"],
        by_cluster(&ejected),
    )?;
    let counts = report.rejection_counts.iter();
    let rejections = counts.map(|(reason, count)| ([reason.to_string()], figure(*count)));
    families.gauges(
        "mcs_rejections",
        "Objects, or parts of them, that are rejected now, by reason; `mcs-agent status` names them",
        ["reason"],
        rejections,
    )?;
    families.gauge(
        "mcs_pending",
        "Desired changes that are not in the maps yet; the agent tries again",
        figure(report.pending.len()),
    )
}

fn by_import(families: &mut Families, report: &Report, figures: &ImportFigures) -> Result<()> {
    let counts = figures.programs.counts();
    families.gauges(
        "mcs_import_backends",
        "Backends of all frontends of imports that clients of this node use, by import and source cluster",
        ["import", "source_cluster"],
        figures.backends(&counts).into_iter().map(|(labels, count)| (labels, figure(count))),
    )?;
    families.gauges(
        "mcs_import_ejected_backends",
        "Backends that do not answer clients of this node and get no new ones, by import and source cluster",
        ["import", "source_cluster"],
        figures.ejected(&report.ejections).into_iter().map(|(labels, count)| (labels, figure(count))),
    )?;
    families.counters(
        "mcs_import_failed_connects_total",
        "SYNs to backends with passive health that were reset or not answered, by import and source cluster",
        ["import", "source_cluster"],
        figures.failed(),
    )?;
    families.counters(
        "mcs_import_connections_total",
        "New connections sent to a backend, of sockets and of packets, by import and source cluster",
        ["import", "source_cluster"],
        counts.connections,
    )?;
    families.counters(
        "mcs_import_refusals_total",
        "Sockets and packets to a ClusterSetIP that were refused, by import and reason",
        ["import", "reason"],
        counts.refusals,
    )
}

fn source(families: &mut Families, report: &Report) -> Result<()> {
    let manifests = [(MANIFESTS, report.synced)];
    let kinds = report.source.kinds.iter().map(|kind| (kind.resource.as_str(), kind.synced));
    let resources: Vec<_> =
        if report.source.kinds.is_empty() { manifests.into() } else { kinds.collect() };
    families.gauges(
        "mcs_source_synced",
        "1 if a resource has been read completely since the agent started, else 0",
        ["resource"],
        resources.iter().map(|(resource, synced)| ([*resource], truth(*synced))),
    )?;
    let now = SystemTime::now();
    families.gauges(
        "mcs_source_last_contact_timestamp_seconds",
        "The time up to which the agent knows a resource: now, unless it cannot be read",
        ["resource"],
        resources.iter().map(|(resource, _)| {
            let lost = report.source_lost.get(*resource);
            let until =
                lost.map_or(now, |since| SystemTime::UNIX_EPOCH + Duration::from_secs(*since));
            ([*resource], seconds_since_epoch(until))
        }),
    )?;
    families.gauge(
        "mcs_source_problems",
        "Resources or files that cannot be read now; `mcs-agent status` says why",
        figure(report.source.problems.len()),
    )
}

fn capacity(families: &mut Families, report: &Report) -> Result<()> {
    let usage = report.usage;
    families.gauges(
        "mcs_capacity_used",
        "Entries in the config maps",
        ["resource"],
        [
            (["vips"], figure(usage.vips)),
            (["frontends"], figure(usage.frontends)),
            (["endpoints"], figure(usage.endpoints)),
            (["clusters"], figure(usage.clusters)),
        ],
    )?;
    families.gauge(
        "mcs_kept_backends",
        "Backends that still serve and get no new clients: UDP sockets and flows stay with them",
        f64::from(usage.kept),
    )?;
    families.gauges(
        "mcs_capacity_room",
        "Entries that the config maps have room for now; they grow up to the limit",
        ["resource"],
        by_resource(report.capacity),
    )?;
    families.gauges(
        "mcs_capacity_limit",
        "Entries that the config maps can grow to within --max-memory",
        ["resource"],
        by_resource(report.max_capacity),
    )?;
    families.gauges(
        "mcs_map_bytes",
        "Kernel memory of the maps in bytes, charged to the agent's cgroup",
        ["maps"],
        [(["config"], bytes(report.config_map_bytes)), (["state"], bytes(report.state_map_bytes))],
    )
}

/// Repairs of what other processes changed, the audit, and the verification of the hooks.
fn tampering(families: &mut Families, report: &Report) -> Result<()> {
    let repairs = |tampering| match tampering {
        Tampering::Device => report.tc.repairs,
        tampering => report.repairs.counts.get(&tampering).copied().unwrap_or(0),
    };
    families.counters(
        "mcs_repairs_total",
        "Repairs of pins, hooks, cgroups and devices that another process changed, by kind",
        ["what"],
        Tampering::ALL.map(|tampering| ([tampering.name()], repairs(tampering))),
    )?;
    let audit = &report.audit;
    let repairs = |map: &str| audit.repairs.get(map).copied().unwrap_or(0);
    families.counters(
        "mcs_audit_repairs_total",
        "Repairs of config map entries that another process changed, added or removed",
        ["map"],
        audited_maps().map(|map| ([map], repairs(map))),
    )?;
    families.counters(
        "mcs_audit_passes_total",
        "Complete comparisons of the config maps with what the agent wrote",
        [],
        [([] as [&str; 0], audit.passes)],
    )?;
    if let Some(last) = audit.last {
        for (name, help, value) in [
            ("mcs_audit_pass_entries", "Entries compared in the latest pass", bytes(last.entries)),
            ("mcs_audit_pass_seconds", "Seconds that the latest pass took", last.seconds),
            (
                "mcs_audit_pass_cpu_seconds",
                "Seconds of CPU time that the latest pass took",
                last.cpu_seconds,
            ),
        ] {
            families.gauge(name, help, value)?;
        }
    }
    let Some(attachment) = &report.attachment else { return Ok(()) };
    families.gauges(
        "mcs_attachment_cgroups",
        "Cgroups where the kernel runs every hook (effective), or not every one (without)",
        ["state"],
        [
            (["effective"], figure(attachment.coverage.effective())),
            (["without"], figure(attachment.coverage.cgroups - attachment.coverage.effective())),
        ],
    )?;
    families.gauge(
        "mcs_attachment_witness",
        "Self-test: 1 if the programs refused its connection, 0 if not, -1 if there was no self-test",
        attachment.self_test.map_or(-1.0, truth),
    )
}

fn by_resource(capacity: Capacity) -> [([&'static str; 1], f64); 4] {
    [
        ("vips", capacity.vips),
        ("frontends", capacity.frontends),
        ("endpoints", capacity.endpoints),
        ("clusters", capacity.clusters),
    ]
    .map(|(resource, count)| ([resource], f64::from(count)))
}

fn flows(families: &mut Families, report: &Report) -> Result<()> {
    let Some(usage) = &report.flows else { return Ok(()) };
    let states = usage.states.iter().flat_map(|(protocol, states)| {
        states
            .iter()
            .map(move |(state, count)| ([protocol.as_str(), state.as_str()], figure(*count)))
    });
    families.gauges(
        "mcs_flows_by_state",
        "Flows of the packet path at the latest sweep, by protocol and state",
        ["protocol", "state"],
        states,
    )?;
    for (name, help, value) in [
        ("mcs_flows", "Flows of the packet path at the latest sweep", figure(usage.flows())),
        ("mcs_flows_limit", "Flows that the table has room for: --max-flows", f64::from(usage.max)),
        (
            "mcs_flows_halved",
            "Flows that have lost one of their two entries because the table was full; of UDP flows that for replies",
            figure(usage.halves),
        ),
        (
            "mcs_flow_sweep_duration_seconds",
            "Seconds that the latest sweep took",
            Duration::from_micros(usage.sweep_micros).as_secs_f64(),
        ),
    ] {
        families.gauge(name, help, value)?;
    }
    families.counters(
        "mcs_flows_forgotten_total",
        "Flows removed because their timeout passed without a packet",
        [],
        [([] as [&str; 0], usage.forgotten)],
    )
}

fn address_filter(families: &mut Families, report: &Report) -> Result<()> {
    let density = report.address_filter.density;
    families.gauges(
        "mcs_address_filter_density",
        "Share of addresses for which programs look further: any of them, or as a backend",
        ["kind"],
        [("any", density.set), ("backend", density.backends)]
            .map(|(kind, buckets)| ([kind], density.share(buckets))),
    )
}

fn reach(families: &mut Families, report: &Report) -> Result<()> {
    let ways = || report.reach.iter().flatten();
    families.gauges(
        "mcs_reach_ok",
        "1 if this node reaches pods of the source cluster, 0 if not; absent while unknown",
        ["source_cluster", "family"],
        ways().filter_map(|way| Some(([&*way.cluster, &*way.family], truth(way.reachable?)))),
    )?;
    families.gauges(
        "mcs_reach_endpoints",
        "Pods of the source cluster that this node connected to in the last round, by result (reached, silent)",
        ["source_cluster", "family", "result"],
        ways().flat_map(|way| {
            [("reached", way.reached), ("silent", way.silent)].map(|(result, count)| {
                ([&*way.cluster, &*way.family, result], figure(count))
            })
        }),
    )?;
    families.gauges(
        "mcs_reach_round_trip_seconds",
        "The shortest time in which one of these pods has answered",
        ["source_cluster", "family"],
        ways().filter_map(|way| {
            let time = Duration::from_micros(way.round_trip_micros?);
            Some(([&*way.cluster, &*way.family], time.as_secs_f64()))
        }),
    )
}

fn stale(families: &mut Families, report: &Report) -> Result<()> {
    let of = [("udp", &report.stale_udp), ("tcp", &report.stale_tcp)];
    families.gauges(
        "mcs_stale_sockets_enabled",
        "1 if the protocol's sockets that are connected to removed backends are destroyed, else 0",
        ["protocol"],
        of.map(|(protocol, stale)| ([protocol], truth(stale.is_done()))),
    )?;
    families.counters(
        "mcs_stale_sockets_total",
        "Sockets connected to removed backends: destroyed, gone (closed before, or out of reach) or failed",
        ["protocol", "result"],
        of.into_iter().flat_map(|(protocol, stale)| {
            [
                ([protocol, "destroyed"], stale.destroyed),
                ([protocol, "gone"], stale.gone),
                ([protocol, "failed"], stale.failed),
            ]
        }),
    )?;
    families.gauges(
        "mcs_stale_sockets_pass_duration_seconds",
        "Seconds that the latest pass over the network namespaces took",
        ["protocol"],
        of.map(|(protocol, stale)| {
            ([protocol], Duration::from_micros(stale.pass_micros).as_secs_f64())
        }),
    )
}

fn by_cluster(backends: &BTreeMap<String, usize>) -> Vec<([&str; 1], f64)> {
    let name = |place, cluster| match (place, cluster) {
        (CLUSTERS.., _) => OTHER,
        (_, "") => UNKNOWN,
        (_, name) => name,
    };
    let backends = backends.iter().enumerate();
    backends.map(|(place, (cluster, count))| ([name(place, cluster)], figure(*count))).collect()
}

const fn truth(value: bool) -> f64 {
    if value { 1.0 } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floating point")]
const fn figure(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floating point")]
const fn bytes(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_clusters_beyond_the_limit_are_one() {
        let mut backends: BTreeMap<_, _> =
            (0..CLUSTERS + 3).map(|number| (format!("c{number:04}"), 2)).collect();
        let series = by_cluster(&backends);
        assert_eq!(series.iter().filter(|([name], _)| *name == OTHER).count(), 3);
        let mut families = Families::default();
        families.gauges("backends", "Backends", ["cluster"], series).unwrap();
        let text = TextEncoder::new().encode_to_string(families.all()).unwrap();
        assert!(text.contains("backends{cluster=\"other\"} 6\n"), "{text}");
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), CLUSTERS + 1);

        backends.retain(|name, _| name.as_str() < "c0002");
        backends.insert(String::new(), 1);
        assert_eq!(by_cluster(&backends), [([UNKNOWN], 1.0), (["c0000"], 2.0), (["c0001"], 2.0)]);
    }
}
