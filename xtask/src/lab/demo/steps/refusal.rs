//! Shows refusals: a service without a backend, and a port that it does not have.

use std::{
    fmt::Write as _,
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use mcs_tests::manifests::Protocol;

use super::{Stage, all_but, departure::LEAVER};
use crate::demo::{
    client,
    example::{BACKENDS, Family, Host, UNKNOWN_PORT},
    traffic::Way,
    world::Place,
};

/// The last pod to go.
const LAST: Host = BACKENDS[1];
/// What "at once" means, with room for a busy machine.
const AT_ONCE: Duration = Duration::from_millis(250);

/// Nobody waits for a timeout.
pub(super) fn show(stage: &Stage<'_>) -> Result<()> {
    take_all(stage)?;
    stage.screen.block(&attempts(stage)?);

    let url = format!("http://{}/", Family::V4.vip());
    let (shown, output) = stage.curl(Place::Client, &["-sS", &url])?;
    stage.screen.block(&shown);
    ensure!(!output.status.success(), "curl succeeded");
    let services = stage.agent(&["services"])?;
    let refusing =
        services.lines().filter(|line| line.split_whitespace().any(|word| word == "refusing"));
    let refusing = refusing.count();
    ensure!(refusing == 4, "{refusing} of 4 frontends are refusing");
    Ok(())
}

/// Takes the pods out of their slices, one last.
fn take_all(stage: &Stage<'_>) -> Result<()> {
    let Stage { screen, world, .. } = stage;
    for pod in BACKENDS.into_iter().filter(|pod| ![LAST, LEAVER].contains(pod)) {
        world.manifests.remove(pod)?;
    }
    world.wait_for(&[LAST].into())?;
    screen.progress(format!("{LAST} is the only pod left"));
    world.manifests.remove(LAST)?;
    world.wait_for(&all_but(&BACKENDS))?;
    screen.progress(format!("{LAST} is gone, too"));
    Ok(())
}

/// Clients of every kind, and one of a port that the service does not have. Returns their
/// errors, as lines of text.
fn attempts(stage: &Stage<'_>) -> Result<String> {
    let by_hooks = expected_error(stage)?;
    let others = [Place::Client, Place::Guest].map(|place| Way {
        place,
        protocol: Protocol::Tcp,
        family: Family::V4,
    });
    let unknown = others.map(|way| (way, SocketAddr::new(way.family.vip(), UNKNOWN_PORT)));
    // The kernel reports a refused datagram only to connected sockets.
    let tcp = |way: &Way| way.protocol == Protocol::Tcp;
    let ways = Way::with_hooks().chain(Way::from(Place::Guest).filter(tcp));
    let mut lines = String::new();
    for (way, frontend) in ways.map(|way| (way, way.frontend())).chain(unknown) {
        let expected =
            if way.place == Place::Guest { io::ErrorKind::ConnectionRefused } else { by_hooks };
        let what = format!("{way}  {frontend}");
        let (error, time) = refused(stage, way, frontend).context(what.clone())?;
        ensure!(error.kind() == expected, "{what}: {error} instead of {expected}");
        ensure!(time < AT_ONCE, "{what}: it took {time:?}");
        writeln!(lines, "{what:<38}  {error} after {:.2} ms", time.as_secs_f64() * 1000.0)?;
    }
    Ok(lines)
}

/// The error that a client gets, and how soon.
fn refused(stage: &Stage<'_>, way: Way, frontend: SocketAddr) -> Result<(io::Error, Duration)> {
    let _visit = stage.world.visit(way.place)?;
    let (answer, time) = stage.world.netns(way.place).run(|| {
        let start = Instant::now();
        let answer = client::ask(way.protocol, frontend);
        (answer, start.elapsed())
    })?;
    let error = answer.err().context("there was an answer")?.downcast()?;
    Ok((error, time))
}

/// ECONNREFUSED where the kernel can say it.
fn expected_error(stage: &Stage<'_>) -> Result<io::ErrorKind> {
    let status = stage.world.agent.status()?;
    let able = status["report"]["features"]["set_retval"].as_bool();
    let able = able.context("the status does not say how clients are refused")?;
    Ok(if able { io::ErrorKind::ConnectionRefused } else { io::ErrorKind::PermissionDenied })
}
