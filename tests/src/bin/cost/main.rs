//! The cost suite: deterministic costs of the programs for traffic to no VIP, and of a change and the first list in the
//! agent, against a budget.

use std::env;

use self::{budget::VERIFIED_ON_ANY_KERNEL, figures::GLOBALS};
use crate::prelude::*;

mod age;
mod agent;
mod allocator;
mod arrival;
mod budget;
mod change;
mod figures;
mod first_list;
mod input;
mod kernel;
mod prelude;
mod report;
mod verifier;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let work = match arguments.as_slice() {
        [] => check,
        [one] if one == "--propose" => propose,
        [one] if one == "--verified" => verified,
        _ => {
            eprintln!("usage: [--propose | --verified]");
            return ExitCode::from(2);
        }
    };
    match read_object().and_then(|elf| work(&elf)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("cannot measure: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all is within the budget.
fn check(elf: &[u8]) -> Result<bool> {
    let figures = Figures::measure(elf)?;
    let programs = [report::print(&figures), age::check(&figures)];
    let agent = [change::check()?, arrival::check()?, first_list::check()?];
    Ok(programs == [true; 2] && agent == [true; 3])
}

fn propose(elf: &[u8]) -> Result<bool> {
    report::propose(&Figures::measure(elf)?);
    Ok(true)
}

/// Prints for each program how many instructions this kernel's verifier looks at, as the agent loads
/// it here with `--orphan=release`, which adds some. Returns whether every kernel may look at as many.
fn verified(elf: &[u8]) -> Result<bool> {
    let features = Features::probe().context("cannot probe the kernel's eBPF features")?;
    let have_set_retval = [u8::from(features.set_retval)];
    let have_coarse_clock = [u8::from(features.coarse_clock)];
    let scratch_per_task = [u8::from(features.preempts_packets)];
    let globals = GLOBALS.map(|(name, value)| match name {
        "HAVE_SET_RETVAL" => (name, have_set_retval.as_slice()),
        "RELEASE_ORPHANS" => (name, [1].as_slice()),
        "HAVE_COARSE_CLOCK" => (name, have_coarse_clock.as_slice()),
        "SCRATCH_PER_TASK" => (name, scratch_per_task.as_slice()),
        _ => (name, value),
    });
    let mut is_within = true;
    for (program, count) in verifier::load(elf, &globals)? {
        println!("{program} {count}");
        if count > VERIFIED_ON_ANY_KERNEL {
            println!(
                "{program} is over the budget of {VERIFIED_ON_ANY_KERNEL} (tests/src/bin/cost/budget.rs)"
            );
            is_within = false;
        }
    }
    Ok(is_within)
}

fn read_object() -> Result<Vec<u8>> {
    let path = object_path()?;
    fs::read(&path)
        .with_context(|| format!("cannot read {}: run `cargo xtask build`", path.display()))
}

/// `MCS_EBPF_OBJECT`, or what `cargo xtask build` has left.
fn object_path() -> Result<PathBuf> {
    if let Some(path) = env::var_os("MCS_EBPF_OBJECT") {
        return Ok(path.into());
    }
    let own = env::current_exe()?;
    let target = own.ancestors().nth(2).context("this program has no directory")?;
    Ok(target.join("ebpf/mcs-ebpf.o"))
}
