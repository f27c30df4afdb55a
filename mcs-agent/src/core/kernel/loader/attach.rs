//! The hooks of the socket path and their pinned links, and programs on tracepoints.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd as _, BorrowedFd},
    path::{Path, PathBuf},
};

use aya::{
    Btf, Ebpf,
    programs::{BtfTracePoint, Program, ProgramError, tp_btf::BtfTracePointLink},
};
use aya_obj::generated::bpf_attach_type as Type;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{CgroupRoot, Pins};
use crate::core::kernel::bpf::{
    BpfObject, attach_to_cgroup, cgroup_link_info, effective_programs, open_link, update_link,
};

/// The attachment of a hook, according to the kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AttachedHook {
    /// The hook's name.
    pub name: String,
    /// The cgroup's id; `None` if no program of ours is attached, or its cgroup was removed.
    pub cgroup_id: Option<u64>,
    /// The program's id, as in `bpftool prog show id`.
    pub program_id: Option<u32>,
}

/// Why a program could not be attached.
#[derive(Debug, Error)]
pub enum AttachError {
    /// The program is not loaded, or bpf(2) made no link.
    #[error("cannot attach {hook} to the cgroup {cgroup}")]
    Attach {
        /// The hook.
        hook: &'static str,
        /// The cgroup.
        cgroup: PathBuf,
        /// What aya or the kernel said.
        source: ProgramError,
    },
    /// The link cannot be pinned, replaced or read.
    #[error("cannot {action} the link pinned at {pin}")]
    Link {
        /// What was tried.
        action: &'static str,
        /// Where.
        pin: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Makes `hook` run `program` at `cgroup`. It updates the link that this agent holds, or that an earlier one has
/// pinned. If there is none, or it is attached elsewhere, it makes a new one. Returns the link that the caller
/// pins and holds from now on; `None` if the caller keeps `held`.
///
/// An updated link keeps its place among programs of others. With a second link in a better place, both would run for a
/// moment, and a socket that connects then would lose its VIP: the second one finds a backend, as of a direct connection.
pub(super) fn attach(
    program: &Program,
    hook: &Hook,
    pins: &Pins,
    cgroup: &CgroupRoot,
    held: Option<&BpfObject>,
) -> Result<Option<BpfObject>, AttachError> {
    let pin = pins.link(hook.name);
    let link_error = |action| {
        let pin = pin.clone();
        move |source| AttachError::Link { action, pin, source }
    };
    let attach_error =
        |source| AttachError::Attach { hook: hook.name, cgroup: cgroup.path.clone(), source };
    let found = match held {
        Some(_) => None,
        None => open(&pin).map_err(link_error("open"))?,
    };
    if let Some(link) = held.or(found.as_ref())
        && is_attached(link, hook, cgroup).map_err(link_error("read"))?
    {
        let program = program.fd().map_err(attach_error)?.as_fd();
        update_link(link.as_fd(), program).map_err(link_error("update"))?;
        return Ok(found);
    }
    let program = program.fd().map_err(attach_error)?.as_fd();
    attach_to_cgroup(program, cgroup.directory.as_fd(), hook.attach_type, hook.translates())
        .and_then(BpfObject::of_link)
        .map(Some)
        .map_err(|error| attach_error(ProgramError::IOError(error)))
}

/// Whether a link is attached where it belongs.
pub(super) fn is_attached(link: &BpfObject, hook: &Hook, cgroup: &CgroupRoot) -> io::Result<bool> {
    let attach_type = hook.attach_type as u32;
    let info = cgroup_link_info(link.as_fd())?;
    Ok(info.is_some_and(|info| info.cgroup_id == cgroup.id && info.attach_type == attach_type))
}

/// The attachment of every hook.
pub(super) fn inspect(pins: &Pins) -> Result<Vec<AttachedHook>, AttachError> {
    HOOKS.iter().map(|hook| inspect_one(pins, hook)).collect()
}

fn inspect_one(pins: &Pins, hook: &Hook) -> Result<AttachedHook, AttachError> {
    let pin = pins.link(hook.name);
    let link_error = |source| AttachError::Link { action: "read", pin: pin.clone(), source };
    let info = match open(&pin).map_err(link_error)? {
        Some(link) => cgroup_link_info(link.as_fd()).map_err(link_error)?,
        None => None,
    };
    Ok(AttachedHook {
        name: hook.name.to_owned(),
        cgroup_id: info.map(|info| info.cgroup_id).filter(|id| *id != 0),
        program_id: info.map(|info| info.program_id),
    })
}

/// Opens the link that is pinned at a path; `None` if there is none.
fn open(pin: &Path) -> io::Result<Option<BpfObject>> {
    open_link(pin)?.map(BpfObject::of_link).transpose()
}

/// A hook of the socket path, named as its program and its pin are.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// `connect4` and so on.
    pub name: &'static str,
    pub(super) attach_type: Type,
}

/// Whether a program runs for the sockets of a cgroup.
pub(crate) struct HookState {
    pub(crate) runs: bool,
    /// The ids of the programs that run before it.
    pub(crate) before: Vec<u32>,
}

impl Hook {
    /// Whether its program replaces a VIP by a backend. It is attached before programs of others, which may have to translate
    /// the backend: the address of a Service. At the other hooks ours comes last, so that it sees the backend again.
    pub(crate) const fn translates(&self) -> bool {
        matches!(
            self.attach_type,
            Type::BPF_CGROUP_INET4_CONNECT
                | Type::BPF_CGROUP_INET6_CONNECT
                | Type::BPF_CGROUP_UDP4_SENDMSG
                | Type::BPF_CGROUP_UDP6_SENDMSG
        )
    }

    /// Asks the kernel whether a program runs at this hook for the sockets of a cgroup.
    pub(crate) fn running(
        &self,
        cgroup: BorrowedFd<'_>,
        program: Option<u32>,
    ) -> io::Result<HookState> {
        let mut ids = effective_programs(cgroup, self.attach_type)?;
        let place = ids.iter().position(|id| Some(*id) == program);
        ids.truncate(place.unwrap_or(0));
        Ok(HookState { runs: place.is_some(), before: ids })
    }
}

/// Every hook, in the order in which programs are attached and switched: a hook that shows the VIP comes before
/// one that hides it, so that no application ever sees a backend. The hook that frees slots of sockets comes before
/// those that take them.
pub const HOOKS: [Hook; 9] = [
    Hook { name: "recvmsg4", attach_type: Type::BPF_CGROUP_UDP4_RECVMSG },
    Hook { name: "recvmsg6", attach_type: Type::BPF_CGROUP_UDP6_RECVMSG },
    Hook { name: "getpeername4", attach_type: Type::BPF_CGROUP_INET4_GETPEERNAME },
    Hook { name: "getpeername6", attach_type: Type::BPF_CGROUP_INET6_GETPEERNAME },
    Hook { name: "sock_release", attach_type: Type::BPF_CGROUP_INET_SOCK_RELEASE },
    Hook { name: "connect4", attach_type: Type::BPF_CGROUP_INET4_CONNECT },
    Hook { name: "connect6", attach_type: Type::BPF_CGROUP_INET6_CONNECT },
    Hook { name: "sendmsg4", attach_type: Type::BPF_CGROUP_UDP4_SENDMSG },
    Hook { name: "sendmsg6", attach_type: Type::BPF_CGROUP_UDP6_SENDMSG },
];

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
                let link =
                    attach_to_tracepoint(ebpf, name, &mut types).map_err(|error| (*name, error))?;
                self.0.insert(name, link);
            }
        }
        Ok(())
    }
}

fn attach_to_tracepoint(
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
