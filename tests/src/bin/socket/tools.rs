//! Common tools (curl and the like) through a VIP.

use std::panic;

use crate::{Check, prelude::*, world::HTTP};

const PYTHON: &str = "
import socket, sys
host, tcp, udp = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

stream = socket.create_connection((host, tcp), timeout=2)
print(stream.makefile().readline().strip(), *stream.getpeername()[:2])

family = socket.AF_INET6 if ':' in host else socket.AF_INET
datagrams = socket.socket(family, socket.SOCK_DGRAM)
datagrams.settimeout(2)
datagrams.sendto(b'who are you', (host, udp))
answer, source = datagrams.recvfrom(100)
print(answer.decode(), *source[:2])
";

pub(crate) fn cases(suite: &mut Suite<World>) {
    for (name, check) in
        [("curl", curl as Check), ("python3", python), ("nc", nc), ("nc -u", nc_udp)]
    {
        suite.case(format!("{name} through the VIP"), move |world| everywhere(world, check));
    }
}

/// Programs of the pod and of the host, IPv4 and IPv6, at the same time.
fn everywhere(world: &World, check: Check) -> Result {
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for place in Place::CLIENTS {
            for family in [Family::V4, Family::V6] {
                let thread = scope.spawn(move || check(world, family, place));
                threads.push((family, place, thread));
            }
        }
        threads.into_iter().try_for_each(|(family, place, thread)| {
            let result = thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
            result.with_context(|| format!("{family}, from the {place}"))
        })
    })
}

/// What a program prints, given some input.
fn output(world: &World, place: Place, command: &[&str]) -> Result<String> {
    let [program, arguments @ ..] = command else { return Ok(String::new()) };
    if Command::new(program).arg("--help").output().is_err() {
        return Err(skip(format!("there is no {program}")));
    }
    let output = world
        .netns(place)
        .command(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {}: {error}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

fn check(text: &str, family: Family, port: u16) -> Result {
    let backend: SocketAddr = text.trim().parse().with_context(|| format!("it said {text:?}"))?;
    assert!(backends(World::WEB, family, port).contains(&backend), "{backend} is not of web");
    Ok(())
}

fn curl(world: &World, family: Family, place: Place) -> Result {
    let vip = world.web.at(family, HTTP.0);
    let url = format!("http://{vip}/");
    let format = "%{remote_ip} %{remote_port}";
    let text = output(world, place, &["curl", "-sS", "--max-time", "2", "-w", format, &url])?;
    let (body, remote) = text.split_once('\n').context("no line")?;
    check(body, family, HTTP.1)?;
    assert_eq!(remote, format!("{} {}", vip.ip(), vip.port()), "the address that curl tells");
    Ok(())
}

fn python(world: &World, family: Family, place: Place) -> Result {
    let host = world.web.tcp(family).ip().to_string();
    let ports = [TCP.0, UDP.0].map(|port| port.to_string());
    let text = output(world, place, &["python3", "-c", PYTHON, &host, &ports[0], &ports[1]])?;
    let mut lines = text.lines();
    for (port, target) in [TCP, UDP] {
        let line = lines.next().context("too few lines")?;
        let (backend, name) = line.split_once(' ').context("no name")?;
        check(backend, family, target)?;
        assert_eq!(name, format!("{host} {port}"), "the name that python tells");
    }
    Ok(())
}

fn nc(world: &World, family: Family, place: Place) -> Result {
    let host = world.web.tcp(family).ip().to_string();
    let text = output(world, place, &["nc", "-w", "1", &host, &TCP.0.to_string()])?;
    check(&text, family, TCP.1)
}

fn nc_udp(world: &World, family: Family, place: Place) -> Result {
    let host = world.web.udp(family).ip().to_string();
    let script = format!("echo who are you | nc -u -w 1 {host} {}", UDP.0);
    check(&output(world, place, &["sh", "-c", &script])?, family, UDP.1)
}
