//! The table of connected sockets: random histories of sockets against a model, with two slots and with all; more
//! sockets than slots; sockets that take a slot at the same instant; and what is left when they are closed.

#![expect(unsafe_code, reason = "unshare(2)")]

mod lost;

use std::sync::Barrier;

use anyhow::anyhow;
use aya::maps::Array;
use mcs_agent::core::kernel::{
    dataplane::{Run, read_run_record, write_run_record},
    loader::SOCKET_SLOT_BITS,
};
use mcs_common::maps;
use mcs_tests::bpf::is_kernel;
use rustix::{
    net::sockopt::set_socket_reuseaddr,
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{UnshareFlags, unshare_unsafe},
};

use crate::prelude::*;

/// How large the table of connected sockets is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slots {
    Two,
    All,
}

/// A pod that is a backend of no service here.
const STRANGER: u8 = PODS[5];
/// How long sockets contend for slots.
const CONTENTION: Duration = Duration::from_secs(1);
/// Sockets of one thread.
const EACH: usize = 10_000;
/// What happens to a socket before it is closed, at most.
const LONGEST: usize = 8;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("random histories of sockets, with two slots", |world| histories(world, Slots::Two));
    suite.case("random histories of sockets, with all slots", |world| histories(world, Slots::All));
    suite.case("as many live sockets as slots, or more", lives);
    suite.case("sockets that take the same two slots at the same time", contend);
    suite.case("a socket that is asked for its peer while it connects", is_asked_meanwhile);
    suite.case("the agent frees the slots that MPTCP leaves", lost::frees);
    suite.case(
        "a TCP socket that goes elsewhere leaves a slot, which nobody misses for long",
        lost::goes_elsewhere,
    );
    suite.case("slots that nobody kept are made anew", begins_anew);
}

/// What can happen to a socket.
const NAMES: [&str; 12] = [
    "VIP",
    "VIP",
    "VIP",
    "VIP",
    "pod",
    "pod",
    "refused",
    "no route",
    "disconnected",
    "exchange",
    "no server",
    "stranger",
];

/// A socket, and what it should show.
struct Subject {
    family: Family,
    socket: Kind,
    /// Its peer, as the application knows it.
    peer: Option<SocketAddr>,
    /// What has happened to it.
    past: Vec<&'static str>,
    /// What is still to happen to it.
    steps: usize,
    /// Whether the kernel may lose what it sends. A UDP socket stays connected when its next connect finds no
    /// route, but only the first datagram after that gets a reply (seen on 6.18 without any program, IPv4).
    may_lose: bool,
}

enum Kind {
    Udp(UdpSocket),
    Tcp(TcpStream),
}

/// The destinations.
struct Targets<'a> {
    /// Two VIPs with the same backends.
    vips: [&'a Target; 2],
    /// A VIP without backends.
    empty: &'a Target,
    /// A VIP whose backend no route leads to.
    lost: &'a Target,
}

impl Subject {
    fn new(random: &mut fastrand::Rng) -> io::Result<Self> {
        let family = Family::ALL[random.usize(..Family::ALL.len())];
        let is_udp = random.u8(..4) > 0;
        let socket = if is_udp { Kind::Udp(udp(family)?) } else { Kind::Tcp(tcp(family)?) };
        Ok(Self {
            family,
            socket,
            peer: None,
            past: Vec::new(),
            steps: random.usize(1..=LONGEST),
            may_lose: false,
        })
    }

    fn connect(&self, to: SocketAddr) -> io::Result<()> {
        match &self.socket {
            Kind::Udp(socket) => connect(socket, to),
            Kind::Tcp(socket) => connect(socket, to),
        }
    }

    /// A step that the model knows the result of.
    fn step(&mut self, targets: &Targets<'_>, random: &mut fastrand::Rng) -> Result {
        self.steps -= 1;
        let step = random.usize(..NAMES.len());
        self.past.push(NAMES[step]);
        match step {
            0..4 => {
                let target = targets.vips[random.usize(..2)];
                self.succeed(if self.is_udp() {
                    target.udp(self.family)
                } else {
                    target.tcp(self.family)
                })
            }
            4..6 => {
                let port = if self.is_udp() { UDP.1 } else { TCP.1 };
                let pod = PODS[random.usize(..World::WEB.len())];
                self.succeed(self.family.written(backend(pod, self.family, port)))
            }
            6 => self.fail(targets.empty),
            7 => {
                self.may_lose |= self.family != Family::V6;
                self.fail(targets.lost)
            }
            8 => self.disconnect(),
            9 => self.exchange(),
            // The connect of TCP fails after the hook. That of UDP does not fail.
            10 if self.is_udp() => Ok(()),
            10 => self.fail_at(targets.vips[0].at(self.family, DEAF.0)),
            _ if self.is_udp() => {
                self.succeed(self.family.written(backend(STRANGER, self.family, UDP.1)))
            }
            // The agent frees the slot of a TCP socket that was disconnected from its VIP.
            _ => Ok(()),
        }
    }

