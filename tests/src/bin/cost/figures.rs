//! Measures the programs: instructions, verified instructions, executed instructions and helper calls.

use mcs_tests::interpreter::{Memory, run};
use rustix::process::geteuid;

use crate::{
    budget::{MISSES, Miss, SIZES, Size},
    kernel::Node,
    prelude::*,
    verifier,
};

/// As the agent sets them on a recent kernel, without `--log-programs`, `--socket-lb=host` and `--orphan=release`.
pub(crate) const GLOBALS: [(&str, &[u8]); 9] = [
    ("HAVE_SET_RETVAL", &[1]),
    ("HAVE_COARSE_CLOCK", &[1]),
    ("AYA_LOG_LEVEL", &[0]),
    ("TRACE", &[0]),
    ("SCRATCH_PER_TASK", &[0]),
    ("ONLY_NETNS", &[0; 8]),
    ("RELEASE_ORPHANS", &[0]),
    ("COUNT_IMPORTS", &[1]),
    // One word.
    ("HINT_BUCKETS", &[32, 0, 0, 0]),
];

/// All that is measured.
pub(crate) struct Figures {
    pub(crate) sizes: Vec<SizeFigure>,
    pub(crate) misses: Vec<MissFigure>,
}

/// A program.
pub(crate) struct SizeFigure {
    pub(crate) budget: &'static Size,
    pub(crate) instructions: u64,
    /// Absent without root, and where the kernel does not tell.
    pub(crate) verified: Option<u64>,
}

/// A run of a program that has nothing to do.
pub(crate) struct MissFigure {
    pub(crate) budget: &'static Miss,
    pub(crate) executed: u64,
    /// In words.
    pub(crate) calls: Vec<String>,
}

impl Figures {
    /// Measures the programs of an object.
    pub(crate) fn measure(elf: &[u8]) -> Result<Self> {
        let object = Object::link(elf, &GLOBALS)?;
        for name in object.programs.keys() {
            ensure!(SIZES.iter().any(|size| size.program == name), "{name} has no budget");
        }
        let verified =
            if geteuid().is_root() { verifier::load(elf, &GLOBALS)? } else { BTreeMap::default() };
        let sizes = SIZES
            .iter()
            .map(|budget| {
                let name = budget.program;
                let program = object.programs.get(name).with_context(|| format!("no {name}"))?;
                let instructions = u64::try_from(program.function.instructions.len())?;
                let verified = verified.get(name).map(|count| u64::from(*count));
                Ok(SizeFigure { budget, instructions, verified })
            })
            .collect::<Result<_>>()?;
        let misses = MISSES
            .iter()
            .map(|miss| {
                execute(&object, miss)
                    .with_context(|| format!("{} with {}", miss.program, miss.input))
            })
            .collect::<Result<_>>()?;
        Ok(Self { sizes, misses })
    }
}

fn execute(object: &Object, budget: &'static Miss) -> Result<MissFigure> {
    let program = object.programs.get(budget.program).context("no such program")?;
    let mut memory = Memory::default();
    let mut node = Node::new(object, &mut memory, budget.input)?;
    let context = node.context;
    let outcome = run(&program.function.instructions, &mut memory, &mut node, context)?;
    ensure!(
        outcome.result & 0xffff_ffff == budget.input.passes(),
        "it does not let it pass: it returned {:#x}",
        outcome.result
    );
    Ok(MissFigure { budget, executed: outcome.instructions, calls: node.calls })
}
