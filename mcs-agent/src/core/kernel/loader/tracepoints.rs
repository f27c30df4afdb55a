//! Programs on tracepoints, each of which has the name of its tracepoint. Features record there what the kernel tells.

use std::collections::BTreeMap;

use aya::{
    Btf, Ebpf,
    programs::{BtfTracePoint, ProgramError, tp_btf::BtfTracePointLink},
};

/// The attached programs. They are detached when this process ends, since nobody else reads what they record.
#[derive(Debug, Default)]
pub(super) struct Tracepoints(BTreeMap<&'static str, BtfTracePointLink>);

impl Tracepoints {
    /// Attaches the programs of these tracepoints, and detaches those of others. An error names the tracepoint.
    pub(super) fn set(
        &mut self,
        ebpf: &mut Ebpf,
        wanted: &[&'static str],
        others: &[&'static str],
    ) -> Result<(), (&'static str, ProgramError)> {
        for name in others {
            self.0.remove(name);
        }
        // The kernel's types take 17 MiB.
        let mut types = None;
        for name in wanted {
            if !self.0.contains_key(name) {
                let link = attach(ebpf, name, &mut types).map_err(|error| (*name, error))?;
                self.0.insert(name, link);
            }
        }
        Ok(())
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
