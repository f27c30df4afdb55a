//! Runs one case with one number of services.

use crate::prelude::*;

/// What a case works with.
pub(crate) struct Session<'a> {
    pub(crate) case: &'static str,
    /// How many services there are.
    pub(crate) services: u32,
    pub(crate) world: &'a World,
    pub(crate) plan: &'a Plan,
    pub(crate) progress: &'a Progress,
    pub(crate) figures: &'a mut Figures,
}

impl Session<'_> {
    /// Lets the API server run, and catch up, while `work` is done.
    pub(crate) fn served(&mut self, work: impl FnOnce(&mut Self) -> Result) -> Result {
        let server = &self.world.member.server;
        server.thaw()?;
        let done = daemon::wait_until_settled(server.pid()).and_then(|()| work(self));
        let frozen = server.freeze();
        done.and(frozen)
    }

    /// Gives each contender its turn, round by round, each time with another one first. `sample` is
    /// run once before that, to warm up. A contender that fails is not measured, and why is noted.
    pub(crate) fn rounds(
        &mut self,
        quantity: &str,
        unit: Unit,
        contenders: &[Contender],
        sample: impl Fn(&Lane) -> Result<f64>,
    ) {
        let there = contenders.iter().filter(|contender| contender.is_there());
        let mut outcomes: Vec<_> = there.map(|contender| (*contender, Ok(Vec::new()))).collect();
        for round in 0..=self.plan.rounds {
            self.progress.detail(format!("{quantity}, round {round} of {}", self.plan.rounds));
            for (contender, outcome) in &mut outcomes {
                let Ok(rounds) = outcome else { continue };
                match self.lane(*contender).and_then(&sample) {
                    Ok(_) if round == 0 => {}
                    Ok(value) => rounds.push(value),
                    Err(error) => *outcome = Err(error),
                }
            }
            outcomes.rotate_left(1);
        }
        outcomes.sort_by_key(|(contender, _)| *contender);
        for (contender, outcome) in outcomes {
            self.add(quantity, unit, contender, outcome);
        }
    }

    /// Notes why there is none of these.
    pub(crate) fn fail(
        &mut self,
        quantities: &[(&str, Unit)],
        contender: Contender,
        why: &anyhow::Error,
    ) {
        for (quantity, unit) in quantities {
            self.add(quantity, *unit, contender, Err(anyhow!("{why:#}")));
        }
    }

    /// Notes what came of measuring.
    pub(crate) fn add(
        &mut self,
        quantity: &str,
        unit: Unit,
        contender: Contender,
        rounds: Result<Vec<f64>>,
    ) {
        if let Err(error) = &rounds {
            self.progress.note(format!("{quantity} of {contender} failed: {error:#}"));
        }
        let key =
            Key { case: self.case, services: Some(self.services), quantity: quantity.to_owned() };
        self.figures.add(Figure { key, contender, unit, outcome: rounds.into() });
    }

    /// The lane of a contender.
    pub(crate) fn lane(&self, contender: Contender) -> Result<&Lane> {
        let lane = self.world.lanes.iter().find(|lane| lane.contender == contender);
        lane.with_context(|| {
            let absent = self.world.absent.iter().find(|(absent, _)| *absent == contender);
            absent.map_or("it does not take part".to_owned(), |(_, reason)| reason.clone())
        })
    }
}
