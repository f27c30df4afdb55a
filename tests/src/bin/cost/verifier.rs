//! Asks the kernel's verifier how many instructions it checked.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd},
};

use anyhow::{Context as _, bail};
use aya::{Btf, Ebpf, EbpfLoader, maps::Map, programs::Program};
use aya_obj::{ProgramSection, generated::bpf_insn};
use mcs_agent::loader::Features;
use mcs_tests::{
    bpf::{self, AttachType, ProgramType},
    interpreter::{Object, renumber_maps},
};

/// Loads every program, as the agent does. Returns how many instructions the verifier looked at. The
/// programs go when this returns.
pub(crate) fn load(elf: &[u8], globals: &[(&str, &[u8])]) -> anyhow::Result<BTreeMap<String, u32>> {
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
        match program.info()?.verified_instruction_count() {
            Some(count) => {
                counts.insert(name.to_owned(), count);
            }
            None => untold.push(name.to_owned()),
        }
    }
    if !untold.is_empty() {
        let sections = aya_obj::Object::parse(elf).context("cannot read the object")?.programs;
        let linked = Object::link(elf, globals)?;
        for name in untold {
            let section = &sections.get(&name).with_context(|| format!("no {name}"))?.section;
            let count = ask_log(&object, &linked, &name, section)
                .with_context(|| format!("cannot read what the verifier says of {name}"))?;
            counts.insert(name, count);
        }
    }
    Ok(counts)
}

/// What programs at tracepoints are loaded with; `None` if passive health does not run on this kernel.
fn kernel_types() -> anyhow::Result<Option<Btf>> {
    let features = Features::probe().context("cannot probe the kernel's eBPF features")?;
    let types = features.socket_tracepoints.then(Btf::from_sys_fs);
    types.transpose().context("cannot read the kernel's types")
}

/// Loads a program once more, by hand, with the maps of `object`: before Linux 5.16 only the log says
/// the count, and aya shows it of programs alone that are refused.
fn ask_log(
    object: &Ebpf,
    linked: &Object,
    name: &str,
    section: &ProgramSection,
) -> anyhow::Result<u32> {
    let mut code: Vec<bpf_insn> = linked.programs.get(name).context("no such program")?.clone();
    renumber_maps(&mut code, |number| {
        let map = linked.maps.get(&number).context("no such map")?;
        let map = object.map(&map.name).with_context(|| format!("no map {}", map.name))?;
        Ok(descriptor(map)?.as_raw_fd().cast_unsigned())
    })?;
    let (kind, attach) = match section {
        ProgramSection::SchedClassifier => (ProgramType::BPF_PROG_TYPE_SCHED_CLS, None),
        ProgramSection::CgroupSockAddr { attach_type } => {
            let attach = AttachType::from(*attach_type);
            (ProgramType::BPF_PROG_TYPE_CGROUP_SOCK_ADDR, Some(attach))
        }
        ProgramSection::CgroupSock { attach_type } => {
            (ProgramType::BPF_PROG_TYPE_CGROUP_SOCK, Some(AttachType::from(*attach_type)))
        }
        _ => bail!("a program of an unknown kind"),
    };
    Ok(bpf::Program::verify(kind, attach, &code)?)
}

fn descriptor(map: &Map) -> anyhow::Result<BorrowedFd<'_>> {
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
