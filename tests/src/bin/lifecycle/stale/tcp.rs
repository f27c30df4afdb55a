//! TCP sockets, with `--stale-tcp=destroy`.

use super::{ENTERS, PROMPT, count, start};
use crate::prelude::*;

/// Connections of each family and kind.
const EACH: usize = 4;
/// The other service leads to a certain one of four backends within this many connects, or something is wrong.
const TRIES: usize = 200;

/// A connection, and the address that its client connected to.
struct Client {
    stream: TcpStream,
    to: SocketAddr,
}

impl Client {
    /// Connects until the backend is `wanted`, if one is.
    fn begin(
        family: Family,
        to: SocketAddr,
        wanted: Option<SocketAddr>,
    ) -> Result<(Self, SocketAddr)> {
        for _ in 0..TRIES {
            let stream = connected(family, to)?;
            let backend = identity(&stream)?;
            if wanted.is_none_or(|wanted| wanted == backend) {
                return Ok((Self { stream, to }, backend));
            }
        }
        anyhow::bail!("{to} does not lead to {wanted:?}")
    }
}

/// Connections to the VIP, to the same pods through another VIP, and to these pods directly.
#[derive(Default)]
struct Clients {
    stale: Vec<Client>,
    others: Vec<Client>,
}

impl Clients {
    fn begin(target: &Target, other: &Target) -> Result<Self> {
        let mut clients = Self::default();
        for family in Family::ALL {
            for _ in 0..EACH {
                let at = |target: &Target| target.tcp(family);
                let (stale, backend) = Client::begin(family, at(target), None)?;
                clients.stale.push(stale);
                clients.others.push(Client::begin(family, at(other), Some(backend))?.0);
                let pod = family.written(backend);
                clients.others.push(Client::begin(family, pod, Some(backend))?.0);
            }
        }
        Ok(clients)
    }

    fn go_on(clients: &[Client]) -> Result {
        clients.iter().try_for_each(|Client { stream, to }| {
            still_goes(stream, *to).with_context(|| format!("a connection to {to}"))
        })
    }
}

/// Waits until a blocking read fails, and says how.
pub(super) fn end(mut stream: &TcpStream) -> Result<ErrorKind> {
    stream.set_read_timeout(Some(mcs_tests::wait::scaled(PROMPT)))?;
    match stream.read(&mut [0; 16]) {
        Ok(length) => anyhow::bail!("it read {length} bytes"),
        Err(error) => Ok(error.kind()),
    }
}

pub(super) fn destroys(world: &mut World) -> Result {
    let target = world.target("stale-tcp");
    let other = world.target("kept-tcp").with(&SETS.concat());
    let services = [&target.service, &other.service];
    let site = start(world, "stale-tcp", &[ENTERS], &["--stale-tcp=destroy"], &services)?;
    let _in_cgroup = site.cgroup.visit()?;
    let clients = world.network.pod.run(|| Clients::begin(&target, &other))??;

    // Sockets of endpoints that leave together stay for a moment: nothing serves instead.
    site.apply(&target.clone().with(&[]).service)?;
    std::thread::sleep(Duration::from_millis(500));
    Clients::go_on(&clients.stale).context("where no endpoint serves")?;

    site.apply(&target.clone().with(SETS[1]).service)?;
    let began = Instant::now();
    for client in &clients.stale {
        let how = end(&client.stream)?;
        ensure!(how == ErrorKind::ConnectionAborted, "{how:?} instead of ECONNABORTED");
    }
    tell(format!("{} sockets within {} ms", clients.stale.len(), began.elapsed().as_millis()));
    Clients::go_on(&clients.others).context("nothing is wrong with its backend")?;
    count(&site.agent, Protocol::Tcp, clients.stale.len())?;
    count(&site.agent, Protocol::Udp, 0)
}
