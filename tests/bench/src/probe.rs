//! A service whose only endpoint changes, and a client that waits for it.

use std::{
    num::NonZeroU64,
    sync::{
        Barrier,
        mpsc::{Receiver, channel},
    },
};

use mcs_tests::api_server::Api;
use rustix::thread::set_current_timer_slack;

use crate::prelude::*;

/// No other service has this number.
const NUMBER: u32 = 20_000;
/// Between two attempts of a client, and as a share of the time that it has waited.
const INTERVAL: Duration = Duration::from_micros(50);
const SHARE: u32 = 200;
/// How long one attempt may take: there is always an endpoint.
const ANSWER: Duration = Duration::from_secs(1);
/// How long a change may take.
const PATIENCE: Duration = Duration::from_mins(5);

/// The service, and who changes it.
pub(crate) struct Probe {
    service: Service,
    api: Api,
    /// When this process's watch received which endpoint.
    events: Receiver<Result<(Instant, Ipv4Addr)>>,
}

/// What became of a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    /// From when it was sent to the API server until a client met it.
    pub(crate) from_write: Duration,
    /// The time from this process's watch event until then, in seconds. The daemon may have got its
    /// event before.
    pub(crate) from_event: f64,
}

impl Probe {
    /// Creates the service, unless it is there, and watches it from now on.
    pub(crate) fn create(world: &World) -> Result<Self> {
        let service = Service::probe(NUMBER, &backends()[..1]);
        let api = world.member.server.another_client()?;
        api.apply_all(&[service.service(), service.import()])?;
        api.apply_all(&service.slices())?;
        let slice = service.slices().swap_remove(0);
        let watcher = world.member.server.another_client()?;
        let (tell, events) = channel();
        thread::spawn(move || {
            let ended = watcher.watch(&slice, |slice| {
                let address = slice["endpoints"][0]["addresses"][0].as_str();
                let address = address.and_then(|address| address.parse().ok());
                // Until nobody listens any more.
                address.is_none_or(|address| tell.send(Ok((Instant::now(), address))).is_ok())
            });
            if let Err(error) = ended {
                // Nobody listens if the probe is gone.
                let _ = tell.send(Err(error));
            }
        });
        Ok(Self { service, api, events })
    }

    /// Lets a lane's daemon run, waits until it has caught up, and does `work` in the lane's cgroup.
    pub(crate) fn awake<T>(
        &mut self,
        lane: &Lane,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        lane.thaw()?;
        let done = self.wait(lane).and_then(|()| daemon::wait_until_calm(lane)).and_then(|()| {
            let _visit = lane.cgroup.visit()?;
            // It may have to open its watch again.
            self.change(lane)?;
            thread::sleep(lane.contender.rests());
            work(self)
        });
        let frozen = lane.freeze();
        done.and_then(|done| frozen.map(|()| done))
    }

    /// Waits until clients of a lane meet the endpoint as it is now.
    fn wait(&self, lane: &Lane) -> Result {
        let (to, endpoint) = (self.address(), self.service.endpoints()[0]);
        lane.as_client(lane.cpus.client, || wait_for(to, endpoint).map(drop))
    }

    /// Changes the endpoint, and waits for clients of a lane to meet the other one. This process has
    /// to be in the lane's cgroup.
    pub(crate) fn change(&mut self, lane: &Lane) -> Result<Change> {
        let now = self.service.endpoints()[0];
        let other = backends().into_iter().find(|other| *other != now);
        let other = other.context("there is no other backend")?;
        self.service = self.service.with(vec![other]);
        let (to, slice) = (self.address(), self.service.slices().swap_remove(0));
        while self.events.try_recv().is_ok() {}
        let ready = Barrier::new(2);
        let (begin, seen) = thread::scope(|scope| {
            let client = scope.spawn(|| {
                lane.client.run(|| {
                    cpu::pin(lane.cpus.client)?;
                    // To sleep no longer than asked.
                    set_current_timer_slack(NonZeroU64::new(1))?;
                    ready.wait();
                    wait_for(to, other)
                })?
            });
            ready.wait();
            let begin = Instant::now();
            self.api.replace(&slice)?;
            let seen = client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            anyhow::Ok((begin, seen))
        })?;
        let received = loop {
            let (received, address) =
                self.events.recv_timeout(Duration::from_secs(10)).context("no watch event")??;
            if address == other {
                break received;
            }
        };
        let early = received.saturating_duration_since(seen).as_secs_f64();
        Ok(Change {
            from_write: seen.saturating_duration_since(begin),
            from_event: seen.saturating_duration_since(received).as_secs_f64() - early,
        })
    }

    fn address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.service.vip, WHO.frontend)
    }
}

/// Connects over and over until this backend answers. Returns when that was.
fn wait_for(to: SocketAddrV4, backend: Ipv4Addr) -> Result<Instant> {
    let begin = Instant::now();
    loop {
        let answer = traffic::asker(ANSWER).and_then(|socket| traffic::ask_who(socket, to));
        let (now, waited) = (Instant::now(), begin.elapsed());
        match answer {
            Ok(who) if who == backend => return Ok(now),
            Ok(who) if waited > PATIENCE => bail!("{who} answers instead of {backend}"),
            Err(error) if waited > PATIENCE => return Err(error).context("no backend answers"),
            _ => thread::sleep(INTERVAL.max(waited / SHARE)),
        }
    }
}
