//! UDP sockets that are connected to a removed backend, and similar ones that must not be affected.

use crate::prelude::*;

/// Sockets that are connected to a VIP, of each family and in each place.
const EACH: usize = 2;
/// Among this number of connects, one reaches each of four backends.
const TRIES: usize = 200;

/// The sockets of clients in several places.
pub(super) struct Clients<'a> {
    places: Vec<Place<'a>>,
}

struct Place<'a> {
    netns: &'a Namespace,
    stale: Vec<Stale>,
    others: Vec<Other>,
}

/// A UDP socket that is connected to the VIP.
struct Stale {
    family: Family,
    socket: UdpSocket,
    backend: SocketAddr,
}

/// A socket that is to notice nothing.
struct Other {
    family: Family,
    kind: Kind,
}

enum Kind {
    /// Connected to the pod itself.
    Direct(UdpSocket, SocketAddr),
    /// Connected to the VIP before, and then to the pod itself.
    DirectAfterwards(UdpSocket, SocketAddr),
    /// Connected to the VIP of a service that keeps the same pod.
    OfOther(UdpSocket, SocketAddr),
    /// Connected to the VIP before, and then to that of the other service.
    OfOtherAfterwards(UdpSocket, SocketAddr),
    /// A connection to the VIP, by TCP.
    Tcp(TcpStream),
    /// Sends to the VIP without being connected.
    Unconnected(UdpSocket),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct(..) => "connected to the pod",
            Self::DirectAfterwards(..) => "connected to the pod, after the VIP",
            Self::OfOther(..) => "connected to another service",
            Self::OfOtherAfterwards(..) => "connected to another service, after the VIP",
            Self::Tcp(_) => "TCP",
            Self::Unconnected(_) => "unconnected",
        })
    }
}

impl<'a> Clients<'a> {
    /// Makes all of them, with an exchange on each. `other` keeps the backends of `target`.
    pub(super) fn begin(netns: &[&'a Namespace], target: &Target, other: &Target) -> Result<Self> {
        let place = |netns: &&'a Namespace| netns.run(|| Place::begin(netns, target, other))?;
        Ok(Self { places: netns.iter().map(place).collect::<Result<_>>()? })
    }

    /// How many sockets will be aborted.
    pub(super) fn aborted(&self) -> usize {
        self.places.iter().map(|place| place.stale.len()).sum()
    }

    /// How many are not.
    pub(super) fn untouched(&self) -> usize {
        self.places.iter().map(|place| place.others.len()).sum()
    }

    /// Waits until each stale socket has got `ECONNABORTED`. Returns how long it took.
    pub(super) fn wait_until_aborted(
        &self,
        patience: Duration,
        failures: &mut Vec<String>,
    ) -> Duration {
        let began = Instant::now();
        let mut waiting: Vec<_> = self.places.iter().flat_map(|place| &place.stale).collect();
        while !waiting.is_empty() && began.elapsed() < patience {
            waiting.retain(|stale| match stale.receive_now() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => true,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => false,
                other => {
                    failures.push(format!("{stale}: {other:?} instead of ECONNABORTED"));
                    false
                }
            });
            thread::sleep(Duration::from_millis(1));
        }
        let took = began.elapsed();
        failures.extend(waiting.iter().map(|stale| format!("{stale}: no ECONNABORTED")));
        took
    }

    /// Connects the stale sockets to the VIP again: one of `left` has to answer.
    pub(super) fn move_on(&self, target: &Target, left: &BTreeSet<SocketAddr>) -> Vec<String> {
        self.in_each(|place| {
            let attempt = |stale: &Stale| {
                stale.move_on(target, left).map_err(|error| format!("{stale}, again: {error:#}"))
            };
            place.stale.iter().filter_map(|stale| attempt(stale).err()).collect()
        })
    }

    /// Uses all other sockets as before. One of `left` answers the unconnected ones.
    pub(super) fn go_on(
        &self,
        target: &Target,
        other: &Target,
        left: &BTreeSet<SocketAddr>,
    ) -> Vec<String> {
        self.in_each(|place| {
            let attempt = |one: &Other| {
                one.go_on(target, other, left)
                    .map_err(|error| format!("{}, {}: {error:#}", one.kind, one.family))
            };
            place.others.iter().filter_map(|one| attempt(one).err()).collect()
        })
    }

    /// Uses the sockets that are connected to the VIP as if nothing had happened.
    pub(super) fn still_work(&self) -> Vec<String> {
        let stale = self.places.iter().flat_map(|place| &place.stale);
        let attempt = |stale: &Stale| {
            expect(&stale.socket, stale.backend).map_err(|error| format!("{stale}: {error:#}"))
        };
        stale.filter_map(|stale| attempt(stale).err()).collect()
    }

