//! Checks that a program needs no interpreter and no library.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use object::{
    Endianness, elf,
    read::elf::{ElfFile64, ProgramHeader as _},
};

/// Fails unless the kernel alone can start `program`: it names no interpreter and no library.
pub(super) fn ensure_static(program: &Path) -> Result<()> {
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    ensure!(is_static(&bytes)?, "{} is not a static program", program.display());
    Ok(())
}

fn is_static(program: &[u8]) -> Result<bool> {
    let file = ElfFile64::<Endianness>::parse(program).context("not an ELF program")?;
    let endian = file.endian();
    let headers = file.elf_program_headers();
    let interpreted = headers.iter().any(|header| header.p_type(endian) == elf::PT_INTERP);
    let mut needed = false;
    for header in headers {
        // A program that can lie anywhere has this part, with its own relocations.
        let entries = header.dynamic(endian, program)?.unwrap_or_default();
        needed |= entries.iter().any(|entry| entry.d_tag.get(endian) == elf::DT_NEEDED);
    }
    Ok(!interpreted && !needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_libraries_is_not_static() {
        let this = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(!is_static(&this).unwrap());
        assert!(is_static(b"#!/bin/sh\n").is_err());
    }
}
