//! `sessionAffinity: ClientIP`, where the client is the network namespace.

use mcs_tests::manifests::Aside;

use crate::prelude::*;

/// Each port has a separate affinity. The probability that all choose as before by accident, with six
/// backends, is 6^-20.
const PORTS: std::ops::Range<u16> = 1000..1020;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("affinity lasts while it is used, and no longer", lasts);
    each_family(suite, "affinity to a backend that is gone", moves);
    each_family(suite, "affinity of namespaces is independent", is_per_namespace);
    each_family(suite, "affinity of UDP sockets", holds_for_udp);
    suite.case("affinity lasts while a UDP socket sends", sends);
}

fn sticky(world: &World, seconds: u32) -> Target {
    let mut target = world.fresh("sticky").with(&PODS);
    target.service = PORTS.fold(target.service.affinity(seconds), |service, port| {
        service.port(Protocol::Tcp, port, TCP.1)
    });
    target
}

/// Where each port leads now.
fn choices(
    world: &World,
    family: Family,
    place: Place,
    target: &Target,
) -> Result<Vec<SocketAddr>> {
    world.at(place, || {
        PORTS.map(|port| identity(&connected(family, target.at(family, port))?)).collect()
    })
}

fn lasts(world: &mut World) -> Result {
    let world = &*world;
    let target = sticky(world, 2 * wait::factor());
    world.site.apply(&target.service)?;
    let choices = || {
        let choices = Family::ALL.map(|family| choices(world, family, Place::Pod, &target));
        choices.into_iter().collect::<Result<Vec<_>>>()
    };
    let first = choices()?;
    for _ in 0..2 {
        // Longer than the timeout in total, but each use restarts it.
        thread::sleep(wait::scaled(Duration::from_millis(1200)));
        assert_eq!(choices()?, first, "within the timeout");
    }
    thread::sleep(wait::scaled(Duration::from_millis(2100)));
    for (family, (now, first)) in Family::ALL.iter().zip(choices()?.iter().zip(&first)) {
        assert_ne!(now, first, "{family}, after the timeout");
    }
    world.site.remove(&target.service)
}

fn moves(world: &World, family: Family, place: Place) -> Result {
    let target = sticky(world, 600);
    world.site.apply(&target.service)?;
    let first = choices(world, family, place, &target)?;
    world.site.apply(&target.clone().with(&PODS[3..]).service)?;
    let left = backends(&PODS[3..], family, TCP.1);
    let second = choices(world, family, place, &target)?;
    for (first, second) in first.iter().zip(&second) {
        assert!(left.contains(second), "{second} is gone");
        assert!(first == second || !left.contains(first), "{first} is left for no reason");
    }
    assert_eq!(choices(world, family, place, &target)?, second, "the new choice does not hold");
    world.site.remove(&target.service)
}

fn is_per_namespace(world: &World, family: Family, place: Place) -> Result {
    let target = sticky(world, 600);
    world.site.apply(&target.service)?;
    let places = [place, Place::OtherPod, Place::Node];
    let all = places.map(|place| choices(world, family, place, &target));
    let [one, other, node] = all;
    let (one, other, node) = (one?, other?, node?);
    assert!(one != other && one != node && other != node, "they share their choices");
    assert_eq!(choices(world, family, place, &target)?, one);
    world.site.remove(&target.service)
}

fn holds_for_udp(world: &World, family: Family, place: Place) -> Result {
    let target = sticky(world, 600);
    world.site.apply(&target.service)?;
    world.at(place, || {
        let first = ask(&udp(family)?, target.udp(family))?.backend;
        assert_eq!(first.port(), UDP.1);
        for _ in 0..10 {
            assert_eq!(ask(&udp(family)?, target.udp(family))?.backend, first, "sent to");
            let socket = udp_connected(family, target.udp(family))?;
            socket.send(b"who are you")?;
            assert_eq!(receive(&socket)?.backend, first, "connected");
        }
        let socket = udp(family)?;
        assert_eq!(ask(&socket, target.udp(family))?.backend, first);
        let is_first = |pod: &&u8| backend(**pod, family, UDP.1) == first;
        let pod = PODS.iter().find(is_first).context("another pod")?;
        world.site.apply(&target.clone().aside(Aside::Draining, &[*pod]).service)?;
        assert_eq!(ask(&socket, target.udp(family))?.backend, first, "it stays");
        let second = ask(&udp(family)?, target.udp(family))?.backend;
        assert_ne!(second, first, "a new client");
        assert_eq!(ask(&socket, target.udp(family))?.backend, first, "it stays");
        assert_eq!(ask(&udp(family)?, target.udp(family))?.backend, second, "a new client");
        Ok(())
    })?;
    world.site.remove(&target.service)
}

/// A socket that stays with its backend uses it with each datagram.
fn sends(world: &mut World) -> Result {
    let target = sticky(world, wait::factor());
    world.site.apply(&target.service)?;
    let vips = Family::ALL.map(|family| target.udp(family));
    world.at(Place::Pod, || {
        let sockets: Vec<_> = Family::ALL.into_iter().map(udp).collect::<Result<_, _>>()?;
        let ask_all = || -> Result<Vec<_>> {
            sockets.iter().zip(vips).map(|(socket, vip)| Ok(ask(socket, vip)?.backend)).collect()
        };
        let first = ask_all()?;
        for _ in 0..8 {
            thread::sleep(wait::scaled(Duration::from_millis(300)));
            assert_eq!(ask_all()?, first, "of one socket");
        }
        for ((family, vip), first) in Family::ALL.into_iter().zip(vips).zip(first) {
            assert_eq!(ask(&udp(family)?, vip)?.backend, first, "{family}, of another socket");
        }
        Ok(())
    })?;
    world.site.remove(&target.service)
}
