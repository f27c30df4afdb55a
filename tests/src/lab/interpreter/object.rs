//! Links the programs and maps of an ELF object for the interpreter.

use std::collections::{BTreeMap, HashMap};

use anyhow::Context as _;
use aya_obj::{
    Function, ProgramSection,
    generated::{BPF_DW, BPF_LD, BPF_PSEUDO_MAP_FD, BPF_PSEUDO_MAP_VALUE, bpf_insn},
};

/// A map as an object declares it.
#[derive(Clone, Debug)]
pub struct Map {
    /// Its name, or that of its section.
    pub name: String,
    /// `enum bpf_map_type`.
    pub kind: u32,
    /// Bytes.
    pub key_size: u32,
    /// Bytes.
    pub value_size: u32,
    /// The global variables, if it is a section of them.
    pub data: Vec<u8>,
}

/// A program of an object.
#[derive(Clone, Debug)]
pub struct Program {
    /// What hook it is for.
    pub section: ProgramSection,
    /// Its instructions, with the functions that it calls.
    pub function: Function,
}

/// An ELF object, linked.
#[derive(Clone, Debug)]
pub struct Object {
    /// By name.
    pub programs: BTreeMap<String, Program>,
    /// By the number that represents it in programs.
    pub maps: BTreeMap<u32, Map>,
}

/// Puts other numbers for maps into a program, such as file descriptors.
pub fn renumber_maps(
    program: &mut [bpf_insn],
    number: impl Fn(u32) -> anyhow::Result<u32>,
) -> anyhow::Result<()> {
    for instruction in program {
        let source = u32::from(instruction.src_reg());
        if u32::from(instruction.code) == BPF_LD | BPF_DW
            && matches!(source, BPF_PSEUDO_MAP_FD | BPF_PSEUDO_MAP_VALUE)
        {
            instruction.imm = number(instruction.imm.cast_unsigned())?.cast_signed();
        }
    }
    Ok(())
}

impl Object {
    /// Links an object, with other values for some of its global variables.
    pub fn link(elf: &[u8], globals: &[(&str, &[u8])]) -> anyhow::Result<Self> {
        let mut object = aya_obj::Object::parse(elf).context("cannot read the object")?;
        let globals: HashMap<_, _> =
            globals.iter().map(|&(name, value)| (name, (value, true))).collect();
        object.patch_map_data(globals).context("cannot set the object's variables")?;
        let maps: Vec<(String, aya_obj::Map)> = object.maps.drain().collect();
        let functions = object.functions.keys().map(|(section, _)| *section).collect();
        let numbered =
            || (1_i32..).zip(&maps).map(|(number, (name, map))| (name.as_str(), number, map));
        object.relocate_maps(numbered(), &functions).context("cannot link maps")?;
        object.relocate_calls(&functions).context("cannot link calls")?;
        let programs = object
            .programs
            .iter()
            .map(|(name, program)| {
                let function = object.functions.get(&program.function_key());
                let function = function.with_context(|| format!("{name} has no code"))?;
                let (section, function) = (program.section.clone(), function.clone());
                Ok((name.clone(), Program { section, function }))
            })
            .collect::<anyhow::Result<_>>()?;
        let maps = numbered()
            .map(|(name, number, map)| {
                let map = Map {
                    name: name.to_owned(),
                    kind: map.map_type(),
                    key_size: map.key_size(),
                    value_size: map.value_size(),
                    data: map.data().to_vec(),
                };
                (number.cast_unsigned(), map)
            })
            .collect();
        Ok(Self { programs, maps })
    }
}
