//! The tracepoints at which programs record the outcome of connects, for passive health.

use std::collections::BTreeMap;

use aya::{
    Btf, Ebpf,
    programs::{BtfTracePoint, ProgramError, tp_btf::BtfTracePointLink},
};

/// The tracepoints, each with a program of its name. The kernel passes the last one for each change of a TCP socket's state.
const TRACEPOINTS: [&str; 3] = ["tcp_retransmit_skb", "tcp_receive_reset", "inet_sock_set_state"];

/// What the programs record of connects to backends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Watching {
    /// Nothing.
    #[default]
    Nothing,
    /// Connects that are not answered.
    Failures,
    /// Also connects that are answered.
    FailuresAndAnswers,
}

impl Watching {
    const fn tracepoints(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Failures => 2,
            Self::FailuresAndAnswers => 3,
        }
    }
}

/// The attached programs. They are detached when this process ends, since nobody else reads the records.
#[derive(Debug, Default)]
pub(super) struct Watch {
    watching: Watching,
    links: BTreeMap<&'static str, BtfTracePointLink>,
}

impl Watch {
    /// Attaches the wanted programs, and detaches the others. Returns what was recorded before. An error names the tracepoint.
    pub(super) fn set(
        &mut self,
        ebpf: &mut Ebpf,
        watching: Watching,
    ) -> Result<Watching, (&'static str, ProgramError)> {
        let (wanted, rest) = TRACEPOINTS.split_at(watching.tracepoints());
        for name in rest {
            self.links.remove(name);
        }
        // The kernel's types take 17 MiB.
        let mut types = None;
        for name in wanted {
            if !self.links.contains_key(name) {
                let link = attach(ebpf, name, &mut types).map_err(|error| (*name, error))?;
                self.links.insert(name, link);
            }
        }
        Ok(std::mem::replace(&mut self.watching, watching))
    }
}

fn attach(
    ebpf: &mut Ebpf,
    tracepoint: &str,
    types: &mut Option<Btf>,
) -> Result<BtfTracePointLink, ProgramError> {
    let program: &mut BtfTracePoint =
        ebpf.program_mut(tracepoint).ok_or(ProgramError::NotLoaded)?.try_into()?;
    if program.fd().is_err() {
        let types = match types {
            Some(types) => types,
            None => types.insert(Btf::from_sys_fs()?),
        };
        program.load(tracepoint, types)?;
    }
    let link = program.attach()?;
    program.take_link(link)
}
