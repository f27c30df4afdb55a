//! Performance targets of mcs-agent, and whether this run met them.

use super::table::{empty, number};
use crate::{
    cases::{
        cold, exchange, programming,
        programs::{self, Reach},
    },
    prelude::*,
};

#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
    Above(f64),
}

impl Limit {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
            Self::Above(limit) => value > limit,
        }
    }

    fn show(self, unit: &str) -> String {
        let (sign, limit) = match self {
            Self::AtMost(limit) => ("<=", limit),
            Self::AtLeast(limit) => (">=", limit),
            Self::Above(limit) => (">", limit),
        };
        let digits = if limit.fract() == 0.0 { 0 } else { 2 };
        format!("{sign} {limit:.digits$} {unit}").trim_end().to_owned()
    }
}

/// What is looked at.
#[derive(Clone, Copy)]
enum What {
    /// The ratio of medians to another contender's, of a case's quantity.
    Ratio(Contender, &'static str, &'static str),
    /// The median of a case's quantity.
    Median(&'static str, &'static str),
    /// The nanoseconds that the slowest of these programs takes on a miss, beyond a program that does nothing.
    WorstMiss(Reach, &'static [&'static str]),
}

struct Target {
    about: &'static str,
    limit: Limit,
    unit: &'static str,
    contender: Contender,
    /// Who is shown beside it.
    peers: &'static [Contender],
    what: What,
    /// With how many services it is meant; none if that does not matter.
    services: Option<u32>,
}

const SERVICES: Option<u32> = Some(10_000);
const PROXIES: &[Contender] = &[Contender::Nftables, Contender::Iptables];
const NFTABLES: &[Contender] = &[Contender::Nftables, Contender::NftablesNewest];

const fn ratio(
    about: &'static str,
    limit: Limit,
    contender: Contender,
    peers: &'static [Contender],
    base: Contender,
    quantity: (&'static str, &'static str),
) -> Target {
    let what = What::Ratio(base, quantity.0, quantity.1);
    Target { about, limit, unit: "", contender, peers, what, services: SERVICES }
}

const fn cold_start(
    about: &'static str,
    limit: f64,
    unit: &'static str,
    quantity: &'static str,
) -> Target {
    let what = What::Median(cold::CASE.name, quantity);
    let (limit, contender) = (Limit::AtMost(limit), Contender::Sockets);
    Target { about, limit, unit, contender, peers: &[], what, services: None }
}

const fn miss(about: &'static str, limit: f64, reach: Reach) -> Target {
    let what = What::WorstMiss(reach, &["connect", "sendmsg", "recvmsg"]);
    let (limit, contender) = (Limit::AtMost(limit), Contender::Sockets);
    Target { about, limit, unit: "ns", contender, peers: &[], what, services: SERVICES }
}

const CONNECT: (&str, &str) = (connect::CASE.name, connect::TCP);
const CONNECT_UDP: (&str, &str) = (connect::CASE.name, connect::UDP);
const EXCHANGE: (&str, &str) = (exchange::CASE.name, exchange::TCP);
const BULK: (&str, &str) = (exchange::CASE.name, exchange::BULK);
const EXCHANGE_BESIDE: (&str, &str) = (exchange::CASE.name, exchange::TCP_BESIDE_FLOWS);
const BULK_BESIDE: (&str, &str) = (exchange::CASE.name, exchange::BULK_BESIDE_FLOWS);

