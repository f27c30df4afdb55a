//! TCP: from connect(2) to getpeername(2).

use rustix::io::Errno;

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    everywhere(suite, "TCP connect", connects);
    everywhere(suite, "TCP connect without blocking", connects_without_blocking);
    everywhere(suite, "TCP fast open", opens_fast);
    everywhere(suite, "TCP over all backends", spreads);
    each_family(suite, "MPTCP connect shows the backend (a limit)", connects_by_mptcp);
    each_family(suite, "MPTCP that is turned off", connects_without_mptcp);
}

/// The connection leads to a backend of `web`, which sees who the client is, and the client sees
/// the VIP.
fn check(world: &World, family: Family, stream: &TcpStream) -> Result<SocketAddr> {
    let backend = identity(stream)?;
    assert!(backends(World::WEB, family, TCP.1).contains(&backend), "{backend} is not of web");
    assert_eq!(stream.peer_addr()?, world.web.tcp(family), "peer name");
    let own = stream.local_addr()?;
    let client = SocketAddr::new(own.ip().to_canonical(), own.port());
    let seen = world.server(Protocol::Tcp, backend)?.seen();
    assert!(seen.contains(&client), "the server saw {seen:?}, not {client}");
    Ok(backend)
}

fn connects(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let mut stream = connected(family, world.web.tcp(family))?;
        check(world, family, &stream)?;
        stream.write_all(b"more").context("cannot write")
    })
}

fn connects_without_blocking(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let stream = client::tcp(family)?;
        stream.set_nonblocking(true)?;
        let started = connect(&stream, world.web.tcp(family));
        ensure!(
            started.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EINPROGRESS)),
            "instead of starting: {started:?}"
        );
        let mut events = [PollFd::new(&stream, PollFlags::OUT)];
        poll(&mut events, Some(&Timespec { tv_sec: 2, tv_nsec: 0 }))?;
        assert_eq!(stream.take_error()?.map(|error| error.to_string()), None);
        stream.set_nonblocking(false)?;
        check(world, family, &stream)?;
        Ok(())
    })
}

fn opens_fast(world: &World, family: Family, place: Place) -> Result {
    let fast_open = SendFlags::from_bits_retain(libc::MSG_FASTOPEN.cast_unsigned());
    world.at(place, || {
        let stream = client::tcp(family)?;
        let sent = rustix::net::sendto(&stream, b"hello", fast_open, &world.web.tcp(family))?;
        assert_eq!(sent, 5);
        check(world, family, &stream)?;
        Ok(())
    })
}

fn spreads(world: &World, family: Family, place: Place) -> Result {
    // Missing one of three in sixty has a probability of 1e-10.
    let seen = world.at(place, || {
        (0..60).map(|_| identity(&connected(family, world.web.tcp(family))?)).collect()
    });
    let seen: BTreeSet<SocketAddr> = seen?;
    assert_eq!(seen, BTreeSet::from_iter(backends(World::WEB, family, TCP.1)));
    Ok(())
}

/// A socket of Multipath TCP, not connected.
pub(crate) fn mptcp(family: Family) -> Result<TcpStream> {
    client::mptcp(family).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::PROTONOSUPPORT | Errno::INVAL) => skip("this kernel has no MPTCP"),
        _ => error.into(),
    })
}

/// connect(2) is seen on the first subflow's socket, getpeername(2) on the application's.
fn connects_by_mptcp(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let stream = mptcp(family)?;
        connect(&stream, world.web.tcp(family))?;
        let backend = identity(&stream)?;
        assert!(backends(World::WEB, family, TCP.1).contains(&backend), "{backend} is not of web");
        assert_eq!(stream.peer_addr()?, family.written(backend));
        Ok(())
    })
}

/// Clients fall back to TCP then, and a socket that was made before connects.
fn connects_without_mptcp(world: &World, family: Family, place: Place) -> Result {
    let before = world.at(place, || mptcp(family))?;
    let set = |value| world.netns(place).sysctl("mptcp/enabled", value);
    set("0")?;
    let result = world.at(place, || {
        let refused = client::mptcp(family).err().context("a socket of MPTCP was made")?;
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::NOPROTOOPT));
        check(world, family, &connected(family, world.web.tcp(family))?)?;
        connect(&before, world.web.tcp(family))?;
        let backend = identity(&before)?;
        assert!(backends(World::WEB, family, TCP.1).contains(&backend), "{backend} is not of web");
        Ok(())
    });
    set("1")?;
    result
}
