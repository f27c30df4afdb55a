//! Clients by both paths of a service that loses its only endpoint, and of one whose import is deleted.

use mcs_tests::{server::Servers, target::REMOTE};

use super::{ENTERS, count, tcp};
use crate::prelude::*;

/// The pod that goes.
const POD: u8 = 11;
/// How long clients may stay with it.
const KEPT_FOR: Duration = Duration::from_secs(30);
/// Until then nobody has lost anything.
const EARLY: Duration = Duration::from_secs(20);
/// It is over this long after its time.
const LATE: Duration = Duration::from_secs(4);
const INTERVAL: Duration = Duration::from_millis(100);

/// A client that only sends.
pub(super) struct Sender {
    what: String,
    socket: UdpSocket,
    /// The destination of each datagram, unless the socket is connected.
    to: Option<SocketAddr>,
    /// What send(2) says in the end.
    expected: i32,
    /// When it did so.
    ended: Option<Duration>,
}

impl Sender {
    /// A client of the socket path or of the packet path, whose flow the pod has answered.
    pub(super) fn begin(
        family: Family,
        target: &Target,
        sockets: bool,
        is_connected: bool,
    ) -> Result<Self> {
        let vip = target.udp(family);
        let socket = if is_connected { udp_connected(family, vip)? } else { udp(family)? };
        if is_connected {
            socket.send(b"who are you")?;
            receive_nameless(&socket)?;
        } else {
            ask(&socket, vip)?;
        }
        let path = if sockets { "sockets" } else { "packets" };
        let how = if is_connected { "connected" } else { "unconnected" };
        let is_destroyed = sockets && is_connected;
        Ok(Self {
            what: format!("{}, {family}, {path}, {how}", target.service.name()),
            socket,
            to: (!is_connected).then_some(vip),
            expected: if is_destroyed { libc::EDESTADDRREQ } else { libc::ECONNREFUSED },
            ended: None,
        })
    }

    fn send(&self) -> io::Result<usize> {
        match self.to {
            Some(to) => self.socket.send_to(b"a datagram", to),
            None => self.socket.send(b"a datagram"),
        }
    }

    /// Sends once more, and notes when it is over.
    fn go_on(&mut self, since: Duration) -> Result {
        if let Err(error) = self.send() {
            let is_right = error.raw_os_error() == Some(self.expected);
            ensure!(is_right, "{}: {error} after {since:?}", self.what);
            self.ended.get_or_insert(since);
        }
        Ok(())
    }

    /// Which client it is.
    pub(super) fn what(&self) -> &str {
        &self.what
    }

    /// When it was over.
    pub(super) const fn ended(&self) -> Option<Duration> {
        self.ended
    }

    /// Fails unless the pod still answers a connected client.
    pub(super) fn is_answered(&self) -> Result {
        self.send()?;
        receive_nameless(&self.socket).with_context(|| self.what.clone())?;
        Ok(())
    }

    /// A socket that was destroyed says so at each send, and to recv(2) once.
    pub(super) fn last_words(&self) -> Result {
        if self.expected == libc::EDESTADDRREQ {
            for _ in 0..3 {
                let error = self.send().err().and_then(|error| error.raw_os_error());
                ensure!(error == Some(self.expected), "{}: {error:?} again", self.what);
            }
            let error = self.socket.recv(&mut [0; 16]).err().context("received something")?;
            let is_right = error.kind() == io::ErrorKind::ConnectionAborted;
            ensure!(is_right, "{}: {error} instead of ECONNABORTED", self.what);
        }
        Ok(())
    }
}

/// Every client, sending ten times a second from some time after the change until another.
pub(super) fn send_all(senders: &mut [Sender], began: Instant, until: Duration) -> Result {
    while began.elapsed() < until {
        for sender in &mut *senders {
            sender.go_on(began.elapsed())?;
        }
        thread::sleep(INTERVAL);
    }
    Ok(())
}

/// Clients by UDP, and TCP connections with their VIPs.
type Clients = (Vec<Sender>, Vec<(TcpStream, SocketAddr)>);

/// The clients of a service.
fn begin(network: &Network, site: &Site, target: &Target) -> Result<Clients> {
    let (mut senders, mut streams) = (Vec::new(), Vec::new());
    for family in Family::ON_WIRE {
        let (vip, via) = (target.udp(family).ip(), Network::gateway(family));
        network.pod.ip(&format!("route replace {vip} via {via}"))?;
        let by_packets = network.pod.run(|| Sender::begin(family, target, false, true))?;
        senders.push(by_packets?);
        let _in_cgroup = site.cgroup.visit()?;
        for is_connected in [true, false] {
            let begin = || Sender::begin(family, target, true, is_connected);
            senders.push(network.pod.run(begin)??);
        }
        let stream = network.pod.run(|| connected(family, target.tcp(family)))??;
        identity(&stream)?;
        streams.push((stream, target.tcp(family)));
    }
    Ok((senders, streams))
}

