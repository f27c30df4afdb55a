//! What those pay who use no ClusterSetIP.

use super::{Case, Sizes};
use crate::prelude::*;

pub(super) const CASE: Case = Case {
    name: mcs_tests::subjects::TAX.name,
    note: "Pods are reached by their own address; direct is a node where nobody does anything.",
    sizes: Sizes::Each,
    contenders: &Contender::TAXING,
    time,
    run: |session| {
        run(session);
        Ok(())
    },
};

/// Datagrams that wait in a socket's buffer, which has room for more.
const WAITING: u32 = 100;

fn time(plan: &Plan, _: u32) -> Duration {
    Duration::from_micros(60) * plan.operations * plan.rounds * 6
}

fn run(session: &mut Session<'_>) {
    let operations = session.plan.operations;
    let unit = Unit::Nanoseconds;
    session.rounds("TCP connect and close", unit, CASE.contenders, |lane: &Lane| {
        let to = pods(ACCEPT);
        lane.as_client(lane.cpus.client, || {
            traffic::time_each(operations, |number| traffic::connect_tcp(to[number % to.len()]))
        })
    });
    for (quantity, connected) in
        [("UDP send, not connected", false), ("UDP send, connected: forwarding alone", true)]
    {
        session.rounds(quantity, unit, CASE.contenders, |lane: &Lane| {
            let to = pods(UDP_SINK)[0];
            lane.as_client(lane.cpus.client, || traffic::send_datagrams(to, connected, operations))
        });
    }
    session.rounds("UDP receive, server", unit, CASE.contenders, |lane: &Lane| {
        receive(lane, &lane.servers, &lane.client, false, operations)
    });
    session.rounds("UDP receive, client", unit, CASE.contenders, |lane: &Lane| {
        receive(lane, &lane.client, &lane.servers, true, operations)
    });
}

/// The median of the nanoseconds that recvfrom(2) takes with a datagram there. A client has sent one
/// to where others come from.
fn receive(
    lane: &Lane,
    here: &Namespace,
    there: &Namespace,
    is_client: bool,
    operations: u32,
) -> Result<f64> {
    let _visit = lane.cgroup.visit()?;
    let bind = |netns: &Namespace, host| -> Result<(UdpSocket, SocketAddrV4)> {
        let socket = netns.run(|| UdpSocket::bind((host, 0)))??;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        match socket.local_addr()? {
            SocketAddr::V4(address) => Ok((socket, address)),
            SocketAddr::V6(address) => anyhow::bail!("{address} is of the other family"),
        }
    };
    let pod = *pods(UDP_SINK)[0].ip();
    let hosts = if is_client { [Lane::CLIENT, pod] } else { [pod, Lane::CLIENT] };
    let (receiver, to) = bind(here, hosts[0])?;
    let (sender, from) = bind(there, hosts[1])?;
    let mut buffer = [0; 64];
    if is_client {
        receiver.send_to(&[7; 32], from)?;
        sender.recv_from(&mut buffer)?;
    }
    let mut times = Vec::new();
    here.run(|| {
        cpu::pin(lane.cpus.client)?;
        for _ in 0..operations.div_ceil(WAITING) {
            for _ in 0..WAITING {
                sender.send_to(&[7; 32], to)?;
            }
            for _ in 0..WAITING {
                let begin = Instant::now();
                receiver.recv_from(&mut buffer)?;
                times.push(begin.elapsed().as_secs_f64() * 1e9);
            }
        }
        anyhow::Ok(())
    })??;
    quantile(&times, 0.5).context("nothing was received")
}
