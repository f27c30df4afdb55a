//! "Did you mean": names that are close to the given one.

use std::{env, ffi::OsStr};

use clap::{
    Command,
    error::{ContextKind, ContextValue},
};

/// The most letters by which two names differ.
const CLOSE: usize = 2;

/// The closest name to `given`, if any is close.
pub fn closest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |name: &str| strsim::damerau_levenshtein(given, name);
    let close =
        names.into_iter().map(|name| (distance(name), name)).filter(|(far, _)| *far <= CLOSE);
    close.min().map(|(_, name)| name)
}

/// A sentence for each variable that looks like a misspelt variable of the command line.
pub fn misspelt_variables(command: &Command) -> Vec<String> {
    let known = variables(command);
    let given = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    misspelt(given, &known)
}

fn misspelt(given: impl Iterator<Item = String>, known: &[String]) -> Vec<String> {
    let unknown = given.filter(|name| name.starts_with("MCS_") && !known.contains(name));
    let told = unknown.filter_map(|name| {
        let meant = closest(&name, known.iter().map(String::as_str))?;
        Some(format!("the environment variable {name} is ignored: did you mean {meant}?"))
    });
    told.collect()
}

/// The variables of a command and of its subcommands.
fn variables(command: &Command) -> Vec<String> {
    let own = command.get_arguments().filter_map(|argument| argument.get_env());
    let mut all: Vec<_> = own.map(|name| name.to_string_lossy().into_owned()).collect();
    all.extend(command.get_subcommands().flat_map(variables));
    all
}

/// The variable of a wrong value, if the flag was not given: `MCS_TC`.
pub fn variable_of(
    error: &clap::Error,
    command: &Command,
    given: &[impl AsRef<OsStr>],
) -> Option<String> {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let flag = argument.split([' ', '=']).next()?;
    let is_given = given.iter().any(|word| {
        let word = word.as_ref().to_string_lossy();
        word == flag || word.starts_with(&format!("{flag}="))
    });
    let name = find(command, flag.trim_start_matches('-'))?;
    (!is_given && env::var_os(&name).is_some()).then_some(name)
}

/// The variable of a flag, by its long name.
fn find(command: &Command, flag: &str) -> Option<String> {
    let own = command.get_arguments().find(|argument| argument.get_long() == Some(flag));
    let name =
        own.and_then(|argument| argument.get_env()).map(|name| name.to_string_lossy().into_owned());
    name.or_else(|| command.get_subcommands().find_map(|inner| find(inner, flag)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_names_are_suggested() {
        let names = ["shop/cart", "shop/card-reader", "team/web"];
        assert_eq!(closest("shop/car", names), Some("shop/cart"));
        assert_eq!(closest("shop/crat", names), Some("shop/cart"));
        assert_eq!(closest("shop/web", names), None);
    }

    #[test]
    fn misspelt_variables_are_told() {
        let known = ["MCS_TC", "MCS_SOCKET_LB", "MCS_ADOPT"].map(str::to_owned);
        let told = misspelt(
            ["MCS_SOCKETLB", "MCS_TC", "MCS_AGENT", "PATH"].map(str::to_owned).into_iter(),
            &known,
        );
        assert_eq!(
            told,
            ["the environment variable MCS_SOCKETLB is ignored: did you mean MCS_SOCKET_LB?"]
        );
    }
}
