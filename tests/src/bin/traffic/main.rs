//! The program in the pods of the end-to-end suite, and beside them: servers that say who they are,
//! and clients. It is a static binary, and the only file of the pods' image.

use std::{
    env, io,
    net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs as _, UdpSocket},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use mcs_tests::{
    client::{Family, Reply, ask, connected, identity, receive_nameless, udp, udp_connected},
    server::Server,
    traffic::Load,
};

const USAGE: &str = "\
usage: traffic serve TCP-PORT UDP-PORT     at each address of $POD_IPS, until it is killed
       traffic sleep                       until it is killed
       traffic ask tcp|udp|udp-connected NAME:PORT [N]
                                           prints for each address of the name who
                                           answered, as they say, and as is shown; N times
       traffic load WHAT=ADDRESS:PORT...   until standard input ends; WHAT is tcp, udp or from";

/// Between two rounds of a load: others are to have the CPU too.
const PAUSE: Duration = Duration::from_millis(10);
/// How long a name may take that nobody knows yet.
const PATIENCE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["serve", tcp, udp] => serve(tcp, udp),
        ["sleep"] => sleep(),
        ["ask", protocol @ ("tcp" | "udp" | "udp-connected"), to] => ask_all(protocol, to, 1),
        ["ask", protocol @ ("tcp" | "udp" | "udp-connected"), to, times] => times
            .parse()
            .with_context(|| format!("{times} is no number"))
            .and_then(|times| ask_all(protocol, to, times)),
        ["load", targets @ ..] if !targets.is_empty() => load(targets),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve(tcp: &str, udp: &str) -> anyhow::Result<()> {
    let (tcp, udp) = (tcp.parse()?, udp.parse()?);
    let ips = env::var("POD_IPS").context("POD_IPS is not set")?;
    let mut servers = Vec::new();
    for ip in ips.split(',') {
        let ip: IpAddr = ip.parse().with_context(|| format!("POD_IPS: {ip}"))?;
        let address = SocketAddr::new(ip, tcp);
        servers.push(Server::tcp_on(TcpListener::bind(address)?, &address.to_string())?);
        let address = SocketAddr::new(ip, udp);
        servers.push(Server::udp_on(UdpSocket::bind(address)?, &address.to_string())?);
    }
    sleep()
}

fn sleep() -> ! {
    loop {
        thread::park();
    }
}

fn ask_all(protocol: &str, to: &str, times: u32) -> anyhow::Result<()> {
    for address in resolve(to)? {
        for _ in 0..times {
            let family = family(address);
            let connect = || format!("connect {address}");
            let reply = match protocol {
                "tcp" => {
                    let stream = connected(family, address).with_context(connect)?;
                    Reply { backend: identity(&stream)?, source: stream.peer_addr()? }
                }
                "udp-connected" => {
                    let socket = udp_connected(family, address).with_context(connect)?;
                    socket.send(b"who are you")?;
                    Reply { backend: receive_nameless(&socket)?, source: socket.peer_addr()? }
                }
                _ => ask(&udp(family)?, address)?,
            };
            println!("{address} {} {}", reply.backend, reply.source);
        }
    }
    Ok(())
}

/// Every address of a name, once.
fn resolve(to: &str) -> anyhow::Result<Vec<SocketAddr>> {
    let begin = Instant::now();
    loop {
        match to.to_socket_addrs() {
            Ok(addresses) => {
                let mut addresses: Vec<_> = addresses.collect();
                addresses.sort();
                addresses.dedup();
                return Ok(addresses);
            }
            Err(error) if begin.elapsed() > PATIENCE => bail!("{to}: {error}"),
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn family(address: SocketAddr) -> Family {
    if address.is_ipv4() { Family::V4 } else { Family::V6 }
}

fn load(targets: &[&str]) -> anyhow::Result<()> {
    let mut load = Load { tcp: Vec::new(), udp: Vec::new(), backends: [].into() };
    for target in targets {
        let (what, address) = target.split_once('=').with_context(|| USAGE.to_owned())?;
        let address = address.parse().with_context(|| format!("{target}: no address"))?;
        match what {
            "tcp" => load.tcp.push((family(address), address)),
            "udp" => load.udp.push((family(address), address)),
            "from" => drop(load.backends.insert(address)),
            _ => bail!("{target}: {USAGE}"),
        }
    }
    let ended = Arc::new(AtomicBool::new(false));
    let input_ended = Arc::clone(&ended);
    thread::spawn(move || {
        // Whatever it is that comes, or goes wrong: nobody wants more traffic.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        input_ended.store(true, Ordering::Relaxed);
    });
    let client = load.client()?;
    let (begin, mut rounds, mut answers) = (Instant::now(), 0_u64, 0_u64);
    while !ended.load(Ordering::Relaxed) {
        answers += client.round().with_context(|| {
            format!("after {rounds} rounds, {:.3} s", begin.elapsed().as_secs_f64())
        })?;
        if rounds == 0 {
            println!("began");
        }
        rounds += 1;
        thread::sleep(PAUSE);
    }
    println!("{answers}");
    Ok(())
}
