//! The control plane, and a lane for each contender.

use std::sync::atomic::AtomicU32;

use mcs_tests::member::Member;

use crate::{lane::NODE, plan::ENDPOINTS, prelude::*};

/// The node's address on its link with the client.
const NODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 1);
/// Objects that are created between two words about it.
const AT_A_TIME: usize = 1000;
/// How long a contender may take until all services are in effect.
const PATIENCE: Duration = Duration::from_mins(10);
const INTERVAL: Duration = Duration::from_millis(10);
/// How long a look may take: the kernel would wait for a second before it sends a SYN again that nobody
/// has translated.
const ANSWER: Duration = Duration::from_millis(100);

// They have to be removed in this order.
pub(crate) struct World {
    pub(crate) lanes: Vec<Lane>,
    /// Who does not take part here, and why.
    pub(crate) absent: Vec<(Contender, String)>,
    pub(crate) member: Member,
    run: Run,
    /// How many services there are; the last one is the target.
    services: u32,
    endpoints: AtomicU32,
}

impl World {
    /// What names of the run begin with.
    pub(crate) const RUN: &str = "mcs-bench";

    /// Makes the control plane and lanes, without any service.
    pub(crate) fn begin(contenders: &[Contender], cache: &Path) -> Result<Self> {
        let run = Run::begin(Self::RUN)?;
        let member = Member::start(&run)?;
        member.server.api.apply(&json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": NODE },
            "status": { "addresses": [{ "type": "InternalIP", "address": NODE_ADDRESS }] },
        }))?;
        let cpus = Cpus::choose()?;
        let lane = |contender: &Contender| Lane::create(&run, *contender, &member, cache, cpus);
        let (mut lanes, mut absent) = (Vec::new(), Vec::new());
        for contender in contenders {
            match lane(contender) {
                Ok(lane) => lanes.push(lane),
                // It takes programs that nothing else needs.
                Err(error) if *contender == Contender::Cilium => {
                    absent.push((*contender, format!("{error:#}")));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Self { lanes, absent, member, run, services: 0, endpoints: AtomicU32::new(0) })
    }

    /// Where logs are and stay.
    pub(crate) fn keep_logs(&mut self) -> &Path {
        self.run.keep_directory();
        self.run.directory()
    }

    /// A made-up service with an endpoint that it did not have before.
    pub(crate) fn changed(&self, number: u32) -> Service {
        let another = self.endpoints.fetch_add(1, Ordering::Relaxed);
        Service::made_up(number, ENDPOINTS).with_another(another)
    }

    /// The service with real backends, the last one by name.
    pub(crate) fn target(&self) -> Service {
        Service::target(self.services.saturating_sub(1), &backends(), &backends_v6())
    }

    /// Makes services until there are `services`, and waits until the last one is in effect for every contender.
    /// Returns the time of each contender, from the moment when its daemon continues and all objects are there. In the end all
    /// daemons and the API server are stopped.
    pub(crate) fn grow(
        &mut self,
        services: u32,
        progress: &Progress,
    ) -> Result<Vec<(Contender, Result<Duration>)>> {
        self.lanes.iter().try_for_each(Lane::freeze)?;
        self.member.server.thaw()?;
        let last = services.saturating_sub(1);
        let fresh = (self.services..last).map(|number| Service::made_up(number, ENDPOINTS));
        let fresh: Vec<_> =
            fresh.chain([Service::target(last, &backends(), &backends_v6())]).collect();
        let objects = fresh.iter().flat_map(|service| [service.service(), service.import()]);
        let slices = fresh.iter().flat_map(Service::slices);
        let objects: Vec<_> = objects.chain(slices).collect();
        for (number, some) in objects.chunks(AT_A_TIME).enumerate() {
            progress.detail(format!("{} of {} objects", number * AT_A_TIME, objects.len()));
            self.member.server.api.create_many(some)?;
        }
        self.lanes.retain_mut(|lane| {
            let Some(cilium) = &mut lane.cilium else { return true };
            let added = fresh.iter().try_for_each(|service| cilium.add(service));
            self.absent.extend(added.err().map(|error| (lane.contender, format!("{error:#}"))));
            self.absent.iter().all(|(absent, _)| *absent != lane.contender)
        });
        self.services = services;
        let begin = Instant::now();
        self.lanes.iter().try_for_each(Lane::thaw)?;
        let target = self.target();
        progress.detail("until they are in effect");
        // Each by itself: a look at one that is not there yet takes its time.
        let wait = |lane: &Lane| loop {
            let effect = is_in_effect(lane, &target);
            let elapsed = begin.elapsed();
            match effect {
                Ok(()) => return Ok(elapsed),
                Err(error) if elapsed > PATIENCE => return Err(error),
                Err(_) => lane.is_followed()?,
            }
            thread::sleep(INTERVAL);
        };
        let waiting = self.lanes.iter().filter(|lane| lane.contender.has_daemon());
        let mut times: Vec<_> = thread::scope(|scope| {
            let waits: Vec<_> =
                waiting.map(|lane| (lane.contender, scope.spawn(move || wait(lane)))).collect();
            let ended = |wait: thread::ScopedJoinHandle<'_, _>| {
                wait.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the wait has panicked")))
            };
            waits.into_iter().map(|(contender, wait)| (contender, ended(wait))).collect()
        });
        for lane in &self.lanes {
            progress.detail(format!("until {} has nothing more to do", lane.contender));
            if let Err(error) = daemon::wait_until_calm(lane)
                && let Some((_, time)) = times.iter_mut().find(|(one, _)| *one == lane.contender)
            {
                *time = Err(error);
            }
        }
        self.lanes.iter().try_for_each(Lane::freeze)?;
        self.member.server.freeze()?;
        Ok(times)
    }
}

/// Whether a client of the lane reaches the service.
fn is_in_effect(lane: &Lane, target: &Service) -> Result {
    let to: Vec<SocketAddrV4> = lane.reach(target.vip, WHO);
    let socket = {
        let _visit = lane.cgroup.visit()?;
        lane.client.run(|| traffic::asker(ANSWER))??
    };
    // Others look meanwhile, on any CPU: the kernel may be busy on one for seconds, with thousands of
    // rules.
    traffic::ask_who(socket, to[0]).map(drop)
}
