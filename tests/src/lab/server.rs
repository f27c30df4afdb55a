//! Servers that say who they are, and remember who came.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
};

use anyhow::Context as _;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::write,
};

use crate::{manifests::Protocol, netns::Namespace};

/// A server at one address, on a thread. It stops when this is dropped.
#[derive(Debug)]
pub struct Server {
    protocol: Protocol,
    address: SocketAddr,
    seen: Seen,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// The clients' addresses, as the server's system calls tell them.
type Seen = Arc<Mutex<Vec<SocketAddr>>>;

impl Server {
    /// Sends its own address and a line feed to each connection, and reads what comes until the
    /// client closes.
    pub fn tcp(netns: &Namespace, address: SocketAddr) -> anyhow::Result<Self> {
        Self::listen(netns, address, greet)
    }

    /// Sends `identity` and a line feed to each connection, and reads what comes until the client
    /// closes.
    pub fn tcp_on(listener: TcpListener, identity: &str) -> anyhow::Result<Self> {
        Self::accept(listener, identity.to_owned(), greet)
    }

    /// Sends its own address and a line feed to each connection, and then back what comes.
    pub fn tcp_echo(netns: &Namespace, address: SocketAddr) -> anyhow::Result<Self> {
        Self::listen(netns, address, echo)
    }

    /// Answers each HTTP request with its own address and a line feed.
    pub fn http(netns: &Namespace, address: SocketAddr) -> anyhow::Result<Self> {
        Self::listen(netns, address, answer_http)
    }

    /// Answers each HTTP request with `identity` and a line feed.
    pub fn http_on(listener: TcpListener, identity: &str) -> anyhow::Result<Self> {
        Self::accept(listener, identity.to_owned(), answer_http)
    }

    /// Answers each datagram with its own address.
    pub fn udp(netns: &Namespace, address: SocketAddr) -> anyhow::Result<Self> {
        let socket = netns
            .run(|| UdpSocket::bind(address))?
            .with_context(|| format!("cannot bind {address}/UDP in {}", netns.name()))?;
        Self::udp_on(socket, &address.to_string())
    }

    /// Answers each datagram with its own address, a line feed, and the datagram.
    pub fn udp_echo(netns: &Namespace, address: SocketAddr) -> anyhow::Result<Self> {
        let socket = netns
            .run(|| UdpSocket::bind(address))?
            .with_context(|| format!("cannot bind {address}/UDP in {}", netns.name()))?;
        Self::answer(socket, format!("{address}\n"), true)
    }

    /// Answers each datagram with `identity`.
    pub fn udp_on(socket: UdpSocket, identity: &str) -> anyhow::Result<Self> {
        Self::answer(socket, identity.to_owned(), false)
    }

    fn answer(socket: UdpSocket, identity: String, echoes: bool) -> anyhow::Result<Self> {
        Self::start(Protocol::Udp, socket.local_addr()?, move |seen, stop| {
            let mut buffer = vec![0; 1 << 16];
            while wait_for_input(&socket, stop)? {
                let (length, peer) = socket.recv_from(&mut buffer)?;
                remember(seen, peer);
                let rest = if echoes { &buffer[..length] } else { &[] };
                // The client may be gone, or its kernel may have answered an earlier datagram with
                // an ICMP error.
                let _ = socket.send_to(&[identity.as_bytes(), rest].concat(), peer);
            }
            Ok(())
        })
    }

    /// Its address, which is what it says it is.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The clients since the last call, in order.
    pub fn seen(&self) -> Vec<SocketAddr> {
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn listen(
        netns: &Namespace,
        address: SocketAddr,
        serve: fn(&TcpStream, &str) -> io::Result<()>,
    ) -> anyhow::Result<Self> {
        let listener = netns
            .run(|| TcpListener::bind(address))?
            .with_context(|| format!("cannot bind {address}/TCP in {}", netns.name()))?;
        Self::accept(listener, address.to_string(), serve)
    }

    fn accept(
        listener: TcpListener,
        identity: String,
        serve: fn(&TcpStream, &str) -> io::Result<()>,
    ) -> anyhow::Result<Self> {
        Self::start(Protocol::Tcp, listener.local_addr()?, move |seen, stop| {
            while wait_for_input(&listener, stop)? {
                // A client that gave up meanwhile is no trouble.
                let Ok((stream, peer)) = listener.accept() else { continue };
                remember(seen, peer);
                let identity = identity.clone();
                thread::spawn(move || serve(&stream, &identity));
            }
            Ok(())
        })
    }

    fn start(
        protocol: Protocol,
        address: SocketAddr,
        serve: impl FnOnce(&Seen, &OwnedFd) -> io::Result<()> + Send + 'static,
    ) -> anyhow::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let seen = Seen::default();
        let thread = {
            let (seen, stop) = (Arc::clone(&seen), Arc::clone(&stop));
            thread::spawn(move || serve(&seen, &stop))
        };
        Ok(Self { protocol, address, seen, stop, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let stopped = write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take()
            && stopped.is_ok()
            && let Ok(Err(error)) = thread.join()
        {
            eprintln!("the server at {} ended: {error}", self.address);
        }
    }
}

/// What starts a server, and its port.
pub type Serve = (fn(&Namespace, SocketAddr) -> anyhow::Result<Server>, u16);

/// The servers of pods.
#[derive(Debug, Default)]
pub struct Servers(Vec<Server>);

impl Servers {
    /// Starts each of these servers at each of these addresses.
    pub fn start(
        netns: &Namespace,
        ips: impl IntoIterator<Item = IpAddr>,
        serve: &[Serve],
    ) -> anyhow::Result<Self> {
        let mut servers = Self::default();
        servers.add(netns, ips, serve)?;
        Ok(servers)
    }

    /// Starts more of them.
    pub fn add(
        &mut self,
        netns: &Namespace,
        ips: impl IntoIterator<Item = IpAddr>,
        serve: &[Serve],
    ) -> anyhow::Result<()> {
        for ip in ips {
            for (start, port) in serve {
                self.0.push(start(netns, SocketAddr::new(ip, *port))?);
            }
        }
        Ok(())
    }

    /// The server at an address.
    pub fn at(&self, protocol: Protocol, address: SocketAddr) -> anyhow::Result<&Server> {
        let mut servers = self.0.iter();
        let found = servers.find(|one| one.protocol == protocol && one.address == address);
        found.with_context(|| format!("no server at {address}"))
    }
}

/// Waits for a client. False if the server has to stop.
fn wait_for_input(socket: &impl AsFd, stop: &OwnedFd) -> io::Result<bool> {
    let mut fds = [PollFd::new(socket, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
    poll(&mut fds, None)?;
    Ok(fds[1].revents().is_empty())
}

fn remember(seen: &Seen, peer: SocketAddr) {
    seen.lock().unwrap_or_else(PoisonError::into_inner).push(peer);
}

fn greet(mut stream: &TcpStream, identity: &str) -> io::Result<()> {
    writeln!(stream, "{identity}")?;
    io::copy(&mut stream, &mut io::sink())?;
    Ok(())
}

fn echo(mut stream: &TcpStream, identity: &str) -> io::Result<()> {
    writeln!(stream, "{identity}")?;
    io::copy(&mut &*stream, &mut stream)?;
    Ok(())
}

fn answer_http(mut stream: &TcpStream, identity: &str) -> io::Result<()> {
    for line in BufReader::new(stream).lines() {
        if line?.is_empty() {
            break;
        }
    }
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{identity}\n",
        identity.len() + 1
    )
}