    fn in_each(&self, work: impl Fn(&Place<'_>) -> Vec<String> + Sync) -> Vec<String> {
        let run = |place: &Place<'_>| {
            place.netns.run(|| work(place)).unwrap_or_else(|error| vec![error.to_string()])
        };
        self.places.iter().flat_map(run).collect()
    }
}

impl<'a> Place<'a> {
    fn begin(netns: &'a Namespace, target: &Target, other: &Target) -> Result<Self> {
        let mut place = Self { netns, stale: Vec::new(), others: Vec::new() };
        for family in Family::ALL {
            for _ in 0..EACH {
                place.add(family, target, other).with_context(|| family.to_string())?;
            }
        }
        Ok(place)
    }

    fn add(&mut self, family: Family, target: &Target, other: &Target) -> Result {
        let vip = target.udp(family);
        let kept = other.udp(family);
        let (socket, backend) = at_vip(family, vip)?;
        self.stale.push(Stale { family, socket, backend });
        let pod = family.written(backend);
        let direct = udp_connected(family, pod)?;
        expect(&direct, backend)?;

        let (turned, at) = at_vip(family, vip)?;
        connect(&turned, family.written(at))?;
        expect(&turned, at)?;

        let mut tries = (0..TRIES).map(|_| at_vip(family, kept));
        let same = tries.find(|made| made.as_ref().map_or(true, |(_, at)| *at == backend));
        let (of_other, same) = same.context("the other service has not that backend")??;

        let (moved, _) = at_vip(family, vip)?;
        connect(&moved, kept)?;
        let moved_to = ask_connected(&moved)?;

        let stream = connected(family, target.tcp(family))?;
        identity(&stream)?;
        let unconnected = udp(family)?;
        ask(&unconnected, vip)?;
        let kinds = [
            Kind::Direct(direct, backend),
            Kind::DirectAfterwards(turned, at),
            Kind::OfOther(of_other, same),
            Kind::OfOtherAfterwards(moved, moved_to),
            Kind::Tcp(stream),
            Kind::Unconnected(unconnected),
        ];
        self.others.extend(kinds.map(|kind| Other { family, kind }));
        Ok(())
    }
}

impl Stale {
    fn receive_now(&self) -> io::Result<usize> {
        self.socket.set_nonblocking(true)?;
        let received = self.socket.recv(&mut [0; 128]);
        self.socket.set_nonblocking(false)?;
        received
    }

    fn move_on(&self, target: &Target, left: &BTreeSet<SocketAddr>) -> Result {
        connect(&self.socket, target.udp(self.family))?;
        let backend = ask_connected(&self.socket)?;
        ensure!(left.contains(&backend), "{backend} answers");
        Ok(())
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, connected to {}", self.family, self.backend)
    }
}

impl Other {
    fn go_on(&self, target: &Target, other: &Target, left: &BTreeSet<SocketAddr>) -> Result {
        let is_peer = |socket: &UdpSocket, expected: SocketAddr| {
            let peer = socket.peer_addr()?;
            ensure!(peer == expected, "its peer is {peer} instead of {expected}");
            Ok(())
        };
        match &self.kind {
            Kind::Direct(socket, backend) | Kind::DirectAfterwards(socket, backend) => {
                is_peer(socket, self.family.written(*backend))?;
                expect(socket, *backend)
            }
            Kind::OfOther(socket, backend) | Kind::OfOtherAfterwards(socket, backend) => {
                is_peer(socket, other.udp(self.family))?;
                expect(socket, *backend)
            }
            Kind::Tcp(stream) => still_goes(stream, target.tcp(self.family)),
            Kind::Unconnected(socket) => {
                let backend = ask(socket, target.udp(self.family))?.backend;
                ensure!(left.contains(&backend), "{backend} answers");
                Ok(())
            }
        }
    }
}

/// A socket that is connected to a VIP, and its backend.
fn at_vip(family: Family, vip: SocketAddr) -> Result<(UdpSocket, SocketAddr)> {
    let socket = udp_connected(family, vip)?;
    let backend = ask_connected(&socket)?;
    Ok((socket, backend))
}

fn ask_connected(socket: &UdpSocket) -> Result<SocketAddr> {
    socket.send(b"who are you")?;
    receive_nameless(socket)
}

fn expect(socket: &UdpSocket, backend: SocketAddr) -> Result {
    let answered = ask_connected(socket)?;
    ensure!(answered == backend, "{answered} answers instead of {backend}");
    Ok(())
}