/// Takes the place of a pod's server, which is gone.
pub(super) fn sinks(remote: &Namespace, pod: u8) -> Result<Vec<UdpSocket>> {
    // A process that another thread starts holds the socket of the server too, until its execve(2).
    let bind =
        |ip: IpAddr| wait::until("the server to be gone", || Ok(UdpSocket::bind((ip, UDP.1))?));
    let sinks = remote.run(|| REMOTE.both(pod).map(bind))?;
    let sinks = sinks.into_iter().collect::<Result<Vec<_>>>()?;
    sinks.iter().try_for_each(|sink| sink.set_nonblocking(true))?;
    Ok(sinks)
}

/// Takes what has arrived at the pod.
pub(super) fn arrived(sinks: &[UdpSocket]) -> usize {
    let taken = |sink: &UdpSocket| std::iter::from_fn(|| sink.recv(&mut [0; 32]).ok()).count();
    sinks.iter().map(taken).sum()
}

/// A service without endpoints and one that is deleted, and their clients.
pub(crate) struct Bounded {
    network: Network,
    site: Site,
    services: [Target; 2],
    pod: Servers,
    senders: Vec<Sender>,
    streams: Vec<(TcpStream, SocketAddr)>,
}

impl Bounded {
    pub(crate) fn begin(world: &World) -> Result<Self> {
        let network = Network::named(&world.run, "bounded-", &[POD], &[(Server::tcp_echo, TCP.1)])?;
        let services = ["emptied", "deleted"].map(|name| world.target(name).with(&[POD]));
        let [emptied, deleted] = &services;
        let both = [&emptied.service, &deleted.service];
        let flags = ["--tc=on", "--stale-tcp=destroy"];
        let launch = Launch::new(&world.run, "bounded", &network.node.netns).flags(&flags);
        let site = launch.capabilities(&[ENTERS]).knows(&both)?;
        let pod = Servers::start(&network.remote, REMOTE.both(POD), &[(Server::udp, UDP.1)])?;
        let (mut senders, mut streams) = begin(&network, &site, emptied)?;
        let (more, more_streams) = begin(&network, &site, deleted)?;
        // A new datagram of an unconnected socket follows the VIP, which is nobody's any more.
        senders.extend(more.into_iter().filter(|sender| sender.to.is_none()));
        streams.extend(more_streams);
        Ok(Self { network, site, services, pod, senders, streams })
    }

    /// Takes half a minute.
    pub(crate) fn ends(self) -> Result {
        let Self { network, site, services: [emptied, deleted], pod, mut senders, streams } = self;
        // The pod answers no more, and another one may have its address.
        drop(pod);
        let sinks = sinks(&network.remote, POD)?;
        let began = Instant::now();
        site.apply(&emptied.clone().with(&[]).service)?;
        site.remove(&deleted.service)?;

        send_all(&mut senders, began, EARLY)?;
        for sender in &senders {
            ensure!(sender.ended.is_none(), "{} ended after {:?}", sender.what, sender.ended);
        }
        let goes = |(stream, vip): &(TcpStream, SocketAddr)| still_goes(stream, *vip);
        streams.iter().try_for_each(goes).context("a connection that the pod has")?;
        ensure!(arrived(&sinks) > 0, "nothing arrived meanwhile");

        send_all(&mut senders, began, KEPT_FOR + wait::scaled(LATE))?;
        arrived(&sinks);
        send_all(&mut senders, Instant::now(), Duration::from_secs(1))?;
        let more = arrived(&sinks);
        for sender in &senders {
            sender.ended.with_context(|| format!("{} goes on sending to the pod", sender.what))?;
            sender.last_words()?;
        }
        ensure!(more == 0, "{more} datagrams were sent to the pod when it was over");
        for (stream, _) in &streams {
            let how = tcp::end(stream)?;
            ensure!(how == io::ErrorKind::ConnectionAborted, "{how:?} instead of ECONNABORTED");
        }
        let ends = || senders.iter().filter_map(|sender| sender.ended);
        let times = [ends().min(), ends().max()].map(Option::unwrap_or_default);
        tell(format!("{} senders ended after {times:.1?}", senders.len()));
        count(&site.agent, Protocol::Udp, 4)?;
        count(&site.agent, Protocol::Tcp, streams.len())
    }
}
