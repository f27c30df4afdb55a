//! The kernel's eBPF objects, by their ids.

use aya::{
    maps::loaded_maps,
    programs::{ProgramInfo, loaded_links, loaded_programs},
};
use mcs_tests::procfs;

use crate::prelude::*;

/// A kind of object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    Map,
    Program,
    Link,
    /// Type information.
    Btf,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Map, Self::Program, Self::Link, Self::Btf];

    /// The field of fdinfo with an id.
    const fn field(self) -> &'static str {
        match self {
            Self::Map => "map_id",
            Self::Program => "prog_id",
            Self::Link => "link_id",
            Self::Btf => "btf_id",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Map => "map",
            Self::Program => "program",
            Self::Link => "link",
            Self::Btf => "BTF object",
        })
    }
}

/// Some of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects(BTreeSet<(Kind, u32)>);

impl Objects {
    /// All there are, whosever they are.
    pub(crate) fn all() -> Result<Self> {
        let mut all = Self::default();
        // What goes while it is listed is none.
        all.extend(Kind::Map, loaded_maps().flatten().map(|map| map.id()));
        all.extend(Kind::Program, loaded_programs().flatten().map(|program| program.id()));
        all.extend(Kind::Link, loaded_links().flatten().map(|link| link.id()));
        all.extend(Kind::Btf, bpf::btf_ids()?);
        Ok(all)
    }

    /// Those that a process holds open, with what these hold.
    pub(crate) fn held_by(pid: u32) -> Result<Self> {
        let mut held = Self::default();
        procfs::descriptors(pid)?.iter().for_each(|info| held.add_described(info));
        held.add_held()?;
        Ok(held)
    }

    /// Those that are pinned below a directory, with what these hold.
    pub(crate) fn pinned_in(directory: &Path) -> Result<Self> {
        let mut pinned = Self::default();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                pinned.append(Self::pinned_in(&entry.path())?);
            } else {
                pinned.add_described(&bpf::describe_pin(&entry.path())?);
            }
        }
        pinned.add_held()?;
        Ok(pinned)
    }

    /// Adds what fdinfo tells of a descriptor.
    fn add_described(&mut self, info: &str) {
        for kind in Kind::ALL {
            let id = procfs::number(info, kind.field());
            self.extend(kind, id.and_then(|id| u32::try_from(id).ok()));
        }
    }

    /// Adds the programs of links, and the maps and type information of programs.
    fn add_held(&mut self) -> Result {
        let links: BTreeSet<u32> = self.of(Kind::Link).collect();
        let programs = loaded_links().flatten().filter(|link| links.contains(&link.id()));
        let programs: Vec<u32> = programs.map(|link| link.program_id()).collect();
        self.extend(Kind::Program, programs);
        for program in loaded_programs().flatten() {
            if self.0.contains(&(Kind::Program, program.id())) {
                self.add_of(&program)?;
            }
        }
        Ok(())
    }

    fn add_of(&mut self, program: &ProgramInfo) -> Result {
        self.extend(Kind::Map, program.map_ids()?.into_iter().flatten());
        self.extend(Kind::Btf, program.btf_id());
        Ok(())
    }

    fn extend(&mut self, kind: Kind, ids: impl IntoIterator<Item = u32>) {
        self.0.extend(ids.into_iter().map(|id| (kind, id)));
    }

    /// The ids of a kind.
    pub(crate) fn of(&self, kind: Kind) -> impl Iterator<Item = u32> {
        self.0.iter().filter(move |(of, _)| *of == kind).map(|(_, id)| *id)
    }

    /// Those that are in both.
    pub(crate) fn common(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// Takes in others.
    pub(crate) fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = Kind::ALL.map(|kind| format!("{} {kind}s", self.of(kind).count()));
        f.write_str(&counts.join(", "))
    }
}
