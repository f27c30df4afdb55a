//! Working memory of each task: what programs have on kernels that preempt them (`PREEMPT_RT`).

use aya::{
    programs::ProgramType,
    sys::{BpfHelper, is_helper_supported},
};
use rustix::thread::sched_getcpu;

use crate::{
    Check, choice, errors, flows, fragments, hairpin, on_each, prelude::*, refusals, uplink,
};

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    suite.case("tasks: memory of their own, and packets as ever", |_| as_ever());
    suite.case("tasks: two on one CPU share no memory", |_| two());
}

/// Loads the programs that such a kernel would have.
fn begin() -> Result<Fixture> {
    let helper = BpfHelper::BPF_FUNC_get_current_pid_tgid;
    if !is_helper_supported(ProgramType::SchedClassifier, helper)? {
        return Err(skip("programs of devices cannot ask for the task (Linux 6.10)"));
    }
    let (fixture, _) = Fixture::begin(Coverage::default(), true)?;
    Ok(fixture)
}

fn as_ever() -> Result {
    let checks: [(&str, Check); 8] = [
        ("TCP", flows::tcp),
        ("fragments", fragments::both_ways),
        ("hairpins", hairpin::both_ways),
        ("errors", errors::every_kind),
        ("resets", refusals::resets),
        ("ICMP", refusals::unreachable),
        ("affinity", choice::one_client),
        ("uplinks", uplink::to_vip),
    ];
    let mut fixture = begin()?;
    for family in Family::ALL {
        for (name, check) in checks {
            on_each(&mut fixture, family, &Medium::ALL, check)
                .with_context(|| format!("{name}, {family}"))?;
        }
    }
    let tasks = fixture.packets_of_tasks()?.len();
    ensure!(tasks == 1, "{tasks} tasks have memory, not this one alone");
    Ok(())
}

/// The fixture stays on one CPU, and so do threads that it starts.
fn two() -> Result {
    let mut fixture = begin()?;
    fixture.reset(Family::V4, Medium::Ethernet)?;
    let vip = Family::V4.vip(1);
    let service = fixture.service(Protocol::Udp, vip, &[Family::V4.pod(1)])?;
    let [one, other] = [1, 2].map(|client| TestFlow::new(Family::V4.client(client), &service));
    fixture.opens(&one, &one.first())?;
    thread::scope(|scope| scope.spawn(|| fixture.opens(&other, &other.first())).join())
        .map_err(|_| anyhow::anyhow!("the thread panicked"))??;
    let mut found = fixture.packets_of_tasks()?;
    found.sort();
    let cpu = u32::try_from(sched_getcpu())?;
    let expected = [one, other].map(|flow| (cpu, flow.key(Side::Client)));
    ensure!(found == expected, "the tasks have {found:?}, not {expected:?}");
    Ok(())
}
