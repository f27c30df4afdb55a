//! Plays a story: the controllers run in this thread, and time passes as soon as all of them wait.

use std::{
    collections::BTreeMap,
    error, fmt, io, mem,
    sync::Arc,
    time::{self, Duration},
};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::{
    runtime,
    task::LocalSet,
    time::{Instant, sleep, sleep_until},
};

use mcs_controller::core::clock;

#[cfg(test)]
use super::witness::Broken;
use super::{
    Story,
    journal::Journal,
    member::{Member, holder},
    panics,
    step::{Shown, Step},
    store::beginning,
    view::View,
    witness::{Invariant, Witness},
};
use crate::script::Outcomes;

/// The clusters of a story that names none.
const CLUSTERS: [&str; 2] = ["c1", "c2"];
/// How long an `expect` waits for what follows from the steps before.
const SETTLED: Duration = Duration::from_secs(5);
/// How long nothing is written after all has settled.
const STILL: Duration = Duration::from_mins(5);
/// How long the watches of a killed controller last at most.
const LAST_WORDS: Duration = Duration::from_mins(15);
/// How often the witness looks while time passes.
const GLANCE: Duration = Duration::from_mins(5);
/// How often another controller looks at its objects.
const LOOK: Duration = Duration::from_millis(20);

/// A runtime whose clock stands still from its beginning: timers are rounded to milliseconds since then.
fn paused() -> io::Result<runtime::Runtime> {
    runtime::Builder::new_current_thread().enable_all().start_paused(true).build()
}

/// Nobody has time for the rest of a story.
#[derive(Debug)]
pub(super) struct OutOfTime;

impl fmt::Display for OutOfTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no time for the rest")
    }
}

impl error::Error for OutOfTime {}

/// What has come out.
pub(super) struct Played {
    /// At each `expect`.
    pub(super) outcomes: Outcomes,
    pub(super) witness: Witness,
    /// How much time has passed.
    pub(super) time: Duration,
    /// The line of the step that has failed, and why.
    pub(super) failure: Option<(usize, anyhow::Error)>,
}

/// Plays a story.
pub(super) fn play(story: &Story) -> anyhow::Result<Outcomes> {
    let played = play_with(story, Witness::default(), None)?;
    match played.failure {
        Some((line, error)) => Err(error.context(story.at(line))),
        None => Ok(played.outcomes),
    }
}

/// Plays a story, in front of this witness, until this time at the latest.
pub(super) fn play_with(
    story: &Story,
    witness: Witness,
    end: Option<time::Instant>,
) -> anyhow::Result<Played> {
    let runtime = paused()?;
    let all = async {
        let began = Instant::now();
        let mut play = Play::begin(story, witness)?;
        play.end = end;
        let failure = play.all(story).await.err();
        let Play { outcomes, witness, .. } = play;
        Ok(Played { outcomes, witness, time: began.elapsed(), failure })
    };
    panics::noting(|| LocalSet::new().block_on(&runtime, all))
}

/// Plays a story. Returns how many bytes its controllers hold at its end, by what this thread has `held`.
pub(super) fn weighed(story: &Story, held: fn() -> u64) -> anyhow::Result<u64> {
    let runtime = paused()?;
    LocalSet::new().block_on(&runtime, async {
        let mut play = Play::begin(story, Witness::default())?;
        play.all(story).await.map_err(|(_, error)| error)?;
        play.witness.look(Instant::now())?;
        let before = held();
        for member in play.members.values_mut() {
            member.kill(None);
        }
        // Watches end once they have something to say.
        sleep(LAST_WORDS).await;
        play.witness.look(Instant::now())?;
        Ok(before.saturating_sub(held()))
    })
}

/// Plays a story, and what somebody does at its end.
#[cfg(test)]
pub(super) fn doctored(
    story: &Story,
    doctor: impl FnOnce(&mut BTreeMap<String, Member>, &mut Witness) -> Result<(), Broken>,
) -> anyhow::Result<Option<Broken>> {
    let runtime = paused()?;
    LocalSet::new().block_on(&runtime, async {
        let mut play = Play::begin(story, Witness::default())?;
        play.all(story).await.map_err(|(_, error)| error)?;
        Ok(doctor(&mut play.members, &mut play.witness).err())
    })
}

struct Play {
    members: BTreeMap<String, Member>,
    view: View,
    shown: Shown,
    outcomes: Outcomes,
    /// What the next `expect` begins with.
    told: Vec<String>,
    witness: Witness,
    journal: Journal,
    /// When somebody has no more time to play.
    end: Option<time::Instant>,
    /// Whether the story was drawn, so that a step need not find what it is about.
    is_drawn: bool,
}

