//! Load: clients on every CPU, which count their failures.

use std::sync::{Mutex, PoisonError, atomic::AtomicU64};

use mcs_tests::traffic::with_clients;
use rustix::net::sockopt::set_socket_linger;

use crate::prelude::*;

/// New TCP connections a second where everything takes longer.
const SLOW_RATE: u32 = 50;

/// The load of clients on a service.
pub(crate) struct Load<'a> {
    target: &'a Target,
    /// The backends that may answer.
    backends: BTreeSet<SocketAddr>,
    /// New TCP connections a second, of all clients together; else as many as they can.
    rate: Option<u32>,
    /// Whether the tally is printed even if nothing failed.
    prints: bool,
}

/// Counts of connections, other uses and failures.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    connections: AtomicU64,
    others: AtomicU64,
    failures: AtomicU64,
    first: Mutex<Option<String>>,
}

impl<'a> Load<'a> {
    /// Clients of a service, which may be answered by all remote pods. On a slow machine they leave
    /// time for the agent.
    pub(crate) fn of(target: &'a Target) -> Self {
        let rate = (wait::factor() > 1).then_some(SLOW_RATE);
        Self { target, backends: backends(&SETS.concat()), rate, prints: true }
    }

    /// The same, at that many new TCP connections a second.
    pub(crate) fn at_rate(self, rate: u32) -> Self {
        Self { rate: Some(rate), ..self }
    }

    /// The same, but prints nothing unless something fails.
    pub(crate) fn silent(self) -> Self {
        Self { prints: false, ..self }
    }

    /// Does `work` while a client on each CPU repeats the load. Each client also keeps long-lived sockets.
    /// Prints the number of failures; any failure is an error.
    pub(crate) fn during<T>(
        &self,
        netns: &Namespace,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let tally = Tally::default();
        let client = |clients: usize, stop: &AtomicBool| self.repeat(clients, stop, &tally);
        let worked = with_clients(netns, client, work);
        if self.prints {
            tell(tally.to_string());
        }
        let worked = worked?;
        tally.verdict()?;
        Ok(worked)
    }

    fn repeat(&self, clients: usize, stop: &AtomicBool, tally: &Tally) -> Result {
        let live = Live::open(self).context("live sockets cannot be made")?;
        let pause = self
            .rate
            .map(|rate| Duration::from_secs(1) * u32::try_from(clients).unwrap_or(1) / rate);
        let mut next = Instant::now();
        let mut turns: u32 = 0;
        while !stop.load(Ordering::Relaxed) {
            let family = Family::ON_WIRE[turns as usize % Family::ON_WIRE.len()];
            turns += 1;
            tally.attempt(&tally.connections, "TCP", || self.connect(family));
            // Without a rate all uses alternate; with one, every tenth turn uses UDP and the live sockets too.
            if pause.is_none() || turns.is_multiple_of(10) {
                tally.count("connected UDP", || self.ask_connected(family));
                tally.count("unconnected UDP", || self.ask(&client::udp(family)?, family));
                live.use_all(self, tally);
            }
            if let Some(pause) = pause {
                next += pause;
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        }
        Ok(())
    }

    fn connect(&self, family: Family) -> Result {
        let stream = connected(family, self.target.tcp(family)).context("connect")?;
        self.check(client::identity(&stream)?)?;
        // Closes by a reset, so that no port is used up by TIME_WAIT.
        Ok(set_socket_linger(&stream, Some(Duration::ZERO))?)
    }

    fn ask_connected(&self, family: Family) -> Result {
        let socket = udp_connected(family, self.target.udp(family)).context("connect")?;
        socket.send(b"who are you")?;
        self.check(receive_nameless(&socket)?)
    }

    fn ask(&self, socket: &UdpSocket, family: Family) -> Result {
        let vip = self.target.udp(family);
        let reply = ask(socket, vip)?;
        ensure!(reply.source == vip, "{} is shown instead of {vip}", reply.source);
        self.check(reply.backend)
    }

    fn check(&self, backend: SocketAddr) -> Result {
        ensure!(self.backends.contains(&backend), "{backend} answered, which was never in the set");
        Ok(())
    }
}

impl Tally {
    fn count(&self, what: &str, attempt: impl FnOnce() -> Result) {
        self.attempt(&self.others, what, attempt);
    }

    fn attempt(&self, count: &AtomicU64, what: &str, attempt: impl FnOnce() -> Result) {
        count.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = attempt() {
            self.failures.fetch_add(1, Ordering::Relaxed);
            let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(|| format!("{what}: {error:#}"));
        }
    }

    fn verdict(self) -> Result {
        let failures = self.failures.into_inner();
        let first = self.first.into_inner().unwrap_or_else(PoisonError::into_inner);
        ensure!(
            failures == 0,
            "{failures} failures, of which the first: {}",
            first.unwrap_or_default()
        );
        Ok(())
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [connections, others, failures] = [&self.connections, &self.others, &self.failures]
            .map(|count| count.load(Ordering::Relaxed));
        write!(f, "{connections} connections and {others} other exchanges, {failures} failures")
    }
}

/// Sockets that were there before.
struct Live {
    tcp: Vec<(Family, TcpStream)>,
    connected: Vec<(UdpSocket, SocketAddr)>,
    unconnected: Vec<(Family, UdpSocket)>,
}

impl Live {
    fn open(load: &Load<'_>) -> Result<Self> {
        let mut live = Self { tcp: Vec::new(), connected: Vec::new(), unconnected: Vec::new() };
        for family in Family::ON_WIRE {
            let stream = connected(family, load.target.tcp(family))?;
            let mut greeting = String::new();
            BufReader::new(&stream).read_line(&mut greeting)?;
            live.tcp.push((family, stream));
            let socket = udp_connected(family, load.target.udp(family))?;
            socket.send(b"who are you")?;
            let backend = receive_nameless(&socket)?;
            live.connected.push((socket, backend));
            live.unconnected.push((family, client::udp(family)?));
        }
        Ok(live)
    }

    fn use_all(&self, load: &Load<'_>, tally: &Tally) {
        for (family, stream) in &self.tcp {
            let vip = load.target.tcp(*family);
            tally.count("live TCP", || still_goes(stream, vip));
        }
        for (socket, backend) in &self.connected {
            tally.count("live connected UDP", || {
                socket.send(b"who are you")?;
                let answered = receive_nameless(socket)?;
                ensure!(answered == *backend, "{answered} answers instead of {backend}");
                Ok(())
            });
        }
        for (family, socket) in &self.unconnected {
            tally.count("live unconnected UDP", || load.ask(socket, *family));
        }
    }
}
