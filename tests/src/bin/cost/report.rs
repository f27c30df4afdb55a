//! Prints the costs beside their budgets.

use crate::{figures::SizeFigure, prelude::*};

/// Prints every figure beside its budget. Returns whether all are within it.
pub(crate) fn print(figures: &Figures) -> bool {
    let mut over = Vec::new();
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    println!("{:<14} {:>14}  {:>16}", "PROGRAM", "INSTRUCTIONS", "VERIFIED");
    for SizeFigure { budget, instructions, verified } in &figures.sizes {
        let mut compare = |value, most, what| compare(&mut over, budget.program, value, most, what);
        let length = compare(*instructions, budget.instructions, "instructions");
        let steps = verified.map_or_else(
            || "unknown".to_owned(),
            |steps| compare(steps, budget.verified, "verified"),
        );
        println!("{:<14} {length:>14}  {steps:>16}", budget.program);
    }
    println!("\n{:<14} {:<31} {:>12}  {:>6}", "PROGRAM", "WITH", "EXECUTED", "CALLS");
    for MissFigure { budget, executed, calls } in &figures.misses {
        let input = budget.input.to_string();
        let name = format!("{} with {input}", budget.program);
        let mut compare = |value, most, what| compare(&mut over, &name, value, most, what);
        let steps = compare(*executed, budget.executed, "executed");
        let count = compare(calls.len() as u64, budget.calls, "calls");
        let calls = calls.join(", ");
        println!("{:<14} {input:<31} {steps:>12}  {count:>6}  {calls}", budget.program);
    }
    println!(
        "
Each figure is followed by its budget. Linux {release} verified the programs. Executed are
instructions as in the object when there is nothing to do, and calls of helpers beside them: the
kernel makes several instructions of one that reads the context, and puts instructions in place of
look-ups in arrays and, in part, in hash maps."
    );
    if !over.is_empty() {
        println!("\nOver the budget (tests/src/bin/cost/budget.rs):");
        for what in &over {
            println!("  {what}");
        }
    }
    over.is_empty()
}

/// A figure beside its budget, noted if it is over that.
fn compare(over: &mut Vec<String>, name: &str, value: u64, most: u64, what: &str) -> String {
    let text = format!("{value} / {most}");
    if value > most {
        over.push(format!("{name}: {text} {what}"));
    }
    text
}

/// Prints the rows of a budget that these figures are within.
pub(crate) fn propose(figures: &Figures) {
    let more = |value: u64, percent: u64| value + (value * percent).div_ceil(100);
    for SizeFigure { budget, instructions, verified } in &figures.sizes {
        let verified = verified.map_or(budget.verified, |verified| more(verified, 25));
        println!("size(\"{}\", {}, {verified}),", budget.program, more(*instructions, 10));
    }
    for MissFigure { budget, executed, calls } in &figures.misses {
        let (executed, calls) = (more(*executed, 10), calls.len());
        println!("miss(\"{}\", {:?}, {executed}, {calls}),", budget.program, budget.input);
    }
}
