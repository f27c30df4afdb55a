//! Runs the checks of cgroups and the self-test periodically.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::{Duration, Instant},
};

use tokio::{
    task::JoinHandle,
    time::{Interval, MissedTickBehavior, interval},
};

use super::{
    AttachmentReport, CgroupCoverage, CgroupWalk, SECTION,
    process::{SelfTestResult, start},
};
use crate::core::{
    control::report::seconds_since_epoch,
    feature::{Act, Core, Feature, Follow, Sections, Wait},
    kernel::loader::{CgroupRoot, Hook},
};

/// How often all cgroups are checked and a self-test runs.
const PERIOD: Duration = Duration::from_secs(30);
/// How often the check goes on.
const STEP_INTERVAL: Duration = Duration::from_millis(250);
/// The number of cgroups in one step, which takes less than a millisecond.
const STEP: usize = 8;

/// Checks periodically whether the attached programs are effective.
pub(crate) struct Verifier {
    steps: Interval,
    walk: Option<CgroupWalk>,
    /// The ids of the programs that the walk looks for.
    programs: Vec<u32>,
    self_test: Option<JoinHandle<SelfTestResult>>,
    coverage: Option<CgroupCoverage>,
    result: Option<SelfTestResult>,
    next: Option<Instant>,
    report: Option<AttachmentReport>,
    /// Whether endpoints with the address of a Service are not used behind a program of others.
    leaves_out_services: bool,
}

/// What is attached, and where.
pub(crate) struct SocketHooks<'a> {
    pub(crate) cgroup: &'a CgroupRoot,
    /// The hooks, each with the id of its program.
    pub(crate) programs: Vec<(&'static Hook, u32)>,
    /// A VIP of each family.
    pub(crate) vips: Vec<IpAddr>,
    /// The error that the programs refuse with.
    pub(crate) errno: i32,
}