impl Play {
    fn begin(story: &Story, mut witness: Witness) -> anyhow::Result<Self> {
        let clusters = story.steps().find_map(|(_, step)| match step {
            Step::Clusters(ids) => Some(ids.iter().map(String::as_str).collect()),
            _ => None,
        });
        let ids: Vec<&str> = clusters.unwrap_or_else(|| CLUSTERS.to_vec());
        let seed = story.steps().find_map(|(_, step)| match step {
            Step::Seed(seed) => Some(*seed),
            _ => None,
        });
        fastrand::seed(seed.unwrap_or_default());
        clock::play_from(beginning());
        let journal = Journal::default();
        let mut members = BTreeMap::new();
        for id in &ids {
            let others: Vec<_> = ids.iter().copied().filter(|other| other != id).collect();
            let mut member = Member::start(id, &others, &journal)?;
            member.run(None, None);
            members.insert((*id).to_owned(), member);
        }
        let (view, shown) = (View::default(), Shown::default());
        let (outcomes, told, is_drawn) = (Outcomes::new(), Vec::new(), seed.is_some());
        witness.begin(journal.clone(), is_drawn);
        Ok(Self { members, view, shown, outcomes, told, witness, journal, end: None, is_drawn })
    }

    async fn all(&mut self, story: &Story) -> Result<(), (usize, anyhow::Error)> {
        sleep(SETTLED).await;
        self.view.skip(&self.members);
        for (line, step) in story.steps() {
            self.whole_step(step).await.map_err(|error| (line, error))?;
        }
        Ok(())
    }

    /// What is dead is started again, as kubelet does.
    fn revive(&mut self) -> anyhow::Result<()> {
        for token in self.journal.take_dead() {
            let (id, replica) = holder(&token);
            self.witness.note_process(id);
            let member = self.member(id)?;
            member.kill(replica);
            member.run(replica, None);
        }
        Ok(())
    }

    /// A step, and what the witness says of it.
    async fn whole_step(&mut self, step: &Step) -> anyhow::Result<()> {
        self.revive()?;
        if !step.is_usual() {
            self.witness.note_trouble();
        }
        if let Step::Restart(of, _)
        | Step::Kill(of)
        | Step::End(of)
        | Step::Start(of)
        | Step::Replicas(of) = step
        {
            for id in of {
                self.witness.note_process(holder(id).0);
            }
        }
        let done = self.step(step).await;
        if !self.is_drawn {
            done?;
        }
        self.look_at_all()?;
        if let Step::Settle(time) = step {
            let mut healed = *time;
            self.journal.spare();
            for member in self.members.values_mut() {
                member.heal();
            }
            self.pass(healed).await?;
            self.witness.settled(&self.members)?;
            healed = STILL;
            self.pass(healed).await?;
            self.witness.still(&self.members)?;
        }
        for member in self.members.values_mut() {
            member.check().await.map_err(|error| Invariant::Alive.broken(format!("{error:#}")))?;
        }
        let panics = panics::take();
        if panics.is_empty() {
            Ok(())
        } else {
            Err(Invariant::Alive.broken(panics.join("\n")).into())
        }
    }

    /// The witness looks, and so do the agents of a drawn story.
    fn look_at_all(&mut self) -> anyhow::Result<()> {
        self.witness.look(Instant::now())?;
        if self.is_drawn {
            self.members.values_mut().try_for_each(Member::look)?;
        }
        Ok(())
    }