    const fn is_udp(&self) -> bool {
        matches!(self.socket, Kind::Udp(_))
    }

    /// TCP connects again after a disconnect only.
    fn succeed(&mut self, to: SocketAddr) -> Result {
        if !self.is_udp() && self.peer.is_some() {
            self.disconnect()?;
        }
        self.connect(to).with_context(|| format!("to {to}"))?;
        self.peer = Some(to);
        self.may_lose = false;
        Ok(())
    }

    fn fail(&self, target: &Target) -> Result {
        let port = if self.is_udp() { UDP.0 } else { TCP.0 };
        self.fail_at(target.at(self.family, port))
    }

    fn fail_at(&self, to: SocketAddr) -> Result {
        let is_connected = !self.is_udp() && self.peer.is_some();
        ensure!(is_connected || self.connect(to).is_err(), "a connect did not fail");
        Ok(())
    }

    fn disconnect(&mut self) -> Result {
        match &self.socket {
            Kind::Udp(socket) => disconnect(socket)?,
            Kind::Tcp(socket) => disconnect(socket)?,
        }
        self.peer = None;
        Ok(())
    }

    /// A reply shows the peer as its source.
    fn exchange(&mut self) -> Result {
        if let (Kind::Udp(socket), Some(peer), false) = (&self.socket, self.peer, self.may_lose) {
            socket.send(b"who are you")?;
            let source = receive(socket)?.source;
            ensure!(source == peer, "a reply of {peer} shows {source}");
        }
        Ok(())
    }

    /// Whether getpeername(2) shows the address that the application connected to.
    fn check(&self) -> Result {
        let shown = match &self.socket {
            Kind::Udp(socket) => socket.peer_addr(),
            Kind::Tcp(socket) => socket.peer_addr(),
        };
        match (shown, self.peer) {
            (Ok(shown), Some(peer)) if shown == peer => Ok(()),
            (Err(error), None) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            (shown, peer) => anyhow::bail!("{shown:?} instead of {peer:?}"),
        }
    }
}

impl Slots {
    fn start(self, world: &World, role: &str, services: &[&Service]) -> Result<Site> {
        match self {
            Self::Two => world.start_with_two_slots(role, &[], services),
            Self::All => world.start(role, &[], services),
        }
    }

    /// How many sockets live at the same time: with two slots, some find one and others none.
    const fn live(self) -> usize {
        match self {
            Self::Two => 5,
            Self::All => 150,
        }
    }
}

fn histories(world: &mut World, slots: Slots) -> Result {
    let vips = ["first", "second"].map(|name| world.fresh(name).with(World::WEB));
    let empty = world.fresh("none").with(&[]);
    let mut lost = world.fresh("lost");
    let (v4, v6) = nowhere(1);
    lost.service = lost.service.endpoints("nowhere", [v4.into(), v6.into()]);
    let services = [&vips[0].service, &vips[1].service, &empty.service, &lost.service];
    let site = slots.start(world, "slots", &services)?;
    let _in_cgroup = site.cgroup.visit()?;
    let targets = Targets { vips: vips.each_ref(), empty: &empty, lost: &lost };
    let count = if is_full() { 100_000 } else { 2_000 };
    let mut random = fastrand::Rng::with_seed(18);
    let steps = world.at(Place::Pod, || {
        let mut live: Vec<Subject> = Vec::new();
        let (mut begun, mut steps) = (0, 0);
        while begun < count || !live.is_empty() {
            if begun < count && live.len() < slots.live() {
                live.push(Subject::new(&mut random)?);
                begun += 1;
                continue;
            }
            let nth = random.usize(..live.len());
            let subject = &mut live[nth];
            let result = subject.step(&targets, &mut random).and_then(|()| subject.check());
            result.with_context(|| format!("{}: {}", subject.family, subject.past.join(", ")))?;
            steps += 1;
            if subject.steps == 0 {
                live.swap_remove(nth);
            }
            // Another one, which nothing has happened to.
            if let Some(other) = live.get(random.usize(..slots.live())) {
                other.check()?;
            }
        }
        Ok(steps)
    })?;
    let counters = site.agent.counters()?;
    let to_storage = counters["slot_unavailable"];
    ensure!(slots == Slots::All || to_storage > 0, "no connection went to storage");
    until_free(&site)?;
    let connects = counters["connect_translated"];
    tell(format!("{count} sockets, {steps} steps: 0 lies; {to_storage} of {connects} in storage"));
    Ok(())
}

