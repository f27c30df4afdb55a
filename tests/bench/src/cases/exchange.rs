//! Data on connections that are there.

use super::{Case, Sizes};
use crate::prelude::*;

pub(crate) const CASE: Case = Case {
    name: mcs_tests::subjects::EXCHANGE.name,
    note: "Request and response on one CPU: what counts is the work, not how soon another CPU wakes up. \
           Throughput is the median of five connections. Daemons are stopped, so that flows stay.",
    sizes: Sizes::Each,
    contenders: &Contender::MOST,
    time,
    run: |session| {
        run(session);
        Ok(())
    },
};

type Work = fn(std::net::SocketAddrV4, u32) -> Result<f64>;

pub(crate) const TCP: &str = "TCP request/response";
pub(crate) const BULK: &str = "TCP throughput";
const KINDS: [(&str, Port, Work); 3] = [
    (TCP, ECHO, traffic::exchange_tcp),
    ("UDP request/response, connected", UDP_ECHO, traffic::exchange_connected),
    ("UDP request/response, not connected", UDP_ECHO, traffic::exchange_unconnected),
];

/// The same to a pod's own address, while the client has a flow to the VIP.
pub(crate) const TCP_BESIDE_FLOWS: &str = "TCP request/response, no VIP, flows exist";
pub(crate) const BULK_BESIDE_FLOWS: &str = "TCP throughput, no VIP, flows exist";

fn time(plan: &Plan, _: u32) -> Duration {
    (Duration::from_micros(100) * plan.operations + plan.bulk * 2) * plan.rounds * 7
}

fn run(session: &mut Session<'_>) {
    let (target, operations) = (session.world.target(), session.plan.operations);
    for (quantity, port, work) in KINDS {
        session.rounds(quantity, Unit::PerSecond, CASE.contenders, |lane: &Lane| {
            let to = lane.reach(target.vip, port)[0];
            lane.as_client(lane.cpus.server, || work(to, operations))
        });
    }
    let span = session.plan.bulk;
    session.rounds(BULK, Unit::GigabitsPerSecond, CASE.contenders, |lane: &Lane| {
        let to = lane.reach(target.vip, SINK)[0];
        lane.as_client(lane.cpus.client, || traffic::send_bulk(to, span))
    });
    let begin_flow = |lane: &Lane| {
        let vip = lane.reach(target.vip, ECHO)[0];
        lane.as_client(lane.cpus.client, || traffic::exchange_tcp(vip, 1))
    };
    session.rounds(TCP_BESIDE_FLOWS, Unit::PerSecond, &Contender::OURS, |lane: &Lane| {
        begin_flow(lane)?;
        let to = pods(ECHO)[0];
        lane.as_client(lane.cpus.server, || traffic::exchange_tcp(to, operations))
    });
    session.rounds(BULK_BESIDE_FLOWS, Unit::GigabitsPerSecond, &Contender::OURS, |lane: &Lane| {
        begin_flow(lane)?;
        let to = pods(SINK)[0];
        lane.as_client(lane.cpus.client, || traffic::send_bulk(to, span))
    });
}