    /// Lets time pass, and looks often.
    async fn pass(&mut self, time: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            sleep_until(end.min(Instant::now() + GLANCE)).await;
            for member in self.members.values() {
                member.server.compact();
            }
            self.revive()?;
            self.look_at_all()?;
            if self.end.is_some_and(|end| time::Instant::now() >= end) {
                return Err(OutOfTime.into());
            }
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> anyhow::Result<()> {
        match step {
            Step::Clusters(_) | Step::Seed(_) | Step::Settle(_) => {}
            Step::Slow(of, latency) => self.change(of, |one| one.server.slow(*latency))?,
            Step::Lag(of, lag) => self.change(of, |one| one.server.lag(*lag))?,
            Step::Apply(of, objects) => {
                self.each(of, |one| objects.iter().try_for_each(|object| one.apply(object)))?;
            }
            Step::Delete(of, key) => self.each(of, |one| one.delete(key))?,
            Step::Hub(hub) => {
                let all: Vec<_> = self.members.keys().cloned().collect();
                self.each(&all, |one| one.publish_at(hub, &all))?;
            }
            Step::Replicas(of) => self.change(of, Member::replicate)?,
            Step::Clock(of, skew) => self.change(of, |one| one.set_clock(*skew))?,
            Step::Restart(of, flags) => self.each_replica(of, |one, replica| {
                one.kill(replica);
                one.run(replica, Some(flags.clone()));
            })?,
            Step::Kill(of) => self.each_replica(of, Member::kill)?,
            Step::End(of) => {
                for id in of {
                    let (id, replica) = holder(id);
                    self.member(id)?.end(replica).await?;
                }
            }
            Step::Start(of) => self.each_replica(of, |one, replica| one.run(replica, None))?,
            Step::Mood(of, mood) => {
                for one in of {
                    let (id, reader) = one.split_once('/').unwrap_or((one, ""));
                    self.member(id)?.server.set_mood(reader, *mood);
                }
            }
            Step::Forget(of) => self.change(of, |one| one.server.forget())?,
            Step::Refuse(of, refusal) => {
                self.change(of, |one| one.server.refuse(refusal.clone()))?;
            }
            Step::Allow(of) => self.change(of, |one| one.server.allow())?,
            Step::Serve(of, kind, is_served) => {
                self.change(of, |one| one.server.serve(kind, *is_served))?;
            }
            Step::Backup(of, is_back) => self.each(of, |one| one.backup(*is_back))?,
            Step::Snapshot(of, is_back) => self.change(of, |one| one.snapshot(*is_back))?,
            Step::Lead(of, reader, other) => {
                let other = Arc::clone(&self.member(other)?.server);
                self.member(of)?.server.lead(reader, &other);
            }
            Step::Rotate(of, peer) => {
                let oldest = self.member(of)?.rotate(peer)?;
                self.member(peer)?.server.revoke(of, oldest);
            }
            Step::Die(of, writes) => self.journal.doom(of, *writes),
            Step::Forge(of, number) => {
                let hub = self.member(of)?.hub().map(str::to_owned);
                self.witness.note_hostile(of);
                let server = Arc::clone(&self.member(hub.as_deref().unwrap_or(of))?.server);
                self.member(of)?.forge(&server, *number)?;
            }
            Step::Plain(of) => self.change(of, |one| one.server.make_plain())?,
            Step::Prune(of, plural, field) => {
                self.change(of, |one| one.server.change(|store| store.prune(plural, field)))?;
            }
            Step::Contest(of, time, objects) => {
                for id in of {
                    self.contest(id, *time, objects).await?;
                }
            }
            Step::Wait(time) => self.pass(*time).await?,
            Step::Expect(shown) => {
                self.shown.clone_from(shown);
                let outcome = self.look().await?;
                self.outcomes.push(outcome);
            }
            Step::ExpectNoChange => {
                let outcome = self.look().await?;
                let before = self.outcomes.last().context("nothing was expected before")?;
                let diff = similar::TextDiff::from_lines(before, &outcome);
                let diff = diff.unified_diff().header("before", "now").to_string();
                ensure!(*before == outcome, "it has changed:\n{diff}");
            }
        }
        Ok(())
    }

    /// The next `expect` tells how often the other controller has applied each object.
    async fn contest(&mut self, id: &str, time: Duration, objects: &[Value]) -> anyhow::Result<()> {
        let mut counts = vec![0; objects.len()];
        let end = Instant::now() + time;
        while Instant::now() < end {
            let member = self.member(id)?;
            for (object, count) in objects.iter().zip(&mut counts) {
                *count += u32::from(member.mend(object)?);
            }
            sleep(LOOK).await;
        }
        for (object, count) in objects.iter().zip(counts) {
            let kind = object["kind"].as_str().unwrap_or_default();
            self.told.push(format!("{id}: {count} writes of a {kind} by another controller"));
        }
        Ok(())
    }

    async fn look(&mut self) -> anyhow::Result<String> {
        sleep(self.shown.after.unwrap_or(SETTLED)).await;
        for member in self.members.values_mut() {
            member.check().await?;
        }
        let mut told = mem::take(&mut self.told);
        told.push(self.view.of(&self.members, &self.shown));
        Ok(told.join("\n"))
    }

    fn member(&mut self, id: &str) -> anyhow::Result<&mut Member> {
        self.members.get_mut(id).with_context(|| format!("there is no cluster {id}"))
    }

    /// Acts on clusters, or on replicas of their controllers, such as `c1+a`.
    fn each_replica(
        &mut self,
        of: &[String],
        mut act: impl FnMut(&mut Member, Option<&str>),
    ) -> anyhow::Result<()> {
        for one in of {
            let (id, replica) = holder(one);
            act(self.member(id)?, replica);
        }
        Ok(())
    }

    fn change(&mut self, ids: &[String], mut act: impl FnMut(&mut Member)) -> anyhow::Result<()> {
        self.each(ids, |member| {
            act(member);
            Ok(())
        })
    }

    fn each(
        &mut self,
        ids: &[String],
        mut act: impl FnMut(&mut Member) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        ensure!(!ids.is_empty(), "of which cluster?");
        ids.iter().try_for_each(|id| act(self.member(id)?))
    }
}
