//! The answer to `/metrics`, from the report, the kernel's counters and the process.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use mcs_kube::reasons::Coded as _;
use prometheus::{Result, TextEncoder};

use super::{
    OTHER, UNKNOWN,
    families::{self, Families},
    sync::seconds_since_epoch,
};
use crate::core::{
    control::{
        config::SocketLb,
        health::{Attachments, Check},
        published::Published,
        report::Report,
    },
    feature::{Definition, failings},
    kernel::{
        dataplane::read_counters,
        devices::Role,
        loader::{Pins, Tampering},
    },
    model::{Capacity, ImportState},
};

/// The most source clusters with their own series: the first by name. [`OTHER`] counts the backends of all others.
const CLUSTERS: usize = 250;

/// All metrics, as text.
///
/// This takes no lock that the control task waits for. From the kernel it reads only the counters, the socket hooks
/// and the links of each device.
pub(in crate::core::control) fn scrape(
    published: &Published,
    features: &[Definition],
    pins: &Pins,
) -> Result<String> {
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
        "Seconds since the control loop last reported, or the thread that follows the source; /livez fails above \
         --liveness-timeout",
        published.silence().as_secs_f64(),
    )?;
    if let Some(report) = published.report() {
        realized(&mut families, &report)?;
        source(&mut families, &report)?;
        capacity(&mut families, &report)?;
        flows(&mut families, &report)?;
        tampering(&mut families, &report)?;
        attachments(&mut families, &report, features, pins)?;
        for feature in features {
            (feature.metrics)(&report, &mut families)?;
        }
        published.collect(&report, &mut families)?;
    }
    if let Ok(counts) = read_counters(&pins.state()) {
        families.counters(
            "mcs_datapath_events_total",
            "Actions of the eBPF programs, by counter of `mcs-agent status`",
            ["event"],
            counts.into_iter().map(|(event, count)| ([event], count)),
        )?;
    }
    families::collect(&mut families)?;
    TextEncoder::new().encode_to_string(families.all())
}

fn attachments(
    families: &mut Families,
    report: &Report,
    features: &[Definition],
    pins: &Pins,
) -> Result<()> {
    let attachments = Attachments::read(pins);
    let failings = failings(features, report, &attachments);
    families.gauges(
            "mcs_check_ok",
            "1 if the check passes, else 0: the checks of /readyz, and source (changes of the source arrive)",
            ["check"],
            Check::ALL.iter().map(|check| {
                ([check.name()], truth(failings.iter().all(|(failing, _)| failing != check)))
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
    let counts = report.common.rejection_counts.iter();
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
        figure(report.common.pending.len()),
    )
}

fn source(families: &mut Families, report: &Report) -> Result<()> {
    // The first report of an agent knows no source yet.
    let whole = Some(report.common.source.whole).filter(|whole| !whole.is_empty());
    let kinds = report.common.source.kinds.iter().map(|kind| (kind.resource.as_str(), kind.synced));
    let resources: Vec<_> = if report.common.source.kinds.is_empty() {
        whole.map(|one| (one, report.synced)).into_iter().collect()
    } else {
        kinds.collect()
    };
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
        figure(report.common.source.problems.len()),
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

/// Repairs of what other processes changed.
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

fn by_cluster(backends: &BTreeMap<String, usize>) -> Vec<([&str; 1], f64)> {
    let name = |place, cluster| match (place, cluster) {
        (CLUSTERS.., _) => OTHER,
        (_, "") => UNKNOWN,
        (_, name) => name,
    };
    let backends = backends.iter().enumerate();
    backends.map(|(place, (cluster, count))| ([name(place, cluster)], figure(*count))).collect()
}

pub(crate) const fn truth(value: bool) -> f64 {
    if value { 1.0 } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floating point")]
pub(crate) const fn figure(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floating point")]
pub(crate) const fn bytes(count: u64) -> f64 {
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
