//! Options of sockets, and connects that take their time.

#![expect(unsafe_code, reason = "setsockopt(2) of options that no crate has, and signals")]

use std::{net::TcpListener, os::fd::AsFd, ptr, sync::atomic::AtomicI32};

use mcs_tests::client::set_option;
use rustix::net::{bind, listen, sockopt::set_socket_reuseport};

use crate::{prelude::*, world};

pub(crate) fn cases(suite: &mut Suite<World>) {
    each_family(suite, "sockets with a device or an address of their own", have_options);
    each_family(suite, "a mark chooses the route to the backend", are_marked);
    each_family(suite, "who binds to a VIP takes nothing from its clients", bind_to_the_vip);
    each_family(suite, "one port for two VIPs with one backend (a limit)", share_a_port);
    suite.case("connects that wait are asked again, and interrupted by a signal", wait_and_go_on);
}

/// An option whose value is a number.
#[derive(Clone, Copy)]
struct Flag(i32, i32);

impl Flag {
    const MARK: Self = Self(libc::SOL_SOCKET, libc::SO_MARK);
    const BIND_ADDRESS_NO_PORT: Self = Self(libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT);

    const fn transparent(family: Family) -> Self {
        match family {
            Family::V4 => Self(libc::SOL_IP, libc::IP_TRANSPARENT),
            Family::V6 | Family::Mapped => Self(libc::SOL_IPV6, libc::IPV6_TRANSPARENT),
        }
    }

    fn set(self, socket: impl AsFd, value: i32) -> Result {
        set(socket, self, &value.to_ne_bytes())
    }
}

fn set(socket: impl AsFd, Flag(level, name): Flag, value: &[u8]) -> Result {
    set_option(socket, level, name, value)
}

/// What an application does before it connects.
type Before = fn(&OwnedFd, Family) -> Result;

fn own_address(family: Family) -> SocketAddr {
    family.written(world::identity(world::POD, 2, family, 0))
}

fn have_options(world: &World, family: Family, place: Place) -> Result {
    let all: [(&str, Before); 3] = [
        ("SO_BINDTODEVICE", |socket, _| {
            set(socket, Flag(libc::SOL_SOCKET, libc::SO_BINDTODEVICE), b"eth0")
        }),
        ("an address", |socket, family| Ok(bind(socket, &own_address(family))?)),
        ("IP_BIND_ADDRESS_NO_PORT", |socket, family| {
            Flag::BIND_ADDRESS_NO_PORT.set(socket, 1)?;
            Ok(bind(socket, &own_address(family))?)
        }),
    ];
    world.at(place, || {
        for (name, before) in all {
            reaches_web(world, family, before).context(name)?;
        }
        Ok(())
    })
}

fn reaches_web(world: &World, family: Family, before: Before) -> Result {
    let stream = OwnedFd::from(tcp(family)?);
    before(&stream, family)?;
    let stream = std::net::TcpStream::from(stream);
    connect(&stream, world.web.tcp(family))?;
    let found = identity(&stream)?;
    ensure!(backends(World::WEB, family, TCP.1).contains(&found), "{found} is not of web");
    ensure!(stream.peer_addr()? == world.web.tcp(family), "TCP shows {}", stream.peer_addr()?);

    let socket = OwnedFd::from(udp(family)?);
    before(&socket, family)?;
    let socket = std::net::UdpSocket::from(socket);
    let source = ask(&socket, world.web.udp(family))?.source;
    ensure!(source == world.web.udp(family), "a reply shows {source}");
    connect(&socket, world.web.udp(family))?;
    ensure!(socket.peer_addr()? == world.web.udp(family), "UDP shows {}", socket.peer_addr()?);
    Ok(())
}

/// The kernel looks for the route after the hook: the rules of policy routing see the backend.
fn are_marked(world: &World, family: Family, place: Place) -> Result {
    const LOST: i32 = 7;
    let pod = world.netns(place);
    let ip = if family == Family::V6 { "-6" } else { "-4" };
    let backend = backends(&PODS[..1], family, TCP.1)[0].ip();
    let target = world.fresh("marked").with(&PODS[..1]);
    world.site.apply(&target.service)?;
    let rule = |verb| format!("rule {verb} fwmark {LOST} to {backend} priority 77 unreachable");
    let run = |command: &str| {
        let arguments: Vec<_> = [ip].into_iter().chain(command.split(' ')).collect();
        pod.output("ip", &arguments)
    };
    run(&rule("add"))?;
    let result = world.at(place, || {
        for mark in [LOST, LOST + 1] {
            let stream = tcp(family)?;
            Flag::MARK.set(&stream, mark)?;
            let connects = connect(&stream, target.tcp(family));
            let socket = udp(family)?;
            Flag::MARK.set(&socket, mark)?;
            let sent = socket.send_to(b"who are you", target.udp(family));
            ensure!(connects.is_ok() == (mark != LOST), "mark {mark}: connect {connects:?}");
            ensure!(sent.is_ok() == (mark != LOST), "mark {mark}: send {sent:?}");
        }
        Ok(())
    });
    run(&rule("delete"))?;
    result?;
    world.site.remove(&target.service)
}

