//! The cost suite: what the programs cost those who use no VIP, as figures that are the same on each
//! run, against a budget.

use std::{env, fs, path::PathBuf, process::ExitCode};

use anyhow::Context as _;

mod budget;
mod figures;
mod input;
mod kernel;
mod report;
mod verifier;

use self::figures::Figures;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let proposes = match arguments.as_slice() {
        [] => false,
        [one] if one == "--propose" => true,
        _ => {
            eprintln!("usage: [--propose]");
            return ExitCode::from(2);
        }
    };
    let figures = match measure() {
        Ok(figures) => figures,
        Err(error) => {
            println!("cannot measure: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    if proposes {
        report::propose(&figures);
        ExitCode::SUCCESS
    } else if report::print(&figures) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn measure() -> anyhow::Result<Figures> {
    let path = object_path()?;
    let elf = fs::read(&path)
        .with_context(|| format!("cannot read {}: run `cargo xtask build`", path.display()))?;
    Figures::measure(&elf)
}

/// `MCS_EBPF_OBJECT`, or what `cargo xtask build` has left.
fn object_path() -> anyhow::Result<PathBuf> {
    if let Some(path) = env::var_os("MCS_EBPF_OBJECT") {
        return Ok(path.into());
    }
    let own = env::current_exe()?;
    let target = own.ancestors().nth(2).context("this program has no directory")?;
    Ok(target.join("ebpf/mcs-ebpf.o"))
}
