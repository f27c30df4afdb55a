//! All endpoints of a large service change.

use super::{Case, Sizes};
use crate::{objects::MOST_IN_A_SLICE, prelude::*};

pub(super) const CASE: Case = Case {
    name: mcs_tests::subjects::ROLLING.name,
    note: "100 slices get 100 other endpoints each, one after the other and as fast as the API server takes \
           them; then the probe's endpoint changes, which is in effect when all is.",
    sizes: Sizes::Largest,
    contenders: &Contender::FOLLOWING,
    time,
    run: |session| session.served(run),
};

/// No other service has this number.
const NUMBER: u32 = 20_001;
const ENDPOINTS: u32 = 10_000;

fn time(plan: &Plan, _: u32) -> Duration {
    Duration::from_secs(15) + Duration::from_secs(12) * rolls(plan)
}

fn rolls(plan: &Plan) -> u32 {
    plan.rounds.div_ceil(5)
}

fn run(session: &mut Session<'_>) -> Result {
    let mut probe = Probe::create(session.world)?;
    let api = session.world.member.server.another_client()?;
    let mut generation = 0;
    let mut large = || {
        generation += 1;
        Service::large(NUMBER, ENDPOINTS, generation)
    };
    let first = large();
    api.apply_all(&[first.service(), first.import()])?;
    api.create_many(&first.slices())?;
    for contender in Contender::FOLLOWING.into_iter().filter(|one| one.is_there()) {
        let rolls = (0..rolls(session.plan)).map(|roll| {
            session.progress.detail(format!("{contender}, roll {}", roll + 1));
            let lane = session.lane(contender)?;
            let next = large();
            probe.awake(lane, |probe| {
                let ((all, last), cpu) = daemon::cpu_time_for(lane, || {
                    let begin = Instant::now();
                    for slice in next.slices() {
                        api.replace(&slice)?;
                    }
                    let change = probe.change(lane)?;
                    Ok((begin.elapsed(), change.from_write))
                })?;
                Ok([all, last, cpu].map(|time| time.as_secs_f64()))
            })
        });
        let quantities = ["first write to effect", "last write to effect", "CPU time"]
            .map(|quantity| (quantity, Unit::Seconds));
        match rolls.collect::<Result<Vec<[f64; 3]>>>() {
            Ok(rolls) => {
                for (number, (quantity, unit)) in quantities.into_iter().enumerate() {
                    let values = rolls.iter().map(|roll| roll[number]).collect();
                    session.add(quantity, unit, contender, Ok(values));
                }
            }
            Err(error) => session.fail(&quantities, contender, &error),
        }
    }
    let last = large();
    for slice in last.slices() {
        api.delete(&slice)?;
    }
    api.delete(&last.import())?;
    api.delete(&last.service())
}

const _: () = assert!((ENDPOINTS as usize).is_multiple_of(MOST_IN_A_SLICE));
