//! Asks the kernel's verifier how many instructions it checked.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use aya::{Btf, Ebpf, EbpfLoader, maps::Map, programs::Program};
use aya_obj::{ProgramSection, btf::BtfKind, generated::bpf_prog_info};
use mcs_tests::{
    bpf::{
        AttachType, ProgramType,
        verification::{Draft, open_types, program_info},
    },
    interpreter::renumber_maps,
};

use crate::prelude::*;

/// Loads every program, as the agent does. Returns how many instructions the verifier looked at. The
/// programs go when this returns.
pub(crate) fn load(elf: &[u8], globals: &[(&str, &[u8])]) -> Result<BTreeMap<String, u32>> {
    bpf::allow_locked_memory();
    let mut loader = EbpfLoader::new();
    for &(name, value) in globals {
        loader.override_global(name, value, true);
    }
    let mut object = loader.load(elf).context("cannot load the object")?;
    let mut counts = BTreeMap::new();
    let mut untold = Vec::new();
    let types = kernel_types()?;
    for (name, program) in object.programs_mut() {
        match program {
            Program::CgroupSockAddr(program) => program.load(),
            Program::CgroupSock(program) => program.load(),
            Program::BtfTracePoint(program) => match &types {
                Some(types) => program.load(name, types),
                None => continue,
            },
            Program::SchedClassifier(program) => program.load(),
            _ => bail!("{name} is of an unknown kind"),
        }
        .with_context(|| format!("the kernel does not take {name}"))?;
        let info = program_info(program.fd()?)?;
        ensure!(
            info.nr_func_info > 0,
            "the kernel has no types of the functions of {name} (nr_func_info is 0), so it does not verify what the \
             agent loads: the object has no BTF, or the kernel refused it"
        );
        match info.verified_insns {
            0 => untold.push((name.to_owned(), info)),
            count => {
                counts.insert(name.to_owned(), count);
            }
        }
    }
    if !untold.is_empty() {
        let linked = Object::link(elf, globals)?;
        for (name, info) in untold {
            let count = ask_log(&object, &linked, types.as_ref(), &name, &info)
                .with_context(|| format!("cannot read what the verifier says of {name}"))?;
            counts.insert(name, count);
        }
    }
    Ok(counts)
}

/// What programs at tracepoints are loaded with; `None` if passive health does not run on this kernel.
fn kernel_types() -> Result<Option<Btf>> {
    let features = Features::probe().context("cannot probe the kernel's eBPF features")?;
    let types = features.socket_tracepoints.then(Btf::from_sys_fs);
    types.transpose().context("cannot read the kernel's types")
}

/// Loads a program once more, by hand, with the maps and the types of `object`: before Linux 5.16 only the log says
/// the count, and aya shows it of programs alone that are refused.
fn ask_log(
    object: &Ebpf,
    linked: &Object,
    types: Option<&Btf>,
    name: &str,
    loaded: &bpf_prog_info,
) -> Result<u32> {
    let program = linked.programs.get(name).context("no such program")?;
    let mut code = program.function.instructions.clone();
    renumber_maps(&mut code, |number| {
        let map = linked.maps.get(&number).context("no such map")?;
        let map = object.map(&map.name).with_context(|| format!("no map {}", map.name))?;
        Ok(descriptor(map)?.as_raw_fd().cast_unsigned())
    })?;
    let (kind, attach, target) = match &program.section {
        ProgramSection::SchedClassifier => (ProgramType::BPF_PROG_TYPE_SCHED_CLS, None, 0),
        ProgramSection::CgroupSockAddr { attach_type } => {
            let attach = AttachType::from(*attach_type);
            (ProgramType::BPF_PROG_TYPE_CGROUP_SOCK_ADDR, Some(attach), 0)
        }
        ProgramSection::CgroupSock { attach_type } => {
            (ProgramType::BPF_PROG_TYPE_CGROUP_SOCK, Some(AttachType::from(*attach_type)), 0)
        }
        ProgramSection::BtfTracePoint => {
            let types = types.context("the kernel has no types")?;
            let target =
                types.id_by_type_name_kind(&format!("btf_trace_{name}"), BtfKind::Typedef)?;
            (ProgramType::BPF_PROG_TYPE_TRACING, Some(AttachType::BPF_TRACE_RAW_TP), target)
        }
        _ => bail!("a program of an unknown kind"),
    };
    let object_types = open_types(loaded.btf_id).context("cannot open the object's types")?;
    let draft = Draft {
        kind,
        attach,
        target,
        instructions: &code,
        types: object_types.as_fd(),
        functions: &program.function.func_info.func_info,
    };
    let (count, again) = draft.verify()?;
    // Without the types of its functions a program has taken Linux 5.10 26 times the work.
    ensure!(
        (again.tag, again.nr_func_info) == (loaded.tag, loaded.nr_func_info),
        "it is not what aya loads: tag {:x?} instead of {:x?}, {} functions instead of {}",
        again.tag,
        loaded.tag,
        again.nr_func_info,
        loaded.nr_func_info
    );
    Ok(count)
}

fn descriptor(map: &Map) -> Result<BorrowedFd<'_>> {
    Ok(match map {
        Map::Array(map)
        | Map::HashMap(map)
        | Map::LruHashMap(map)
        | Map::PerCpuArray(map)
        | Map::PerCpuHashMap(map)
        | Map::RingBuf(map)
        | Map::SkStorage(map) => map.fd().as_fd(),
        _ => bail!("a map of an unknown kind"),
    })
}
