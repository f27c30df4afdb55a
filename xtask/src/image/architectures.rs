//! Builds the eBPF programs for kernels of the other architecture too, and compares the instructions: an agent that is
//! built by a cross compiler has the programs of this machine's kernel inside.

use std::{collections::BTreeMap, env, fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use object::{
    Object as _, ObjectSection as _, SectionFlags, elf,
    read::elf::{ElfFile64, SectionHeader as _},
};

use crate::{
    cross, process,
    setup::{self, toolchain},
    workspace::Workspace,
};

/// Fails unless both architectures have the same programs.
pub(super) fn compare(workspace: &Workspace) -> Result<()> {
    let toolchain = setup::toolchain(workspace)?;
    let other = cross::other().rust;
    let mut loaded = Vec::new();
    for architecture in [env::consts::ARCH, other] {
        let mut build = toolchain.cargo_for(architecture, workspace, "build");
        process::run(build.args(["--package", "mcs-ebpf"]))?;
        let object = toolchain::output_for(architecture, workspace).join("mcs-ebpf");
        loaded.push(read(&object).with_context(|| object.display().to_string())?);
    }
    let [here, there] = [&loaded[0], &loaded[1]];
    ensure!(here.keys().eq(there.keys()), "the programs for {other} have other sections");
    for (section, bytes) in here {
        ensure!(there[section] == *bytes, "{section} is another one in the programs for {other}");
    }
    println!("{} sections are the same for {} and {other}", here.len(), env::consts::ARCH);
    Ok(())
}

/// What a kernel gets of an object: programs, maps and constants, and which of these each program uses. Names of functions
/// are not among it: those of aya have the architecture in them.
fn read(object: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let bytes = fs::read(object)?;
    let file = ElfFile64::<object::Endianness>::parse(&*bytes).context("not an ELF object")?;
    let mut sections = BTreeMap::new();
    for section in file.sections() {
        let SectionFlags::Elf { sh_flags } = section.flags() else { continue };
        let kind = section.elf_section_header().sh_type(file.endian());
        let name = section.name()?;
        // Relocations of BTF and debug information are about names.
        let is_relocation =
            kind == elf::SHT_REL && !name.contains("BTF") && !name.contains("debug");
        if sh_flags & u64::from(elf::SHF_ALLOC) != 0 || is_relocation {
            sections.insert(name.to_owned(), section.data()?.to_owned());
        }
    }
    ensure!(sections.contains_key("classifier"), "no programs");
    Ok(sections)
}