/// Without an option the kernel refuses it, as without the agent. A transparent proxy may bind to any address.
fn bind_to_the_vip(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let vip = world.web.tcp(family);
        let listener = tcp(family)?;
        let error = bind(&listener, &vip).err();
        ensure!(error == Some(rustix::io::Errno::ADDRNOTAVAIL), "bind: {error:?}");
        Flag::transparent(family).set(&listener, 1)?;
        bind(&listener, &vip).context("with IP_TRANSPARENT")?;
        listen(&listener, 8)?;
        let listener = TcpListener::from(OwnedFd::from(listener));
        ensure!(listener.local_addr()? == vip, "it is bound to {}", listener.local_addr()?);
        reaches_web(world, family, |_, _| Ok(()))?;
        listener.set_nonblocking(true)?;
        let accepted = listener.accept().map_err(|error| error.kind());
        ensure!(
            accepted.as_ref().is_err_and(|kind| *kind == io::ErrorKind::WouldBlock),
            "the listener got {accepted:?}"
        );
        Ok(())
    })
}

/// The two connections would have the same four addresses and ports.
fn share_a_port(world: &World, family: Family, place: Place) -> Result {
    let targets = ["left", "right"].map(|name| world.fresh(name).with(&PODS[..1]));
    for target in &targets {
        world.site.apply(&target.service)?;
    }
    world.at(place, || {
        let first = tcp(family)?;
        set_socket_reuseport(&first, true)?;
        bind(&first, &own_address(family))?;
        connect(&first, targets[0].tcp(family))?;
        let second = tcp(family)?;
        set_socket_reuseport(&second, true)?;
        bind(&second, &first.local_addr()?)?;
        let error = connect(&second, targets[1].tcp(family)).map_err(|error| error.kind());
        ensure!(error == Err(io::ErrorKind::AddrNotAvailable), "the second one: {error:?}");
        // The socket can be used, and the first one does not notice.
        connect(&second, family.written(world::backend(PODS[5], family, TCP.1)))?;
        ensure!(first.peer_addr()? == targets[0].tcp(family), "{}", first.peer_addr()?);
        identity(&first).map(drop)
    })?;
    targets.iter().try_for_each(|target| world.site.remove(&target.service))
}

/// Rules of the node that drop what goes to servers, until this is dropped.
struct Deaf<'a>(&'a Namespace);

impl<'a> Deaf<'a> {
    fn begin(node: &'a Namespace) -> Result<Self> {
        let chain = format!(
            "chain forward {{\ntype filter hook forward priority 0;\ntcp dport {} drop\n}}",
            TCP.1
        );
        let rule = format!("table inet mcs-deaf {{\n{chain}\n}}");
        node.output("nft", &[&rule])?;
        Ok(Self(node))
    }
}

impl Drop for Deaf<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.output("nft", &["delete", "table", "inet", "mcs-deaf"]) {
            eprintln!("cannot delete a table: {error:#}");
        }
    }
}

/// The hook runs for the first call only: the backend is the same, and so is what the application sees.
fn wait_and_go_on(world: &mut World) -> Result {
    let world = &*world;
    let code = |result: io::Result<()>| result.err().and_then(|error| error.raw_os_error());
    let before = world.site.agent.counters()?["connect_translated"];
    let deaf = Deaf::begin(&world.network.node.netns)?;
    let streams = world.at(Place::Pod, || {
        let mut streams = Vec::new();
        for family in Family::ALL {
            let vip = world.web.tcp(family);
            let asked = tcp(family)?;
            asked.set_nonblocking(true)?;
            for expected in [libc::EINPROGRESS, libc::EALREADY, libc::EALREADY] {
                let found = code(connect(&asked, vip));
                ensure!(found == Some(expected), "{family}: {found:?} instead of {expected}");
            }
            let interrupted = tcp(family)?;
            let found = code(while_signalled(|| connect(&interrupted, vip))?);
            ensure!(found == Some(libc::EINTR), "{family}: {found:?} instead of EINTR");
            streams.extend([asked, interrupted].map(|stream| (family, stream)));
        }
        Ok(streams)
    })?;
    drop(deaf);
    for (family, stream) in &streams {
        let mut events = [PollFd::new(stream, PollFlags::OUT)];
        let patience = wait::scaled(Duration::from_secs(5)).as_secs();
        poll(&mut events, Some(&Timespec { tv_sec: patience.try_into()?, tv_nsec: 0 }))?;
        let error = stream.take_error()?;
        ensure!(error.is_none(), "{family}: {error:?}");
        stream.set_nonblocking(false)?;
        let vip = world.web.tcp(*family);
        ensure!(stream.peer_addr()? == vip, "{family}: {}", stream.peer_addr()?);
        let found = identity(stream)?;
        ensure!(backends(World::WEB, *family, TCP.1).contains(&found), "{found} is not of web");
    }
    let connects = world.site.agent.counters()?["connect_translated"] - before;
    ensure!(connects == streams.len() as u64, "{connects} connects of {} sockets", streams.len());
    Ok(())
}

/// Signals this thread until `call` returns.
fn while_signalled<T>(call: impl FnOnce() -> T) -> Result<T> {
    extern "C" fn ignore(_: libc::c_int) {}
    // SAFETY: the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as *const () as usize;
        let set = libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut());
        ensure!(set == 0, "sigaction: {}", io::Error::last_os_error());
    }
    let process = rustix::process::getpid().as_raw_nonzero();
    let target = AtomicI32::new(rustix::thread::gettid().as_raw_nonzero().get());
    thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                thread::sleep(Duration::from_millis(5));
                let thread = target.load(Ordering::Relaxed);
                if thread == 0 {
                    break;
                }
                // SAFETY: the system call takes three numbers.
                unsafe { libc::syscall(libc::SYS_tgkill, process.get(), thread, libc::SIGUSR1) };
            }
        });
        let result = call();
        target.store(0, Ordering::Relaxed);
        Ok(result)
    })
}
