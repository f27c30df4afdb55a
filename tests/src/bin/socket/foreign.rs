//! Foreign programs on the same cgroup.

use std::net::SocketAddrV4;

use mcs_tests::bpf::{
    AttachType, Program, has_order_on_cgroups,
    observer::{Hook, Observer, Sight},
};

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("programs of others, before and after ours", run_beside);
    suite.case("a program of others that refuses", refuses);
    suite.case("programs of others that lead a backend on", lead_on);
    suite.case("a Service as a backend, behind a program of others", leaves_out);
}

const HOOKS: [Hook; 4] = [Hook::Connect4, Hook::Connect6, Hook::Sendmsg4, Hook::Recvmsg4];

/// A program of others for each hook.
fn observers(cgroup: &File) -> Result<Vec<Observer>> {
    let attach = |hook| Ok(Observer::attach(cgroup.as_fd(), hook, true)?);
    HOOKS.into_iter().map(attach).collect()
}

/// What they have seen last, and how often they ran since then.
fn sights(observers: &[Observer], since: &[Sight]) -> Result<Vec<Sight>> {
    let sight = |(observer, since): (&Observer, &Sight)| {
        let sight = observer.sight()?;
        Ok(Sight { runs: sight.runs - since.runs, ..sight })
    };
    observers.iter().zip(since).map(sight).collect()
}

fn sight(address: SocketAddr) -> Sight {
    let word = match address {
        SocketAddr::V4(v4) => v4.ip().octets(),
        SocketAddr::V6(v6) => {
            let [.., a, b, c, d] = v6.ip().octets();
            [a, b, c, d]
        }
    };
    Sight { runs: 1, word, port: address.port().into() }
}

fn run_beside(world: &mut World) -> Result {
    let mut site = world.start("shared", &[], &[&world.web.service])?;
    site.agent.stop()?;
    site.agent.cleanup()?;
    let cgroup = File::open(site.cgroup.path())?;
    let before = observers(&cgroup)?;
    site.agent.come_back(&[])?;
    // It sends a self-test through its hooks.
    wait::until("the attachment to be proven", || {
        let self_test = site.agent.status()?["report"]["attachment"]["witness"].take();
        ensure!(self_test == true, "the self-test: {self_test}");
        Ok(())
    })?;
    let never = [Sight::default(); HOOKS.len()];
    let since = sights(&before, &never)?;
    let after = observers(&cgroup)?;

    let _in_cgroup = site.cgroup.visit()?;
    let (vips, backends) = world.at(Place::Pod, || {
        let [v4, v6] = [Family::V4, Family::V6].map(|family| world.web.tcp(family));
        let vip = world.web.udp(Family::V4);
        let [b4, b6] = [(Family::V4, v4), (Family::V6, v6)]
            .map(|(family, vip)| identity(&connected(family, vip)?));
        let reply = ask(&udp(Family::V4)?, vip)?;
        assert_eq!(reply.source, vip);
        Ok(([v4, v6, vip, vip], [b4?, b6?, reply.backend, reply.backend]))
    })?;
    // What is received comes the other way: the backend first, then the VIP.
    let [c4, c6, send, received] = vips.map(sight);
    let [b4, b6, to, from] = backends.map(sight);
    // Whoever was there before, the kernel attaches first what replaces a VIP (Linux 6.17).
    let earlier = if has_order_on_cgroups() { [b4, b6, to, from] } else { [c4, c6, send, from] };
    assert_eq!(sights(&before, &since)?, earlier, "before ours");
    assert_eq!(sights(&after, &never)?, [b4, b6, to, received], "after ours");

    // Foreign programs stay when ours are detached.
    site.agent.stop()?;
    site.agent.cleanup()?;
    world.at(Place::Pod, || {
        assert!(connected(Family::V4, world.web.tcp(Family::V4)).is_err());
        Ok(())
    })?;
    for (observers, since) in [(before, since), (after, never.into())] {
        assert_eq!(sights(&observers, &since)?[0], Sight { runs: 2, ..c4 });
    }
    Ok(())
}

fn refuses(world: &mut World) -> Result {
    let cgroup = File::open(world.site.cgroup.path())?;
    let observer = Observer::attach(cgroup.as_fd(), Hook::Connect4, false)?;
    world.at(Place::Pod, || {
        let error = connected(Family::V4, world.web.tcp(Family::V4)).err();
        let errno = error.as_ref().and_then(std::io::Error::raw_os_error);
        assert_eq!(errno, Some(libc::EPERM), "{error:?}");
        Ok(())
    })?;
    assert_eq!(observer.sight()?.runs, 1);
    drop(observer);
    world.at(Place::Pod, || {
        connected(Family::V4, world.web.tcp(Family::V4))?;
        Ok(())
    })
}

