//! Programs of anybody, by their ids.

use std::{io, os::fd::AsFd as _};

use aya_obj::generated::{bpf_cmd, bpf_prog_info};

use super::syscall::{info, open, zeroed_attr};

/// A program's name (15 bytes at most); `None` if there is none with this id any more. aya finds a program by
/// its id only among all that are loaded.
pub(crate) fn program_name(id: u32) -> io::Result<Option<String>> {
    let mut attr = zeroed_attr();
    attr.__bindgen_anon_6.__bindgen_anon_1.prog_id = id;
    // SAFETY: no pointers; a new descriptor.
    let program = match unsafe { open(bpf_cmd::BPF_PROG_GET_FD_BY_ID, &mut attr) } {
        Ok(program) => program,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // SAFETY: integers; counts of 0 ask for no arrays.
    let info: bpf_prog_info = unsafe { info(program.as_fd())? };
    let name: [u8; 16] = bytemuck::cast(info.name);
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(Some(String::from_utf8_lossy(name).into_owned()))
}
