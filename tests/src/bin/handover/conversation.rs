//! One long conversation of a client with a backend: a connection, or a socket.

use rustix::net::sockopt::{Timeout, set_socket_linger, set_socket_timeout};

use crate::prelude::*;

/// How long an answer may take. TCP sends again within it, UDP sockets are asked again after it.
const ANSWER: Duration = Duration::from_secs(1);
/// How often a UDP socket is asked before the conversation counts as broken.
const ATTEMPTS: u32 = 3;

/// How a client uses a VIP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    Tcp,
    ConnectedUdp,
    UnconnectedUdp,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Tcp, Self::ConnectedUdp, Self::UnconnectedUdp];

    pub(crate) const fn protocol(self) -> Protocol {
        match self {
            Self::Tcp => Protocol::Tcp,
            Self::ConnectedUdp | Self::UnconnectedUdp => Protocol::Udp,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::ConnectedUdp => "connected UDP",
            Self::UnconnectedUdp => "unconnected UDP",
        })
    }
}

/// What happened in an exchange that succeeded.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Remarks {
    /// Another backend than before answered.
    pub(crate) moved: bool,
    /// So many datagrams had no answer.
    pub(crate) lost: u32,
}

/// A conversation. The server says in each answer who it is.
pub(crate) struct Conversation {
    pub(crate) kind: Kind,
    pub(crate) family: Family,
    vip: SocketAddr,
    socket: Socket,
    backend: Option<SocketAddr>,
    exchanges: u32,
}

enum Socket {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl Conversation {
    /// Begins one, with an [`Conversation::exchange`]. A UDP socket gets this port, or one of the kernel's choice.
    pub(crate) fn begin(
        kind: Kind,
        family: Family,
        vip: SocketAddr,
        named: bool,
        port: Option<u16>,
    ) -> Result<Self> {
        let socket = match kind {
            Kind::Tcp => Socket::Tcp(client::tcp(family)?),
            Kind::ConnectedUdp | Kind::UnconnectedUdp => {
                let socket = client::udp(family)?;
                if let Some(port) = port {
                    rustix::net::bind(&socket, &family.any(port)).context("bind")?;
                }
                Socket::Udp(socket)
            }
        };
        let mut conversation = Self { kind, family, vip, socket, backend: None, exchanges: 0 };
        conversation.open(named).context("cannot begin")?;
        Ok(conversation)
    }

    fn open(&mut self, named: bool) -> Result {
        match &self.socket {
            Socket::Tcp(stream) => {
                limit(stream)?;
                client::connect(stream, self.vip).context("connect")?;
                // Closes by a reset, so that no port is used up by TIME_WAIT.
                set_socket_linger(stream, Some(Duration::ZERO))?;
                self.backend = Some(client::identity(stream)?);
            }
            Socket::Udp(socket) => {
                limit(socket)?;
                if self.kind == Kind::ConnectedUdp {
                    client::connect(socket, self.vip).context("connect")?;
                }
            }
        }
        self.exchange(named).map(drop)
    }

    /// Sends a token, and waits until it comes back. With `named` the backend has to have the name of the VIP.
    pub(crate) fn exchange(&mut self, named: bool) -> Result<Remarks> {
        self.exchanges += 1;
        let token = format!("exchange {}\n", self.exchanges);
        if named && self.kind != Kind::UnconnectedUdp {
            let peer = match &self.socket {
                Socket::Tcp(stream) => stream.peer_addr(),
                Socket::Udp(socket) => socket.peer_addr(),
            };
            let peer = peer.context("no peer")?;
            ensure!(peer == self.vip, "its peer is {peer}");
        }
        match &self.socket {
            Socket::Tcp(stream) => exchange_by_tcp(stream, &token),
            Socket::Udp(socket) => {
                let (backend, lost) = self.exchange_by_udp(socket, &token, named)?;
                let before = self.backend.replace(backend);
                let moved = before.is_some_and(|before| before != backend);
                Ok(Remarks { moved, lost })
            }
        }
    }

    fn exchange_by_udp(
        &self,
        socket: &UdpSocket,
        token: &str,
        named: bool,
    ) -> Result<(SocketAddr, u32)> {
        for lost in 0..ATTEMPTS {
            match self.kind {
                Kind::UnconnectedUdp => socket.send_to(token.as_bytes(), self.vip),
                Kind::Tcp | Kind::ConnectedUdp => socket.send(token.as_bytes()),
            }
            .context("send")?;
            if let Some((text, source)) = receive(socket, token)? {
                if named {
                    ensure!(source == self.vip, "the answer comes from {source}");
                }
                let identity = text.lines().next().unwrap_or_default();
                return Ok((identity.parse().with_context(|| text.clone())?, lost));
            }
        }
        bail!("no answer to {ATTEMPTS} datagrams from {}", socket.local_addr()?)
    }
}

impl fmt::Display for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.kind, self.family)?;
        if let Some(backend) = self.backend {
            write!(f, ", with {backend}")?;
        }
        write!(f, ", exchange {}", self.exchanges)
    }
}

fn exchange_by_tcp(mut stream: &TcpStream, token: &str) -> Result<Remarks> {
    stream.write_all(token.as_bytes()).context("send")?;
    let mut echo = vec![0; token.len()];
    stream.read_exact(&mut echo).context("receive")?;
    ensure!(echo == token.as_bytes(), "other bytes came back");
    Ok(Remarks::default())
}

fn limit(socket: impl std::os::fd::AsFd) -> Result {
    set_socket_timeout(socket, Timeout::Recv, Some(wait::scaled(ANSWER)))?;
    Ok(())
}

/// The answer with that token, without those to earlier datagrams.
fn receive(socket: &UdpSocket, token: &str) -> Result<Option<(String, SocketAddr)>> {
    let mut buffer = [0; 256];
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((length, source)) => {
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                if text.ends_with(token) {
                    return Ok(Some((text, source)));
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error).context("receive"),
        }
    }
}
