//! Daemons: programs that outlive the process that started them.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, Permissions},
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};

use super::Observer;
use crate::wait;

/// How long anything may take on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_mins(3);
/// Lines of the log to show of one that has ended.
const LOG_LINES: usize = 15;

/// The daemons of one place. Each has a script that starts it, `<name>.sh`, a log beside it,
/// `<name>.log`, and its own cgroup.
pub(super) struct Daemons {
    directory: PathBuf,
    cgroup: PathBuf,
    join: Vec<PathBuf>,
    enter: Vec<OsString>,
    started: Vec<Daemon>,
}

struct Daemon {
    script: PathBuf,
    log: PathBuf,
    child: Child,
}

impl Daemons {
    /// Makes `directory`, and `cgroup`, which is one of version 2. A daemon joins cgroups of
    /// version 1 by the files `join`, and its command comes behind the words of `enter`.
    pub(super) fn create(
        directory: PathBuf,
        cgroup: PathBuf,
        join: Vec<PathBuf>,
        enter: Vec<OsString>,
    ) -> anyhow::Result<Self> {
        for directory in [&directory, &cgroup] {
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        Ok(Self { directory, cgroup, join, enter, started: Vec::new() })
    }

    /// What the commands of those started from now on come behind.
    pub(super) fn enter_by(&mut self, enter: Vec<OsString>) {
        self.enter = enter;
    }

    /// Starts one, without waiting for it.
    pub(super) fn start(
        &mut self,
        name: &str,
        program: &Path,
        flags: impl IntoIterator<Item = String>,
    ) -> anyhow::Result<()> {
        let cgroup = self.cgroup(name)?;
        self.start_in(&cgroup, name, program, flags)
    }

    /// Writes the script of one that somebody else starts.
    pub(super) fn prepare(
        &self,
        name: &str,
        program: &Path,
        flags: impl IntoIterator<Item = String>,
    ) -> anyhow::Result<()> {
        self.write_script(&self.cgroup(name)?, name, program, flags)
    }

    /// Makes the cgroup of one.
    fn cgroup(&self, name: &str) -> anyhow::Result<PathBuf> {
        let cgroup = self.cgroup.join(name);
        fs::create_dir_all(&cgroup).with_context(|| format!("cannot make {}", cgroup.display()))?;
        Ok(cgroup)
    }

    /// Starts one in the cgroup above those of the others. It has to leave it.
    pub(super) fn start_above(
        &mut self,
        name: &str,
        program: &Path,
        flags: impl IntoIterator<Item = String>,
    ) -> anyhow::Result<()> {
        self.start_in(&self.cgroup.clone(), name, program, flags)
    }

    /// Writes a script that runs its arguments as a command where the daemons run.
    pub(super) fn write_entrance(&self, path: &Path) -> anyhow::Result<()> {
        let cgroup = self.cgroup.join("visitors");
        fs::create_dir_all(&cgroup)?;
        let mut text = self.head(&cgroup);
        text.extend(exec(self.enter.iter().cloned()));
        text.extend(b" \"$@\"\n");
        write(path, &text)
    }

    fn script(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.sh"))
    }

    fn log(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.log"))
    }

    /// The first lines of a script, which join cgroups.
    fn head(&self, cgroup: &Path) -> Vec<u8> {
        let join =
            |procs: &Path| [b"echo 0 >".as_slice(), &quote(procs.as_os_str()), b"\n"].concat();
        let v1 = self.join.iter().flat_map(|procs| join(procs));
        b"#!/bin/sh -e\n"
            .iter()
            .copied()
            .chain(v1)
            .chain(join(&cgroup.join("cgroup.procs")))
            .collect()
    }

    fn start_in(
        &mut self,
        cgroup: &Path,
        name: &str,
        program: &Path,
        flags: impl IntoIterator<Item = String>,
    ) -> anyhow::Result<()> {
        self.write_script(cgroup, name, program, flags)?;
        let (script, log) = (self.script(name), self.log(name));
        let child = run(&script)?;
        self.started.push(Daemon { script, log, child });
        Ok(())
    }

    fn write_script(
        &self,
        cgroup: &Path,
        name: &str,
        program: &Path,
        flags: impl IntoIterator<Item = String>,
    ) -> anyhow::Result<()> {
        let flags = flags.into_iter().map(OsString::from);
        let mut text = self.head(cgroup);
        text.extend(
            [b"exec </dev/null >>".as_slice(), &quote(self.log(name).as_os_str())].concat(),
        );
        text.extend(b" 2>&1\n");
        text.extend(exec(self.enter.iter().cloned().chain([program.into()]).chain(flags)));
        text.push(b'\n');
        write(&self.script(name), &text)
    }

    /// Tries until `attempt` gives a value, as long as all of them run and nobody objects.
    pub(super) fn wait<T>(
        &mut self,
        what: &str,
        observer: &dyn Observer,
        mut attempt: impl FnMut() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        wait::within(PATIENCE, what, || {
            let ended = self.started.iter_mut().try_for_each(Daemon::check);
            if let Err(error) = observer.check().and(ended) {
                return Ok(Err(error));
            }
            attempt().map(Ok)
        })?
    }
}

impl Daemon {
    /// An error if it has ended, with the end of its log.
    fn check(&mut self) -> anyhow::Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let log = String::from_utf8_lossy(&fs::read(&self.log)?).into_owned();
        let lines: Vec<_> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        bail!("{} ended, {status}; its log ends so:\n{end}", self.script.display());
    }
}

/// Runs the script of a daemon.
pub(super) fn run(script: &Path) -> anyhow::Result<Child> {
    // Not by itself: while the script was open for writing, another thread may have forked a
    // process that has not called exec yet, and the kernel runs no file that somebody writes.
    let mut command = Command::new("/bin/sh");
    command.arg("-e").arg(script);
    // Neither Ctrl-C nor the directory that this process is in is any of its business.
    command.current_dir(script.parent().unwrap_or(Path::new("/"))).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().with_context(|| format!("cannot run {}", script.display()))
}

fn write(script: &Path, text: &[u8]) -> anyhow::Result<()> {
    fs::write(script, text)?;
    Ok(fs::set_permissions(script, Permissions::from_mode(0o755))?)
}

/// The command of these words, in place of the shell.
fn exec(words: impl Iterator<Item = OsString>) -> Vec<u8> {
    let words = words.flat_map(|word| [b" \\\n  ".as_slice(), &quote(&word)].concat());
    b"exec".iter().copied().chain(words).collect()
}

/// A word as a shell reads it.
fn quote(word: &OsStr) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_=+./:,@%".contains(byte);
    let word = word.as_bytes();
    if !word.is_empty() && word.iter().all(plain) {
        return word.to_owned();
    }
    let mut quoted = vec![b'\''];
    for &byte in word {
        match byte {
            b'\'' => quoted.extend(br"'\''"),
            _ => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        for word in ["plain-1.2=/a:b", "", "two words", "it's", "$HOME `id` \\ \"", "a\nb"] {
            let line = [b"printf %s ".as_slice(), &quote(OsStr::new(word))].concat();
            let printed = Command::new("sh").arg("-c").arg(OsStr::from_bytes(&line)).output();
            assert_eq!(printed.unwrap().stdout, word.as_bytes(), "{word:?}");
        }
    }
}
