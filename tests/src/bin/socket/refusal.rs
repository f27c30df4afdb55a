//! Refusals: connections to a VIP without a usable backend, or to an unknown port, fail at once.

use crate::prelude::*;

/// Far below any timeout, far above what a busy machine needs.
const AT_ONCE: Duration = Duration::from_millis(100);

pub(crate) fn cases(suite: &mut Suite<World>) {
    everywhere(suite, "refused without a backend", |world, family, place| {
        check(world, family, place, world.empty.tcp(family), world.empty.udp(family))
    });
    everywhere(suite, "refused on an unknown port", |world, family, place| {
        let unknown = world.web.at(family, UNKNOWN_PORT);
        check(world, family, place, unknown, unknown)
    });
}

fn check(
    world: &World,
    family: Family,
    place: Place,
    tcp: SocketAddr,
    udp_vip: SocketAddr,
) -> Result {
    let errno = refusal(world)?;
    world.at(place, || {
        expect("TCP connect", errno, || connected(family, tcp));
        expect("TCP connect without blocking", errno, || {
            let stream = client::tcp(family)?;
            stream.set_nonblocking(true)?;
            connect(&stream, tcp)
        });
        expect("UDP connect", errno, || udp_connected(family, udp_vip));
        let socket = udp(family)?;
        expect("UDP sendto", errno, || socket.send_to(b"anybody there", udp_vip));
        // The socket still works.
        assert_eq!(ask(&socket, world.web.udp(family))?.source, world.web.udp(family));
        Ok(())
    })
}

/// What a refused system call says on this kernel.
fn refusal(world: &World) -> Result<i32> {
    let status = world.site.agent.status()?;
    let can_say = status["report"]["features"]["set_retval"] == true;
    Ok(if can_say { libc::ECONNREFUSED } else { libc::EPERM })
}

fn expect<T>(what: &str, errno: i32, attempt: impl Fn() -> io::Result<T>) {
    let took = (0..3).map(|_| {
        let start = Instant::now();
        let error = attempt().err();
        let took = start.elapsed();
        assert_eq!(
            error.as_ref().and_then(io::Error::raw_os_error),
            Some(errno),
            "{what}: {error:?}"
        );
        took
    });
    // A timeout takes its time every time; a busy machine does not.
    let took = took.min();
    assert!(took < Some(wait::scaled(AT_ONCE)), "{what} took {took:?}");
}