impl Verifier {
    pub(crate) fn new(leaves_out_services: bool) -> Self {
        let mut steps = interval(STEP_INTERVAL);
        steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            steps,
            walk: None,
            programs: Vec::new(),
            self_test: None,
            coverage: None,
            result: None,
            next: None,
            report: None,
            leaves_out_services,
        }
    }

    /// Whether a new round is due.
    pub(crate) fn is_due(&self) -> bool {
        self.walk.is_none()
            && self.self_test.is_none()
            && self.next.is_none_or(|next| Instant::now() >= next)
    }

    /// Makes a round due at once, since something has been attached again.
    pub(crate) fn start_over(&mut self) {
        self.next = None;
    }

    /// Continues to check whether the socket programs are effective.
    async fn go_on(&mut self, core: &mut Core) -> Follow {
        if self.is_due() {
            // A VIP that only the maps contain can be wrong, so it has to be desired too.
            let realized = core.engine.realized();
            let wanted = &core.engine.desired().vips;
            let vips = || wanted.iter().copied().filter(|ip| realized.has_vip(*ip));
            let vips = [vips().find(IpAddr::is_ipv4), vips().find(IpAddr::is_ipv6)];
            self.begin(SocketHooks {
                cgroup: &core.installed.cgroup,
                programs: core.installed.hook_programs(),
                vips: vips.into_iter().flatten().collect(),
                errno: if core.installed.options.features.set_retval {
                    libc::ECONNREFUSED
                } else {
                    libc::EPERM
                },
            });
        }
        let programs = || core.installed.hook_programs();
        let has_ended = self.continue_round(seconds_since_epoch(), programs).await;
        if has_ended {
            self.note_cluster_ip(|| core.engine.cluster_ip_backend());
        }
        if self.leaves_out_services && self.tell_rules(core) {
            return Follow::Round;
        }
        if has_ended { Follow::Report } else { Follow::Nothing }
    }

    /// Tells the rules which program of others runs first. Returns whether that has changed.
    fn tell_rules(&self, core: &mut Core) -> bool {
        let latest = self.report.as_ref().map(|report| &report.coverage);
        let current = self.walk.as_ref().map(CgroupWalk::so_far).or(self.coverage.as_ref());
        // The walk begins with the cgroup where the programs are attached.
        let Some(coverage) = current.or(latest).filter(|coverage| coverage.cgroups > 0) else {
            return false;
        };
        let first = &coverage.translates_first;
        let is_new = *first != core.engine.node().facts.translates_first;
        if is_new {
            core.engine.configure(|node| node.facts.translates_first.clone_from(first));
        }
        is_new
    }

    /// Begins a round.
    pub(crate) fn begin(&mut self, hooks: SocketHooks<'_>) {
        self.next = Some(Instant::now() + PERIOD);
        if hooks.programs.is_empty() {
            self.report = None;
            return;
        }
        let root: PathBuf = hooks.cgroup.path.clone();
        self.programs = ids(&hooks.programs);
        self.walk = Some(CgroupWalk::new(&root, hooks.programs));
        (self.coverage, self.result) = (None, None);
        if hooks.vips.is_empty() {
            self.result = Some(SelfTestResult::NotRun("there is no VIP yet".to_owned()));
            // The next round is soon, since a VIP may be added.
            self.next = Some(Instant::now() + PERIOD / 10);
            return;
        }
        let SocketHooks { vips, errno, .. } = hooks;
        self.self_test = Some(tokio::task::spawn_blocking(move || start(&root, &vips, errno)));
    }

    /// Continues the round. Returns whether it has ended with a report. `programs`: the programs that are attached
    /// now.
    pub(crate) async fn continue_round(
        &mut self,
        now: u64,
        programs: impl Fn() -> Vec<(&'static Hook, u32)>,
    ) -> bool {
        self.continue_walk(programs);
        if let Some(self_test) = self.self_test.take_if(|self_test| self_test.is_finished()) {
            self.result = self_test.await.ok();
        }
        if self.walk.is_some() || self.self_test.is_some() {
            return false;
        }
        let (Some(coverage), Some(result)) = (self.coverage.take(), self.result.take()) else {
            return false;
        };
        let (self_test, self_test_says) = match result {
            SelfTestResult::Refused => (Some(true), None),
            SelfTestResult::NotRefused(why) => (Some(false), Some(why)),
            SelfTestResult::NotRun(why) => (None, Some(why)),
        };
        let report =
            AttachmentReport { at: now, coverage, self_test, self_test_says, cluster_ip: None };
        let former = self.report.replace(report.clone());
        for failing in report.failings() {
            if !former.as_ref().is_some_and(|former| former.failings().contains(&failing)) {
                tracing::warn!("{failing}");
            }
        }
        true
    }

    /// Notes a backend with the address of a Service, if a program of others runs before ours.
    pub(crate) fn note_cluster_ip(&mut self, find: impl FnOnce() -> Option<SocketAddr>) {
        if let Some(report) = &mut self.report
            && report.coverage.translates_first.is_some()
        {
            report.cluster_ip = find();
        }
    }

    fn continue_walk(&mut self, programs: impl Fn() -> Vec<(&'static Hook, u32)>) {
        let Some(walk) = &mut self.walk else { return };
        match walk.check_next(STEP) {
            Ok(None) => return,
            // The programs were switched meanwhile.
            Ok(Some(_)) if ids(&programs()) != self.programs => self.start_over(),
            Ok(coverage) => self.coverage = coverage,
            Err(error) => tracing::warn!("cannot look at cgroups: {error}; trying again"),
        }
        self.walk = None;
    }
}

impl Feature for Verifier {
    fn wait(&mut self) -> Wait<'_> {
        Box::pin(async {
            self.steps.tick().await;
        })
    }

    fn act<'a>(&'a mut self, core: &'a mut Core) -> Act<'a> {
        Box::pin(self.go_on(core))
    }

    fn after_repair(&mut self) {
        self.start_over();
    }

    fn report(&self, _: &Core, sections: &mut Sections) {
        sections.set(SECTION, &self.report);
    }
}

fn ids(programs: &[(&Hook, u32)]) -> Vec<u32> {
    programs.iter().map(|(_, id)| *id).collect()
}
