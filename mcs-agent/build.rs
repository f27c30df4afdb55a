//! Embeds the eBPF object that `cargo xtask build` names in `MCS_EBPF_OBJECT`.
//!
//! Without it the crate still builds, for those who work on code that never loads a program.

use std::{env, fs, path::Path};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-env-changed=MCS_EBPF_OBJECT");
    let expression = match env::var("MCS_EBPF_OBJECT") {
        Ok(object) => {
            println!("cargo::rerun-if-changed={object}");
            format!("Some(aya::include_bytes_aligned!({object:?}))")
        }
        Err(_) => "None".to_owned(),
    };
    fs::write(Path::new(&env::var("OUT_DIR")?).join("object.rs"), expression)?;
    Ok(())
}