const TARGETS: [Target; 20] = [
    ratio(
        "TCP connect by VIP, to direct",
        Limit::AtMost(1.02),
        Contender::Sockets,
        PROXIES,
        Contender::Direct,
        CONNECT,
    ),
    ratio(
        "UDP connect by VIP, to direct",
        Limit::AtMost(1.05),
        Contender::Sockets,
        PROXIES,
        Contender::Direct,
        CONNECT_UDP,
    ),
    ratio(
        "TCP connect by VIP, to Cilium's",
        Limit::AtMost(1.0),
        Contender::Sockets,
        &[],
        Contender::Cilium,
        CONNECT,
    ),
    ratio(
        "UDP connect by VIP, to Cilium's",
        Limit::AtMost(1.0),
        Contender::Sockets,
        &[],
        Contender::Cilium,
        CONNECT_UDP,
    ),
    miss("a miss, above an empty program", 10.0, Reach::Miss),
    miss("a miss to a backend, above an empty program", 30.0, Reach::Backend),
    ratio(
        "request/response by sockets, to empty programs",
        Limit::AtLeast(0.99),
        Contender::Sockets,
        NFTABLES,
        Contender::Empty,
        EXCHANGE,
    ),
    ratio(
        "throughput by sockets, to empty programs",
        Limit::AtLeast(0.99),
        Contender::Sockets,
        NFTABLES,
        Contender::Empty,
        BULK,
    ),
    ratio(
        "request/response by packets, to direct",
        Limit::AtLeast(0.96),
        Contender::Packets,
        NFTABLES,
        Contender::Direct,
        EXCHANGE,
    ),
    ratio(
        "throughput by packets, to direct",
        Limit::AtLeast(0.93),
        Contender::Packets,
        NFTABLES,
        Contender::Direct,
        BULK,
    ),
    ratio(
        "request/response without a VIP among flows, to empty programs",
        Limit::AtLeast(0.99),
        Contender::Packets,
        &[],
        Contender::Empty,
        EXCHANGE_BESIDE,
    ),
    ratio(
        "throughput without a VIP among flows, to empty programs",
        Limit::AtLeast(0.98),
        Contender::Packets,
        &[],
        Contender::Empty,
        BULK_BESIDE,
    ),
    ratio(
        "request/response by packets, to nftables",
        Limit::Above(1.0),
        Contender::Packets,
        &[],
        Contender::Nftables,
        EXCHANGE,
    ),
    ratio(
        "throughput by packets, to nftables",
        Limit::Above(1.0),
        Contender::Packets,
        &[],
        Contender::Nftables,
        BULK,
    ),
    Target {
        about: "one change, p99 from watch event to effect",
        limit: Limit::AtMost(1.0),
        unit: "ms",
        contender: Contender::Sockets,
        peers: NFTABLES,
        what: What::Median(programming::CASE.name, programming::FROM_EVENT_P99),
        services: SERVICES,
    },
    Target {
        about: "100 changes per second",
        limit: Limit::AtMost(3.5),
        unit: "% of a core",
        contender: Contender::Sockets,
        peers: NFTABLES,
        what: What::Median(programming::CASE.name, programming::CPU_AT_RATE),
        services: SERVICES,
    },
    cold_start("cold sync of 100,000 endpoints", 250.0, "ms", cold::SYNC),
    cold_start("agent RSS at 100,000 endpoints", 64.0, "MiB", cold::MEMORY),
    cold_start("agent RSS at 3,000,000 endpoints", 813.0, "MiB", cold::LARGE_MEMORY),
    cold_start("maps at 3,000,000 endpoints", 128.0, "MiB", cold::LARGE_MAPS),
];

/// Whether a target was met.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    Met,
    Missed,
    /// Measured, but with fewer services than it is meant for.
    WithFewerServices,
    NotMeasured,
}

impl Verdict {
    const fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "MISSED",
            Self::WithFewerServices => "- (fewer services)",
            Self::NotMeasured => "- (not measured)",
        }
    }
}

/// A target and its result in this run.
#[derive(Debug, Serialize)]
pub(crate) struct TargetResult {
    target: &'static str,
    limit: String,
    services: Option<u32>,
    measured: Option<f64>,
    peers: Vec<(Contender, f64)>,
    verdict: Verdict,
}

/// Evaluates every target, with as many services as were measured.
pub(crate) fn evaluate(figures: &Figures) -> Vec<TargetResult> {
    TARGETS.iter().map(|target| evaluate_one(target, figures)).collect()
}

