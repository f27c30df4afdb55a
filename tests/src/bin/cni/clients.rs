//! What clients find: by sockets in a pod and on the host, and by packets.

use mcs_tests::deployed::ports;

use crate::prelude::*;

/// The pod whose network the client by packets is in. Other clients are in other pods: one that uses both ways can get the port of
/// the other one's flow.
pub(crate) const BY_PACKETS: &str = "packets";
/// Of both ways of UDP.
const UDP_CONNECTED: &str = "udp-connected";
/// Asked so often, most backends have answered.
const TIMES: u32 = 16;

impl Stage {
    /// The clients by sockets.
    pub(crate) fn by_sockets(&self) -> Vec<Client<'_>> {
        let nodes = self.importer.nodes().into_iter().map(Place::Node);
        let places = [Place::Pod].into_iter().chain(nodes);
        places.map(|place| Client::new(&self.importer, place)).collect()
    }

    /// The client by packets.
    pub(crate) const fn by_packets(&self) -> Client<'_> {
        Client::new(&self.importer, Place::ByPackets(BY_PACKETS))
    }

    /// The clients that are to reach backends.
    pub(crate) fn served(&self) -> Vec<Client<'_>> {
        let translated = self.setting.packets == Packets::Translated;
        self.by_sockets().into_iter().chain(translated.then(|| self.by_packets())).collect()
    }
}

/// Each client reaches every backend, by each protocol and address, and sees the ClusterSetIP. Returns how many exchanges there were.
pub(crate) fn reach_all(stage: &Stage, target: &Target) -> Result<u64> {
    let mut exchanges = 0;
    for client in stage.served() {
        for (protocol, address) in frontends(target) {
            exchanges += reach(stage, &client, protocol, address)?;
        }
    }
    if stage.setting.packets == Packets::Dropped {
        are_dropped(stage, target)?;
    }
    Ok(exchanges)
}

/// TCP, and UDP with and without connect(2), at each address.
fn frontends(target: &Target) -> Vec<(&'static str, SocketAddr)> {
    let connected = target.udp().map(|address| (UDP_CONNECTED, address));
    target.frontends().chain(connected).collect()
}

fn reach(stage: &Stage, client: &Client<'_>, protocol: &str, address: SocketAddr) -> Result<u64> {
    let port = if protocol == "tcp" { ports::TCP } else { ports::UDP };
    let mut missing = BTreeSet::new();
    for member in stage.members() {
        let of_all = member.backends()?.into_iter();
        let is_asked = |it: &SocketAddr| it.port() == port && it.is_ipv4() == address.is_ipv4();
        missing.extend(of_all.filter(is_asked));
    }
    let (all, mut exchanges) = (missing.clone(), 0);
    wait::within(PATIENCE, &format!("every backend of {address}/{protocol} for {client}"), || {
        for answer in client.ask_often(protocol, &address.to_string(), TIMES)? {
            ensure!(answer.shown == address, "{} is shown", answer.shown);
            ensure!(all.contains(&answer.by), "{} answered", answer.by);
            missing.remove(&answer.by);
            exchanges += 1;
        }
        ensure!(missing.is_empty(), "{missing:?} did not answer");
        Ok(exchanges)
    })
}

/// The uplink drops packets that nobody has translated.
fn are_dropped(stage: &Stage, target: &Target) -> Result {
    let (client, frontends) = (stage.by_packets(), frontends(target));
    let before = stage.leaks_prevented()?;
    for (protocol, address) in &frontends {
        let answers = client.ask(protocol, &address.to_string());
        let error = answers.err().with_context(|| format!("{address} answered {client}"))?;
        let error = format!("{error:#}");
        ensure!(!error.contains("refused"), "{address}/{protocol}: {error}");
    }
    let (dropped, least) = (stage.leaks_prevented()? - before, frontends.len() as u64);
    ensure!(dropped >= least, "{dropped} packets of {least} frontends were dropped at uplinks");
    Ok(())
}

/// Each client is refused at once, by each protocol and address.
pub(crate) fn are_refused(stage: &Stage, target: &Target) -> Result {
    for client in stage.by_sockets() {
        for (protocol, address) in frontends(target) {
            client.is_refused_at(protocol, address)?;
        }
    }
    if stage.setting.packets == Packets::Translated {
        // A UDP socket without a peer gets no error of ICMP.
        for (protocol, address) in frontends(target).into_iter().filter(|(way, _)| *way != "udp") {
            stage.by_packets().is_refused_at(protocol, address)?;
        }
    }
    Ok(())
}
