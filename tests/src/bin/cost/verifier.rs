//! What the kernel's verifier says.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use aya::{EbpfLoader, programs::Program};

use crate::figures::GLOBALS;

/// Loads every program. Returns how many instructions the verifier looked at, where it tells
/// (Linux 5.16). The programs go when this returns.
pub(crate) fn load(elf: &[u8]) -> anyhow::Result<BTreeMap<String, u32>> {
    let mut loader = EbpfLoader::new();
    for (name, value) in &GLOBALS {
        loader.override_global(name, *value, true);
    }
    let mut object = loader.load(elf).context("cannot load the object")?;
    let mut counts = BTreeMap::new();
    for (name, program) in object.programs_mut() {
        match program {
            Program::CgroupSockAddr(program) => program.load(),
            Program::SchedClassifier(program) => program.load(),
            _ => bail!("{name} is of an unknown kind"),
        }
        .with_context(|| format!("the kernel does not take {name}"))?;
        if let Some(count) = program.info()?.verified_instruction_count() {
            counts.insert(name.to_owned(), count);
        }
    }
    Ok(counts)
}