fn lives(world: &mut World) -> Result {
    let count = if is_full() { 200_000_usize } else { 5_000 };
    let target = world.fresh("crowded").with(World::WEB);
    let slots = if is_full() { Slots::All } else { Slots::Two };
    let site = slots.start(world, "crowded", &[&target.service])?;
    let _in_cgroup = site.cgroup.visit()?;
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
    let vip = target.udp(Family::V4);
    let connected = Barrier::new(count.div_ceil(EACH));
    let brief: u32 = world.at(Place::Pod, || {
        thread::scope(|scope| {
            let counts = (0..count).step_by(EACH).map(|first| EACH.min(count - first));
            let hold = |count| {
                let connected = &connected;
                scope.spawn(move || hold(count, vip, connected))
            };
            let holders: Vec<_> = counts.map(hold).collect();
            holders
                .into_iter()
                .map(|holder| holder.join().map_err(|_| anyhow!("a thread panicked"))?)
                .sum()
        })
    })?;
    let to_storage = site.agent.counters()?["slot_unavailable"];
    let least = count.saturating_sub(if is_full() { 1 << SOCKET_SLOT_BITS } else { 2 }) as u64;
    ensure!(
        to_storage >= least,
        "{to_storage} of {count} in storage, and at least {least} should be"
    );
    until_free(&site)?;
    tell(format!(
        "{count} live sockets, {brief} others that came and went in {CONTENTION:?}: 0 lies; {to_storage} in storage"
    ));
    Ok(())
}

fn contend(world: &mut World) -> Result {
    let vips = ["left", "right"].map(|name| world.fresh(name).with(World::WEB));
    let services = [&vips[0].service, &vips[1].service];
    let site = world.start_with_two_slots("contended", &[], &services)?;
    let _in_cgroup = site.cgroup.visit()?;
    let vips = vips.map(|vip| vip.udp(Family::V4));
    // Every VIP has the same backends. A socket that takes the slot of another one shows another VIP, or a backend.
    let connect_in_turn = || {
        let end = Instant::now() + CONTENTION;
        let mut connects = 0_u32;
        while Instant::now() < end {
            let socket = udp(Family::V4)?;
            for vip in vips.iter().cycle().take(3) {
                connect(&socket, *vip)?;
                let shown = socket.peer_addr()?;
                ensure!(shown == *vip, "{shown} instead of {vip} after {connects} connects");
                connects += 1;
            }
        }
        Ok(connects)
    };
    let connects: u32 = world.at(Place::Pod, || {
        thread::scope(|scope| {
            let threads = [(); 16].map(|()| scope.spawn(connect_in_turn));
            threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
                .sum()
        })
    })?;
    let to_storage = site.agent.counters()?["slot_unavailable"];
    until_free(&site)?;
    tell(format!("{connects} connects: 0 lies; {to_storage} in storage"));
    Ok(())
}

/// Whether getpeername(2) holds the socket's lock (`inet_getname`, since Linux 5.16). Without it, a peer that the kernel has
/// read can be two connects old when the program gets it.
fn locks_for_names() -> bool {
    is_kernel(5, 16)
}

/// Every answer is an address that the application has connected to.
fn is_asked_meanwhile(world: &mut World) -> Result {
    if !locks_for_names() {
        return Err(skip("getpeername(2) takes no lock before Linux 5.16"));
    }
    let vips = ["asked-1", "asked-2"].map(|name| world.fresh(name).with(World::WEB));
    let services = [&vips[0].service, &vips[1].service];
    let site = world.start("asked", &[], &services)?;
    let _in_cgroup = site.cgroup.visit()?;
    for family in Family::ALL {
        let vips = vips.each_ref().map(|vip| vip.udp(family));
        let asked = world.at(Place::Pod, || {
            let socket = udp(family)?;
            connect(&socket, vips[0])?;
            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                let asks = scope.spawn(|| {
                    let mut asked = 0_u32;
                    while !is_over.load(Ordering::Relaxed) {
                        let shown = socket.peer_addr()?;
                        ensure!(vips.contains(&shown), "{shown} after {asked} questions");
                        asked += 1;
                    }
                    Ok(asked)
                });
                let end = Instant::now() + CONTENTION;
                let mut turns = vips.iter().cycle();
                let connected =
                    std::iter::from_fn(|| (Instant::now() < end).then(|| turns.next())?)
                        .try_for_each(|vip| connect(&socket, *vip));
                is_over.store(true, Ordering::Relaxed);
                connected?;
                asks.join().map_err(|_| anyhow!("a thread panicked"))?
            })
        });
        tell(format!("{family}: {} answers, 0 lies", asked?));
    }
    until_free(&site)
}

