//! Runs other programs. An error contains the full command.

use std::{
    env,
    ffi::OsStr,
    fmt::Write as _,
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context as _, Result, bail};

/// Where system tools lie that are not on the `PATH` of a Debian user.
const SYSTEM_DIRECTORIES: &[&str] = &["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Runs `command` on this terminal and fails unless it exits with 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| cannot_start(command))?;
    if !status.success() {
        bail!("{status}: {}", describe(command));
    }
    Ok(())
}

/// Runs `command` and returns what it printed on either stream, whatever its exit status.
///
/// Several tools print their version on standard error, or only with a usage error.
pub(crate) fn printed(command: &mut Command) -> io::Result<String> {
    let Output { stdout, stderr, .. } = command.output()?;
    Ok(format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

/// The file of `program` on `PATH` or in the system directories.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = SYSTEM_DIRECTORIES.iter().map(PathBuf::from);
    env::split_paths(&path)
        .chain(system)
        .map(|directory| directory.join(program))
        .find(|file| is_executable(file))
}

/// True for a file that can be run.
pub(crate) fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// What to say of a command that could not be started.
pub(crate) fn cannot_start(command: &Command) -> String {
    format!("cannot start {}", describe(command))
}

/// `command` as it could be typed into a shell, variables included.
pub(crate) fn describe(command: &Command) -> String {
    let mut line = String::new();
    let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    for (name, value) in set {
        let _ = write!(line, "{}={} ", name.to_string_lossy(), quote(value));
    }
    line.push_str(&quote(command.get_program()));
    for argument in command.get_args() {
        let _ = write!(line, " {}", quote(argument));
    }
    line
}

fn quote(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "-_=+./:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into_owned();
    }
    let mut quoted = String::from("$'");
    for c in word.chars() {
        match c {
            '\'' | '\\' => quoted.extend(['\\', c]),
            c if c.is_ascii_control() => {
                let _ = write!(quoted, "\\x{:02x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_whole_command() {
        let error = run(Command::new("false").arg("two words").env("KEY", "a\x1fb")).unwrap_err();
        assert_eq!(error.to_string(), "exit status: 1: KEY=$'a\\x1fb' false $'two words'");
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let error = run(&mut Command::new("/nonexistent/tool")).unwrap_err();
        assert_eq!(error.to_string(), "cannot start /nonexistent/tool");
    }

    #[test]
    fn quoting_leaves_plain_words_alone() {
        let cases = [("a-b=c/d", "a-b=c/d"), ("", "$''"), ("it's", "$'it\\'s'"), ("a b", "$'a b'")];
        for (word, quoted) in cases {
            assert_eq!(quote(OsStr::new(word)), quoted, "{word:?}");
        }
    }

    #[test]
    fn programs_are_found_on_the_path() {
        assert!(find("sh").is_some());
        assert_eq!(find("no-such-program-anywhere"), None);
    }
}