fn evaluate_one(target: &Target, figures: &Figures) -> TargetResult {
    let sizes = figures.all().iter().filter_map(|figure| figure.key.services);
    let services = target.services.and_then(|wanted| sizes.filter(|size| *size <= wanted).max());
    let measured = value(target, target.contender, figures, services);
    let peers = target.peers.iter();
    let peers = peers.filter_map(|peer| Some((*peer, value(target, *peer, figures, services)?)));
    let verdict = match measured {
        None => Verdict::NotMeasured,
        Some(_) if services != target.services => Verdict::WithFewerServices,
        Some(value) if target.limit.is_met(value) => Verdict::Met,
        Some(_) => Verdict::Missed,
    };
    TargetResult {
        target: target.about,
        limit: target.limit.show(target.unit),
        services,
        measured,
        peers: peers.collect(),
        verdict,
    }
}

fn value(
    target: &Target,
    contender: Contender,
    figures: &Figures,
    services: Option<u32>,
) -> Option<f64> {
    let key = |case, quantity: &str| Key { case, services, quantity: quantity.to_owned() };
    let median = |key: &Key, contender| Some(figures.find(key, contender)?.summary()?.median);
    if let (What::Median(case, quantity), None) = (target.what, target.services) {
        // With whatever number of services.
        let mut all = figures.all().iter().rev();
        let figure = all.find(|figure| {
            let Key { case: its_case, quantity: its_quantity, .. } = &figure.key;
            *its_case == case && its_quantity == quantity && figure.contender == contender
        });
        return Some(figure?.summary()?.median);
    }
    match target.what {
        What::Ratio(base, case, quantity) => {
            Some(figures.ratio(&key(case, quantity), contender, base)?.median)
        }
        What::Median(case, quantity) => median(&key(case, quantity), contender),
        What::WorstMiss(reach, of) => {
            let more = programs::misses(reach, of).map(|(quantity, contender)| {
                let key = key(programs::CASE.name, &quantity);
                Some(median(&key, contender)? - median(&key, Contender::Empty)?)
            });
            let more: Option<Vec<f64>> = more.collect();
            more?.into_iter().max_by(f64::total_cmp)
        }
    }
}

/// A table for a terminal.
pub(crate) fn table(results: &[TargetResult]) -> String {
    let mut table = empty();
    table.set_header(["target", "limit", "measured", "peers", "services", "verdict"]);
    for one in results {
        let peers = one.peers.iter().map(|(peer, value)| format!("{peer} {}", number(*value)));
        table.add_row([
            one.target.to_owned(),
            one.limit.clone(),
            one.measured.map_or_else(|| "-".to_owned(), number),
            peers.collect::<Vec<_>>().join(", "),
            one.services.map(|services| services.to_string()).unwrap_or_default(),
            one.verdict.name().to_owned(),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Outcome;

    fn connects(services: u32, sockets: f64) -> Figures {
        let mut figures = Figures::default();
        for (contender, value) in [(Contender::Direct, 10.0), (Contender::Sockets, sockets)] {
            figures.add_connect(services, contender, Outcome::Rounds(vec![value]));
        }
        figures
    }

    #[test]
    fn a_target_is_met_where_it_is_meant() {
        let cases = [
            (connects(10_000, 10.1), Verdict::Met),
            (connects(10_000, 10.3), Verdict::Missed),
            (connects(1000, 10.1), Verdict::WithFewerServices),
            (Figures::default(), Verdict::NotMeasured),
        ];
        for (figures, expected) in cases {
            let results = evaluate(&figures);
            assert_eq!(results[0].verdict, expected, "{results:?}");
            let others = results[1..].iter().all(|one| one.verdict == Verdict::NotMeasured);
            assert!(others, "{results:?}");
        }
    }

    #[test]
    fn a_limit_belongs_to_what_it_limits() {
        assert!(Limit::AtMost(1.0).is_met(1.0) && !Limit::AtMost(1.0).is_met(1.1));
        assert!(Limit::AtLeast(1.0).is_met(1.0) && !Limit::AtLeast(1.0).is_met(0.9));
        assert!(Limit::Above(1.0).is_met(1.1) && !Limit::Above(1.0).is_met(1.0));
    }
}
