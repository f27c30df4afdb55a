//! Runs suites on a kernel: in a virtual machine without a network, or on this machine.

use std::{
    fmt::Write as _,
    io::{BufRead as _, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::{Built, image::SUITES, outcome::Outcomes, suites::Suite};
use crate::{build::OBJECT_VARIABLE, cross::ARM64, process, setup::kernel::Kernel};

const MEMORY_MIB: &str = "2048";
/// How many times longer than usual everything may take in a machine: its processors are emulated.
const SLOWNESS: u32 = 12;
/// Skips the kernel's check of its timer, which fails on a busy host because no tick comes in time.
const COMMAND_LINE: &str = "quiet oops=panic panic=-1 no_timer_check rdinit=/init";

/// What a machine does when it is up.
pub(super) fn plan(suites: &[Suite]) -> String {
    let mut plan = format!(
        "export MCS_AGENT={SUITES}/mcs-agent MCS_AGENT_WIDE={SUITES}/mcs-agent-wide \
         MCS_AGENT_TWO_SLOTS={SUITES}/mcs-agent-two-slots {OBJECT_VARIABLE}={SUITES}/mcs-ebpf.o MCS_PATIENCE={SLOWNESS}\n"
    );
    for suite in suites {
        let _ = writeln!(plan, "begin {suite}");
        if *suite == Suite::Packet {
            plan.push_str("settle\n");
        }
        for (binary, arguments) in suite.commands() {
            let _ = write!(plan, "part {SUITES}/{binary}");
            for argument in *arguments {
                let _ = write!(plan, " '{argument}'");
            }
            plan.push('\n');
        }
        plan.push_str("end\n");
    }
    plan
}

/// Boots a kernel and runs the suites of its image. Every line of its console is given to `show`.
pub(super) fn boot(
    kernel: &Kernel,
    image: &Path,
    patience: Duration,
    show: &mut dyn FnMut(&str),
) -> Outcomes {
    let mut qemu = Command::new(format!("qemu-system-{}", kernel.architecture.rust));
    let console = if kernel.architecture == &ARM64 {
        // A processor of servers, with the atomic instructions that a kernel's compiler of programs prefers.
        qemu.args(["-machine", "virt", "-cpu", "neoverse-n1"]);
        "ttyAMA0"
    } else {
        // With random numbers of the processor the kernel is ready before a program reads any. Without them it patches
        // its code at that moment, and 7.2 trapped on the patch.
        qemu.args(["-cpu", "qemu64,+rdrand"]);
        "ttyS0"
    };
    qemu.args(["-accel", "tcg", "-smp", "2", "-m", MEMORY_MIB, "-nic", "none"]);
    qemu.args(["-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot"]);
    qemu.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(image);
    qemu.arg("-append").arg(format!("console={console} {COMMAND_LINE}"));
    let mut outcomes = Outcomes::default();
    let mut is_down = false;
    let ended = follow(&mut qemu, patience, &mut |line| {
        is_down |= line == "@mcs down";
        outcomes.read(line);
        show(line);
    });
    outcomes.end(None);
    match ended {
        Err(error) => outcomes.trouble = Some(format!("{error:#}")),
        Ok(_) if !is_down => outcomes.trouble = Some("the machine went down midway".to_owned()),
        Ok(_) => {}
    }
    outcomes
}

/// Runs the suites on this machine's kernel.
pub(super) fn here(
    built: &Built,
    suites: &[Suite],
    patience: Duration,
    show: &mut dyn FnMut(&str),
) -> Outcomes {
    let deadline = Instant::now() + patience;
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut outcomes = Outcomes::of(release);
    for suite in suites {
        outcomes.begin(*suite);
        let mut status = Some(0);
        for (binary, arguments) in suite.commands() {
            let mut command = Command::new(built.binary(binary));
            command.args(*arguments).env("MCS_AGENT", &built.agent);
            command.env(OBJECT_VARIABLE, &built.object);
            command.envs(built.others.iter().map(|(name, agent)| (name, agent)));
            let left = deadline.saturating_duration_since(Instant::now());
            let ended = follow(&mut command, left, &mut |line| {
                outcomes.read(line);
                show(line);
            });
            match ended {
                Ok(Some(0)) => {}
                Ok(other) => status = other,
                Err(error) => {
                    status = None;
                    outcomes.trouble = Some(format!("{error:#}"));
                }
            }
        }
        outcomes.end(status);
    }
    outcomes
}

/// Runs a command to its end, line by line. Returns its exit status.
fn follow(
    command: &mut Command,
    patience: Duration,
    read: &mut dyn FnMut(&str),
) -> Result<Option<i32>> {
    let deadline = Instant::now() + patience;
    let mut child = Running::start(command)?;
    let output = child.0.stdout.take().context("no output")?;
    let lines = lines(output);
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => read(&line),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                bail!("not done in time: stopped")
            }
        }
    }
    Ok(child.0.wait()?.code())
}

fn lines(output: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            // A serial line ends its lines with a carriage return too.
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if sender.send(text).is_err() {
                break;
            }
            line.clear();
        }
    });
    receiver
}

/// A process that is killed when this is dropped.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Result<Self> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        Ok(Self(child.with_context(|| process::cannot_start(command))?))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_runs_the_suites_in_order() {
        let plan = plan(&[Suite::Load, Suite::Restart]);
        let lines: Vec<_> = plan.lines().skip(1).collect();
        let expected = [
            "begin load",
            "part /mcs/cost '--verified'",
            "end",
            "begin restart",
            "part /mcs/lifecycle 'SIGTERM'",
            "part /mcs/lifecycle 'SIGKILL'",
            "part /mcs/lifecycle 'a restart changes nothing'",
            "part /mcs/lifecycle 'an upgrade'",
            "part /mcs/node 'the agent is killed'",
            "end",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_command_is_followed_to_its_end_or_stopped() {
        let mut seen = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", "printf 'one\\r\\ntwo'; exit 3"]);
        let minute = Duration::from_mins(1);
        let status = follow(&mut command, minute, &mut |line| seen.push(line.to_owned())).unwrap();
        assert_eq!(status, Some(3));
        assert_eq!(seen, ["one", "two"]);

        let mut command = Command::new("sleep");
        let error = follow(command.arg("60"), Duration::ZERO, &mut |_| ()).unwrap_err();
        assert!(error.to_string().contains("stopped"), "{error}");
    }
}
