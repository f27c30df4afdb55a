//! New connections.

use super::{Case, Sizes};
use crate::prelude::*;

pub(crate) const CASE: Case = Case {
    name: mcs_tests::subjects::CONNECT.name,
    note: "By the service's VIP; direct goes to the pods in turn. iptables has separate tables (legacy) where \
           they are installed. cilium has its socket programs alone.",
    sizes: Sizes::Each,
    contenders: &Contender::ALL,
    time,
    run: |session| {
        run(session);
        Ok(())
    },
};

type Work = fn(SocketAddrV4) -> Result;

pub(crate) const TCP: &str = "TCP connect and close";
pub(crate) const UDP: &str = "UDP connect";
const KINDS: [(&str, Port, Work); 3] = [
    (TCP, ACCEPT, traffic::connect_tcp),
    (UDP, UDP_ECHO, traffic::connect_udp),
    ("HTTP request", HTTP, traffic::ask_http),
];

fn time(plan: &Plan, _: u32) -> Duration {
    Duration::from_micros(40) * plan.operations * plan.rounds * 15
}

fn run(session: &mut Session<'_>) {
    let (target, operations) = (session.world.target(), session.plan.operations);
    for (quantity, port, work) in KINDS {
        session.rounds(quantity, Unit::Microseconds, CASE.contenders, |lane: &Lane| {
            let to = lane.reach(target.vip, port);
            lane.as_client(lane.cpus.client, || {
                let time = traffic::time_each(operations, |number| work(to[number % to.len()]))?;
                Ok(time / 1000.0)
            })
        });
    }
}
