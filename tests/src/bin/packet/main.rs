//! The packet suite: the programs of the packet path, run by `BPF_PROG_TEST_RUN` on packets that an
//! independent implementation builds, with all that they write compared after each one.

use clap::Parser as _;
use mcs_tests::suite::Args;

use crate::prelude::*;

mod checksums;
mod choice;
mod collision;
mod coverage;
mod departed;
mod echo;
mod errors;
mod expect;
mod family;
mod fixture;
mod flows;
mod fragments;
mod fuzz;
mod hairpin;
mod headers;
mod hostile;
mod invariants;
mod kernel;
mod medium;
mod misses;
mod packet;
mod passed;
mod prelude;
mod refusals;
mod removal;
mod row;
mod segments;
mod table;
mod tables;
mod tasks;
mod test_flow;
mod uplink;

fn main() -> ExitCode {
    let mut suite = Suite::default();
    suite.case("packets whose sum the kernel knows", has_sums);
    misses::cases(&mut suite);
    flows::cases(&mut suite);
    headers::cases(&mut suite);
    checksums::cases(&mut suite);
    fragments::cases(&mut suite);
    errors::cases(&mut suite);
    echo::cases(&mut suite);
    refusals::cases(&mut suite);
    hairpin::cases(&mut suite);
    uplink::cases(&mut suite);
    table::cases(&mut suite);
    choice::cases(&mut suite);
    removal::cases(&mut suite);
    passed::cases(&mut suite);
    departed::cases(&mut suite);
    collision::cases(&mut suite);
    segments::cases(&mut suite);
    tasks::cases(&mut suite);
    hostile::cases(&mut suite);
    fuzz::cases(&mut suite);
    suite.last("coverage: everything, once all cases have run", covered);
    suite.run(Args::parse(), || Fixture::begin(Coverage::default(), false))
}

/// Reports whether this kernel supports `CHECKSUM_COMPLETE`; without it all cases leave out one medium.
fn has_sums(fixture: &mut Fixture) -> Result {
    if fixture.has(Medium::Summed) {
        return Ok(());
    }
    Err(skip(
        "BPF_PROG_TEST_RUN of this kernel does not support packets with a known sum (CHECKSUM_COMPLETE)",
    ))
}

/// Prints the coverage, and fails if something was not covered.
fn covered(fixture: &mut Fixture) -> Result {
    fixture.coverage.to_string().lines().for_each(tell);
    fixture.coverage.check(|medium| fixture.has(medium))
}

/// A check that cases of others share. It runs for every family on every medium.
type Check = fn(&mut Fixture) -> Result;

/// Adds a case for each family, on every medium. Its name is `theme: what`.
fn each(suite: &mut Suite<Fixture>, name: &'static str, check: impl CheckOf) {
    each_on(suite, name, &Medium::ALL, check);
}

/// Adds a case for each family, on some media.
fn each_on(
    suite: &mut Suite<Fixture>,
    name: &'static str,
    media: &'static [Medium],
    check: impl CheckOf,
) {
    for family in Family::ALL {
        add(suite, name, family, media, check.clone());
    }
}

/// Adds a case for one family.
fn one(suite: &mut Suite<Fixture>, name: &'static str, family: Family, check: impl CheckOf) {
    add(suite, name, family, &Medium::ALL, check);
}

/// A check that is repeated for each protocol, with empty tables.
fn both(check: fn(&mut Fixture, Protocol) -> Result) -> impl CheckOf {
    move |fixture| {
        Protocol::ALL.into_iter().try_for_each(|protocol| {
            fixture.reset(fixture.family, fixture.medium)?;
            check(fixture, protocol)
        })
    }
}

/// A check of an open flow, which is repeated for each protocol.
fn of_flow(check: fn(&mut Fixture, TestFlow) -> Result) -> impl CheckOf {
    move |fixture| {
        Protocol::ALL.into_iter().try_for_each(|protocol| {
            let flow = fixture.open_flow(protocol)?;
            check(fixture, flow)
        })
    }
}

/// A check of each side of an open flow, which is repeated for each protocol.
fn of_side(check: fn(&mut Fixture, TestFlow, Side) -> Result) -> impl CheckOf {
    move |fixture| {
        Protocol::ALL.into_iter().try_for_each(|protocol| {
            let flow = fixture.open_flow(protocol)?;
            Side::BOTH.into_iter().try_for_each(|side| check(fixture, flow, side))
        })
    }
}

trait CheckOf: Fn(&mut Fixture) -> Result + Clone + Send + 'static {}
impl<F: Fn(&mut Fixture) -> Result + Clone + Send + 'static> CheckOf for F {}

fn add(
    suite: &mut Suite<Fixture>,
    name: &'static str,
    family: Family,
    media: &'static [Medium],
    check: impl CheckOf,
) {
    suite.case(format!("{name}, {family}"), move |fixture| {
        on_each(fixture, family, media, &check)?;
        fixture.coverage.held(name, family);
        Ok(())
    });
}

/// Checks on those of these media that the kernel can show.
fn on_each(
    fixture: &mut Fixture,
    family: Family,
    media: &[Medium],
    check: impl Fn(&mut Fixture) -> Result,
) -> Result {
    for medium in media.iter().filter(|medium| fixture.has(**medium)).collect::<Vec<_>>() {
        fixture.reset(family, *medium)?;
        check(fixture).with_context(|| medium.to_string())?;
    }
    Ok(())
}