/// The agent makes both maps anew if the agent before it did not keep them, or if one of them is missing.
fn begins_anew(world: &mut World) -> Result {
    let target = world.fresh("anew").with(&PODS[..1]);
    let mut site = world.start("anew", &[], &[&target.service])?;
    let _in_cgroup = site.cgroup.visit()?;
    let pins = Pins::new(site.bpffs.path());
    let vip = target.udp(Family::V4);
    let socket = world.at(Place::Pod, || Ok(udp(Family::V4)?))?;
    let connect_again = || {
        world.at(Place::Pod, || Ok(connect(&socket, vip)?))?;
        let shown = socket.peer_addr()?;
        ensure!(shown == vip, "{shown} instead of {vip}");
        Ok(())
    };
    let mut restart = |flags: &[&str]| site.agent.replace(flags);
    let shows_backend = |when: &str| {
        let shown = socket.peer_addr()?;
        ensure!(shown == backend(PODS[0], Family::V4, UDP.1), "{when}: {shown}");
        ensure_free(&site.bpffs).context(when.to_owned())
    };
    connect_again()?;
    restart(&[])?;
    ensure!(socket.peer_addr()? == vip, "the slot is lost in a restart");

    let run = read_run_record(&pins.run())?;
    ensure!(run.keeps_slots, "the agent does not say that it keeps them");
    write_run_record(&pins.run(), &Run { keeps_slots: false, ..run })?;
    restart(&[])?;
    shows_backend("after a version that knows no slots")?;

    connect_again()?;
    fs::remove_file(pins.state().join(maps::SOCKET_CONNS))?;
    restart(&[])?;
    shows_backend("without one of the maps")?;

    connect_again()?;
    restart(&["--socket-lb=off"])?;
    restart(&[])?;
    shows_backend("after --socket-lb=off")?;
    connect_again()
}

/// Connects sockets in a table of files of its own, since the limit is one of a table. Checks what they show once
/// all threads have theirs. Returns how many others came and went beside the first half.
fn hold(count: usize, vip: SocketAddr, connected: &Barrier) -> Result<u32> {
    // SAFETY: the thread has opened no file yet, and it passes none on.
    unsafe { unshare_unsafe(UnshareFlags::FILES) }?;
    let shows_vip = |socket: &UdpSocket| {
        ensure!(socket.peer_addr()? == vip, "a socket shows {}", socket.peer_addr()?);
        Ok(())
    };
    let open = || {
        let socket = udp(Family::V4)?;
        // Otherwise each of them takes a port.
        set_socket_reuseaddr(&socket, true)?;
        connect(&socket, vip)?;
        anyhow::Ok(socket)
    };
    let open_all = |count| (0..count).map(|_| open()).collect::<Result<Vec<_>>>();
    let half = open_all(count / 2);
    connected.wait();
    // While there are slots left.
    let end = Instant::now() + CONTENTION;
    let come_and_go = || {
        let mut brief = 0;
        while Instant::now() < end {
            shows_vip(&open()?)?;
            brief += 1;
        }
        Ok(brief)
    };
    let brief = come_and_go();
    let others = open_all(count - count / 2);
    connected.wait();
    let sockets = half.and_then(|half| Ok(half.into_iter().chain(others?).collect::<Vec<_>>()));
    let checked = sockets.as_ref().map(|sockets| sockets.iter().try_for_each(shows_vip));
    // No socket is closed before all have been looked at.
    connected.wait();
    checked.map_err(|error| anyhow!("cannot connect: {error:#}"))??;
    brief
}

/// Waits until no slot is taken. The kernel may close sockets after close(2).
pub(crate) fn until_free(site: &Site) -> Result {
    wait::until("all slots to be free", || ensure_free(&site.bpffs))
}

fn ensure_free(bpffs: &BpfDirectory) -> Result {
    let pin = Pins::new(bpffs.path()).state().join(maps::SOCKET_TAGS);
    let tags = Array::<_, u64>::try_from(Map::Array(MapData::from_pin(pin)?))?;
    let mut taken = 0;
    for pair in tags.iter() {
        taken += u32::from(pair? != 0);
    }
    ensure!(taken == 0, "{taken} pairs of slots are taken");
    Ok(())
}
