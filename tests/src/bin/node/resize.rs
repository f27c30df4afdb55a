//! Maps of another size, while there are flows.

use crate::prelude::*;

const BEFORE: &[u8] = &[11, 12, 13];
const AFTER: &[u8] = &[14, 15];
/// Connections of each family.
const CONNECTIONS: usize = 40;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("another --max-flows, with open connections", keeps_connections);
    suite.case("maps grow, with open connections", grows);
}

/// The programs on devices are switched like the others: existing flows continue, and later changes
/// reach the programs.
fn grows(world: &mut World) -> Result {
    let place = world.new_place(&[(Layout::Routed, 1)])?;
    let pod = place.pod(Layout::Routed)?;
    let target = world.fresh("outgrown");
    let before = target.clone().with_remote(Distance::Near, BEFORE);
    let site = Site::start(&world.run, "outgrown", &place.node.netns, FLAGS, &[&before.service])?;
    let connections = pod.netns.run(|| open(&target))??;
    let asked = while_clients_ask(pod, &target, || site.apply(&more_than_there_is_room_for()))?;
    ensure!(site.agent.log()?.contains("moved to larger maps"), "there was room enough");
    for (stream, backend) in &connections {
        still_goes(stream, stream.peer_addr()?)
            .with_context(|| format!("the connection to {backend}"))?;
    }
    site.apply(&target.clone().with_remote(Distance::Near, AFTER).service)?;
    pod.netns.run(|| {
        for family in Family::ON_WIRE {
            let (_, backend) = greeted(family, target.tcp(family))?;
            let expected = backends(Distance::Near, AFTER, family, TCP.1);
            ensure!(expected.contains(&backend), "{backend} answered after the change");
        }
        anyhow::Ok(())
    })??;
    tell(format!("{} connections went on, {asked} datagrams came back", connections.len()));
    Ok(())
}

fn more_than_there_is_room_for() -> Service {
    let ips = (0..5000_u16).map(|n| {
        let [high, low] = n.to_be_bytes();
        IpAddr::from([11, 0, high, low])
    });
    Service::new("many", [IpAddr::from([10, 90, 0, 1])])
        .port(Protocol::Tcp, 80, 80)
        .endpoints("remote", ips)
}

/// The set has changed since the connections were made: without their entries in the flow table
/// they would go elsewhere.
fn keeps_connections(world: &mut World) -> Result {
    let place = world.new_place(&[(Layout::Routed, 1)])?;
    let pod = place.pod(Layout::Routed)?;
    let target = world.fresh("kept");
    let netns = &place.node.netns;
    let before = target.clone().with_remote(Distance::Near, BEFORE);
    let flags = |max_flows| [FLAGS, &["--max-flows", max_flows]].concat();
    let mut site = Site::start(&world.run, "resized", netns, &flags("1024"), &[&before.service])?;

    let connections = pod.netns.run(|| open(&target))??;
    let after = target.clone().with_remote(Distance::Near, AFTER);
    site.apply(&after.service)?;
    for max_flows in ["4096", "256", "1024"] {
        site.agent.stop()?;
        let asked = while_clients_ask(pod, &target, || site.agent.come_back(&flags(max_flows)))
            .with_context(|| format!("--max-flows {max_flows}"))?;
        for (stream, backend) in &connections {
            still_goes(stream, stream.peer_addr()?)
                .with_context(|| format!("--max-flows {max_flows}, {backend}"))?;
        }
        tell(format!(
            "--max-flows {max_flows}: {} connections went on, {asked} datagrams came back meanwhile",
            connections.len()
        ));
    }
    listed(&site, &target, &connections)
}

/// Opens connections.
fn open(target: &Target) -> Result<Vec<(TcpStream, SocketAddr)>> {
    let mut connections = Vec::new();
    for family in Family::ON_WIRE {
        let expected = backends(Distance::Near, BEFORE, family, TCP.1);
        for _ in 0..CONNECTIONS {
            let (stream, backend) = greeted(family, target.tcp(family))?;
            ensure!(expected.contains(&backend), "{backend} answered");
            connections.push((stream, backend));
        }
    }
    Ok(connections)
}

/// Does `work`, while UDP clients ask and are answered. Returns how often.
fn while_clients_ask(pod: &Pod, target: &Target, work: impl FnOnce() -> Result) -> Result<u32> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients = scope.spawn(|| {
            pod.netns.run(|| {
                // Few, so that their flows leave room for the connections.
                let sockets = [Family::V4, Family::V6, Family::V4, Family::V6]
                    .map(|family| client::udp(family).map(|socket| (family, socket)));
                let sockets: Vec<_> = sockets.into_iter().collect::<Result<_, _>>()?;
                let mut asked = 0;
                while !done.load(Ordering::Relaxed) {
                    for (family, socket) in &sockets {
                        let vip = target.udp(*family);
                        // An answer that is on its way while programs are switched may be lost.
                        ask(socket, vip).or_else(|_| ask(socket, vip))?;
                        asked += 1;
                    }
                }
                anyhow::Ok(asked)
            })
        });
        let worked = work();
        done.store(true, Ordering::Relaxed);
        let asked = clients.join().map_err(|_| anyhow::anyhow!("the clients panicked"))???;
        worked?;
        Ok(asked)
    })
}

/// `mcs-agent flows` knows the connections.
fn listed(site: &Site, target: &Target, connections: &[(TcpStream, SocketAddr)]) -> Result {
    let name = format!("default/{}", target.service.name());
    let flows = process::json_list(&site.agent.command(&["flows", &name, "-o", "json"])?)?;
    let text = |flow: &Value, field: &str| flow[field].as_str().map(str::to_owned);
    let found: BTreeSet<_> = flows
        .iter()
        .filter(|flow| flow["protocol"] == "TCP")
        .map(|flow| {
            ensure!(flow["state"] == "established", "{flow}");
            ensure!(flow["flags"] == serde_json::json!(["backend-gone"]), "{flow}");
            Ok((text(flow, "client"), text(flow, "backend")))
        })
        .collect::<Result<_>>()?;
    let expected = connections.iter().map(|(stream, backend)| {
        Ok((Some(stream.local_addr()?.to_string()), Some(backend.to_string())))
    });
    ensure!(found == expected.collect::<Result<_>>()?, "it lists {found:?}");
    Ok(())
}
