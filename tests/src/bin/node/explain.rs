//! `mcs-agent explain --netns`: the packet path as the client of a pod finds it.

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    for by in Mechanism::BOTH {
        suite.case(
            format!("explain names the programs of a pod's device, by {by}"),
            move |world| {
                can_attach(by)?;
                of_pod(world, by)
            },
        );
    }
}

fn of_pod(world: &World, by: Mechanism) -> Result {
    let mut bench = Bench::start(world, by, &[])?;
    // The agent of this suite has no socket hooks.
    let said = explain(&bench, &["--probe"], 0, &["packets-only"])?;
    let device = &said["client"]["device"];
    ensure!(device["name"] == FIRST && device["detached"] == json!([]), "{said:#}");
    ensure!(device["programs"] == json!(["to_pod", "from_pod"]), "{said:#}");
    let vips = said["probe"]["vips"].as_array().context("no VIP was probed")?;
    let is_connected = |one: &Value| one["outcome"] == "connected";
    ensure!(vips.len() == 2 && vips.iter().all(is_connected), "{said:#}");
    if by == Mechanism::Clsact {
        return Ok(());
    }
    // Nobody attaches it again.
    let key = ("from_pod".to_owned(), u64::from(bench.node().index(FIRST)?));
    let (link, _) = *bench.links()?.get(&key).context("no link")?;
    bench.site.agent.kill()?;
    bpf::detach_link(u32::try_from(link)?)?;
    let codes = ["agent-down", "device-hook-missing", "socket-lb-off"];
    let said = explain(&bench, &[], 1, &codes)?;
    ensure!(said["client"]["device"]["detached"] == json!(["from_pod"]), "{said:#}");
    Ok(())
}

/// What it says of the first pod, if it ends with this status and finds exactly these codes.
fn explain(bench: &Bench, flags: &[&str], status: i32, codes: &[&str]) -> Result<Value> {
    let target = format!("default/{}:{}", bench.target.service.name(), TCP.0);
    let netns = bench.client()?.netns.path().display().to_string();
    let words = [&[target.as_str(), "--netns", &netns], flags].concat();
    bench.site.agent.explain(bench.node(), &words, status, codes)
}
