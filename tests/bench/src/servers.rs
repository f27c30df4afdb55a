//! Servers that do as little as they can.

use std::net::{SocketAddrV6, TcpListener};

use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};

use crate::prelude::*;

/// Connections that wait to be accepted: more than a client makes while the server is stopped.
const BACKLOG: i32 = 4096;
const BUFFER: usize = 256 * 1024;

type Serve = fn(TcpStream) -> io::Result<()>;

/// What the HTTP server says.
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

/// Starts the servers of the target's backends but those of [`start_apart`], on `cpu` and for as long as this
/// process lives. Their sockets belong to the cgroup that this process is in now.
pub(crate) fn start(netns: &Namespace, cpu: usize) -> Result {
    let services: [(u16, Serve); 5] = [
        (ACCEPT.target, |_| Ok(())),
        (HTTP.target, answer_http),
        (WHO.target, say_who),
        (ECHO.target, |stream| on_a_thread(stream, echo)),
        (SINK.target, |stream| on_a_thread(stream, sink)),
    ];
    for (port, serve) in services {
        accept(netns, cpu, port, serve)?;
    }
    let unread = netns.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, UDP_SINK.target)))??;
    spawn(cpu, move || {
        let _unread = unread;
        loop {
            thread::park();
        }
    });
    echo_datagrams(netns, cpu, UDP_ECHO.target)
}

/// Starts the servers that belong to no lane's cgroup.
pub(crate) fn start_apart(netns: &Namespace, cpu: usize) -> Result {
    accept(netns, cpu, APART.target, |stream| on_a_thread(stream, echo))?;
    echo_datagrams(netns, cpu, UDP_APART.target)
}

fn accept(netns: &Namespace, cpu: usize, port: u16, serve: Serve) -> Result {
    let listener = netns.run(|| bind_tcp(port))?.with_context(|| format!("port {port}"))?;
    spawn(cpu, move || {
        loop {
            // A client that gave up meanwhile is no trouble.
            if let Ok((stream, _)) = listener.accept() {
                let _ = serve(stream);
            }
        }
    });
    Ok(())
}

fn echo_datagrams(netns: &Namespace, cpu: usize, port: u16) -> Result {
    let v4 = backends().into_iter().chain(bystanders()).map(IpAddr::from);
    for ip in v4.chain(backends_v6().into_iter().chain(bystanders_v6()).map(IpAddr::from)) {
        let address = SocketAddr::from((ip, port));
        let socket = netns
            .run(|| UdpSocket::bind(address))?
            .with_context(|| format!("cannot bind {address}/UDP"))?;
        spawn(cpu, move || {
            let mut buffer = [0; 64];
            loop {
                // An answer may find nobody any more.
                if let Ok((length, peer)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&buffer[..length], peer);
                }
            }
        });
    }
    Ok(())
}

fn spawn(cpu: usize, work: impl FnOnce() + Send + 'static) {
    thread::spawn(move || {
        // It works elsewhere too, if less evenly.
        let _ = cpu::pin(cpu);
        work();
    });
}

fn bind_tcp(port: u16) -> io::Result<TcpListener> {
    // It takes both families.
    let socket = socket(AddressFamily::INET6, SocketType::STREAM, None)?;
    traffic::set_congestion(&socket)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

fn on_a_thread(stream: TcpStream, serve: fn(&TcpStream) -> io::Result<()>) -> io::Result<()> {
    // It inherits the CPU.
    thread::Builder::new().spawn(move || serve(&stream))?;
    Ok(())
}

fn answer_http(mut stream: TcpStream) -> io::Result<()> {
    let (mut buffer, mut length) = ([0; 1024], 0);
    while !buffer[..length].ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer[length..])? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            more => length += more,
        }
    }
    stream.write_all(RESPONSE)
}

fn say_who(mut stream: TcpStream) -> io::Result<()> {
    match stream.local_addr()?.ip().to_canonical() {
        IpAddr::V4(address) => stream.write_all(&address.octets()),
        IpAddr::V6(_) => Err(ErrorKind::Unsupported.into()),
    }
}

fn echo(mut stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; 64];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            length => stream.write_all(&buffer[..length])?,
        }
    }
}

fn sink(mut stream: &TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    while stream.read(&mut buffer)? > 0 {}
    Ok(())
}
