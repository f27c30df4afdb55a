//! Removes the DWARF debug information from an eBPF object.
//!
//! bpf-linker derives BTF, with its lines of source for the verifier's log, from debug information, and leaves that
//! in the object. It is most of the object's size, and nothing reads it at run time.

use anyhow::{Context as _, Result};
use object::{
    build::elf::{Builder, Section, SectionData},
    elf,
};

/// The ELF file `object` without its `.debug_*` sections and what refers to them.
pub(crate) fn remove(object: &[u8]) -> Result<Vec<u8>> {
    let mut file = Builder::read(object).context("not an object file")?;
    for section in &mut file.sections {
        let name = section.name.as_slice();
        section.delete = name.starts_with(b".debug_") || name.starts_with(b".rel.debug_");
    }
    file.delete_orphans();
    let has_names = |section: &Section<'_>| matches!(section.data, SectionData::SectionString);
    if !file.sections.iter().any(has_names) {
        // LLVM has the names of sections among those of symbols, which the writer does not do.
        let names = file.sections.add();
        names.name = b".shstrtab"[..].into();
        names.sh_type = elf::SHT_STRTAB;
        names.sh_addralign = 1;
        names.data = SectionData::SectionString;
    }
    let mut rest = Vec::new();
    file.write(&mut rest).context("cannot write the object again")?;
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use std::{env, fs};

    use object::{Object as _, ObjectSection as _};

    use super::*;

    /// Name and content of the sections that are not debug information.
    fn sections(object: &[u8]) -> Vec<(String, Vec<u8>)> {
        let file = object::File::parse(object).unwrap();
        let sections = file.sections().map(|section| {
            let content = section.data().unwrap_or_default().to_owned();
            (section.name().unwrap().to_owned(), content)
        });
        sections
            .filter(|(name, _)| name.starts_with(".text") || name.starts_with(".rodata"))
            .collect()
    }

    #[test]
    fn code_and_data_stay_and_debug_information_goes() {
        let this = fs::read(env::current_exe().unwrap()).unwrap();
        let rest = remove(&this).unwrap();
        assert!(!sections(&this).is_empty());
        assert_eq!(sections(&rest), sections(&this));
        let file = object::File::parse(&*rest).unwrap();
        let mut names = file.sections().map(|section| section.name().unwrap().to_owned());
        assert_eq!(names.find(|name| name.contains("debug_")), None);
        assert!(rest.len() < this.len());
    }

    #[test]
    fn what_is_no_object_file_is_an_error() {
        assert!(remove(b"text").is_err());
    }
}