/// A backend that is a Service, which socket programs of others translate, as those of Cilium do in the place of kube-proxy.
fn lead_on(world: &mut World) -> Result {
    if !has_order_on_cgroups() {
        return Err(skip("the order of programs on a cgroup needs Linux 6.17"));
    }
    let (service, _) = nowhere(9);
    let target = world.fresh("led-on").with_ips([service.into()]);
    let mut site = world.start("led-on", &[], &[&target.service])?;
    site.agent.stop()?;
    site.agent.cleanup()?;
    let cgroup = File::open(site.cgroup.path())?;
    let pod = pod_v4(11);
    let mut links = Vec::new();
    for (hook, from, to, port) in [
        (AttachType::BPF_CGROUP_INET4_CONNECT, service, pod, TCP.1),
        (AttachType::BPF_CGROUP_INET4_GETPEERNAME, pod, service, TCP.1),
        (AttachType::BPF_CGROUP_UDP4_SENDMSG, service, pod, UDP.1),
        (AttachType::BPF_CGROUP_UDP4_RECVMSG, pod, service, UDP.1),
    ] {
        let program = Program::leading(hook, from, SocketAddrV4::new(to, port))?;
        links.push(program.attach_to_cgroup(&cgroup, hook)?);
    }
    site.agent.come_back(&[])?;
    let in_cgroup = site.cgroup.visit()?;
    for place in Place::CLIENTS {
        world.at(place, || {
            let vip = target.tcp(Family::V4);
            let stream = connected(Family::V4, vip)?;
            assert_eq!(identity(&stream)?, SocketAddr::new(pod.into(), TCP.1), "{place}");
            assert_eq!(stream.peer_addr()?, vip, "{place}");
            let reply = ask(&udp(Family::V4)?, target.udp(Family::V4))?;
            assert_eq!(reply.backend, SocketAddr::new(pod.into(), UDP.1), "{place}");
            assert_eq!(reply.source, target.udp(Family::V4), "{place}");
            Ok(())
        })?;
    }
    drop(in_cgroup);
    World::end(site)
}

/// A backend that is a Service, behind a socket program of others, which does not see it.
fn leaves_out(world: &mut World) -> Result {
    let ((service, _), pod) = (nowhere(10), pod_v4(11));
    let target = world.fresh("left-out").with_ips([service.into(), pod.into()]);
    let range = format!("--service-cidr={service}/32");
    let mut site = world.start("left-out", &[&range], &[&target.service])?;
    let addresses = |site: &Site| -> Result<BTreeSet<IpAddr>> {
        let frontends = site.agent.frontends("left-out")?;
        Ok(frontends.into_values().flatten().map(|backend| backend.ip()).collect())
    };
    let (both, alone) = ([service.into(), pod.into()].into(), [pod.into()].into());
    let expect = |site: &Site, expected: &BTreeSet<IpAddr>| {
        wait::until("these backends", || {
            let found = addresses(site)?;
            ensure!(found == *expected, "{found:?}");
            Ok(())
        })
    };
    expect(&site, &both)?;

    site.agent.stop()?;
    site.agent.cleanup()?;
    let cgroup = File::open(site.cgroup.path())?;
    let hook = AttachType::BPF_CGROUP_INET4_CONNECT;
    let program = Program::leading(hook, service, SocketAddrV4::new(pod, TCP.1))?;
    let link = if has_order_on_cgroups() {
        site.agent.come_back(&[&range])?;
        let link = program.attach_to_cgroup_first(&cgroup, hook)?;
        site.agent.replace(&[&range])?;
        link
    } else {
        let link = program.attach_to_cgroup(&cgroup, hook)?;
        site.agent.come_back(&[&range])?;
        link
    };
    expect(&site, &alone)?;
    let rejected = site.agent.status()?["report"]["rejections"].to_string();
    ensure!(rejected.contains("endpoint_untranslated"), "{rejected}");
    let explained = site.agent.command(&["explain", "default/left-out", "-o", "json"])?;
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    ensure!(explained.contains("endpoint_untranslated"), "{explained}");
    let in_cgroup = site.cgroup.visit()?;
    for place in Place::CLIENTS {
        world.at(place, || {
            for _ in 0..8 {
                let stream = connected(Family::V4, target.tcp(Family::V4))?;
                assert_eq!(identity(&stream)?, SocketAddr::new(pod.into(), TCP.1), "{place}");
            }
            Ok(())
        })?;
    }
    drop(in_cgroup);

    // An operator knows that others translate packets to it. The agent does not: its status is degraded.
    site.agent.kill()?;
    site.agent.start_again(&[&range, "--service-backends=use"])?;
    expect(&site, &both)?;
    site.agent.replace(&[&range])?;
    expect(&site, &alone)?;
    drop(link);
    site.agent.replace(&[&range])?;
    expect(&site, &both)?;
    World::end(site)
}
