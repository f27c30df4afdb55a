//! Programs of another version, for tests: a copy of the workspace with other text in some places. What is shipped has no trace
//! of them.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use crate::workspace::Workspace;

/// A copy of the workspace.
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    /// Text that the sources of the programs have once, and what stands there instead.
    edits: &'static [(&'static str, &'static str)],
    /// A crate whose code is left out. It is there for the features that it asks of others: without it these would be built
    /// again.
    empty: Option<&'static str>,
}

/// An agent whose config maps have a longer value: values grow at their end.
pub(crate) const WIDE: Variant = Variant {
    name: "wide",
    edits: &[
        ("    pub row: u32,\n}", "    pub row: u32,\n    /// Padding.\n    pub pad: [u32; 2],\n}"),
        ("size_of::<FrontendState>() == 48", "size_of::<FrontendState>() == 56"),
    ],
    empty: None,
};

/// An agent whose table of connected sockets has two slots.
pub(crate) const TWO_SLOTS: Variant = Variant {
    name: "two-slots",
    edits: &[("pub const SOCKET_SLOT_BITS: u32 = 17;", "pub const SOCKET_SLOT_BITS: u32 = 1;")],
    empty: None,
};

/// A controller whose objects have a field that the types lack.
pub(crate) const NEXT: Variant = Variant {
    name: "next",
    edits: &[
        ("pub const SCHEMA: u32 = 1;", "pub const SCHEMA: u32 = 2;"),
        (
            "    pub audience: Option<Vec<String>>,\n",
            "    pub audience: Option<Vec<String>>,\n    /// New.\n    pub moon: Option<String>,\n",
        ),
        (
            "        audience,\n        slices:",
            "        audience,\n        moon: Some(\"full\".to_owned()),\n        slices:",
        ),
        (
            "    pub token_expires: Option<String>,\n",
            "    pub token_expires: Option<String>,\n    /// New.\n    pub moon: Option<String>,\n",
        ),
        (
            "        last_contact: peer.last_contact.map(",
            "        moon: Some(\"full\".to_owned()),\n        last_contact: peer.last_contact.map(",
        ),
    ],
    empty: Some("mcs-agent"),
};

impl Variant {
    /// Brings the copy up to date, and returns where cargo has to run.
    pub(crate) fn write(&self, workspace: &Workspace) -> Result<PathBuf> {
        let top = workspace.target.join("variants").join(self.name);
        self.write_to(&top, &workspace.root)
            .with_context(|| format!("cannot copy the workspace to {}", top.display()))?;
        Ok(top)
    }

    fn write_to(&self, top: &Path, root: &Path) -> Result<()> {
        let below = top.join(self.name);
        fs::create_dir_all(&below)?;
        let mut sources = Vec::new();
        for entry in fs::read_dir(root)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("mcs-") {
                sources.extend(self.sources_of(&entry.path(), &name)?);
            } else if ["tests", "xtask"].contains(&&*name) && !below.join(&name).exists() {
                // Members of the workspace, which nobody builds here.
                symlink(entry.path(), below.join(&name))?;
            }
        }
        self.edit(&mut sources)?;
        remove_others(&below, &sources)?;
        for (path, text) in &sources {
            write_if_changed(&below.join(path), text)?;
        }
        write_if_changed(&top.join("Cargo.toml"), self.manifest(root)?.as_bytes())?;
        write_if_changed(&top.join("Cargo.lock"), &fs::read(root.join("Cargo.lock"))?)
    }

    /// The manifest of the workspace. Its members lie one directory deeper: cargo takes packages that lie in the same place of
    /// two workspaces for the same ones, and would not build them again.
    fn manifest(&self, root: &Path) -> Result<String> {
        let text = fs::read_to_string(root.join("Cargo.toml"))?;
        let deeper = |line: &str| match line {
            list if list.starts_with("members") || list.starts_with("default-members") => {
                let deeper = list.replace("[\"", &format!("[\"{}/", self.name));
                deeper.replace(", \"", &format!(", \"{}/", self.name))
            }
            other => other.replace("path = \"", &format!("path = \"{}/", self.name)),
        };
        Ok(text.lines().map(|line| deeper(line) + "\n").collect())
    }

    /// The files of a crate, by their paths in the workspace.
    fn sources_of(&self, directory: &Path, package: &str) -> Result<Vec<(PathBuf, Vec<u8>)>> {
        if self.empty != Some(package) {
            let mut found = Vec::new();
            collect(directory, Path::new(package), &mut found)?;
            return Ok(found);
        }
        let kept =
            ["Cargo.toml", "build.rs"].into_iter().filter(|name| directory.join(name).exists());
        let kept =
            kept.map(|name| Ok((Path::new(package).join(name), fs::read(directory.join(name))?)));
        let none = [("src/lib.rs", "//! Empty.\n"), ("src/main.rs", "//! Empty.\nfn main() {}\n")];
        let none = none.map(|(name, text)| Ok((Path::new(package).join(name), text.into())));
        kept.chain(none).collect()
    }

    fn edit(&self, sources: &mut [(PathBuf, Vec<u8>)]) -> Result<()> {
        for (from, to) in self.edits {
            let mut found = 0;
            for (path, text) in sources.iter_mut() {
                let is_code = path.extension().is_some_and(|extension| extension == "rs");
                let Some(code) = str::from_utf8(text).ok().filter(|_| is_code) else { continue };
                let here = code.matches(from).count();
                if here > 0 {
                    found += here;
                    *text = code.replace(from, to).into_bytes();
                }
            }
            ensure!(
                found == 1,
                "the programs have {from:?} {found} times, not once: the variant {} in {} has to follow",
                self.name,
                file!()
            );
        }
        Ok(())
    }
}

fn collect(from: &Path, to: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            collect(&from, &to, found)?;
        } else {
            found.push((to, fs::read(from)?));
        }
    }
    Ok(())
}

/// Removes files of the copy that the workspace does not have.
fn remove_others(below: &Path, sources: &[(PathBuf, Vec<u8>)]) -> Result<()> {
    let wanted: BTreeSet<_> = sources.iter().map(|(path, _)| path).collect();
    let mut had = Vec::new();
    for entry in fs::read_dir(below)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), Path::new(&entry.file_name()), &mut had)?;
        }
    }
    let others = had.iter().map(|(path, _)| path).filter(|path| !wanted.contains(path));
    others.into_iter().try_for_each(|path| Ok(fs::remove_file(below.join(path))?))
}

/// Keeps the file's time where its content stays, so that cargo builds nothing again.
pub(crate) fn write_if_changed(file: &Path, content: &[u8]) -> Result<()> {
    if fs::read(file).is_ok_and(|old| old == content) {
        return Ok(());
    }
    let write = || {
        fs::create_dir_all(file.parent().unwrap_or(file))?;
        fs::write(file, content)
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unchanged_file_is_not_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("object");
        let time = || file.metadata().unwrap().modified().unwrap();
        write_if_changed(&file, b"one").unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH;
        fs::File::options().write(true).open(&file).unwrap().set_modified(old).unwrap();

        write_if_changed(&file, b"one").unwrap();
        assert_eq!(time(), old);
        write_if_changed(&file, b"two").unwrap();
        assert_ne!(time(), old);
        assert_eq!(fs::read(&file).unwrap(), b"two");
    }

    #[test]
    fn each_variant_differs_where_it_says() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let directory = tempfile::tempdir().unwrap();
        for variant in [WIDE, TWO_SLOTS, NEXT] {
            let top = directory.path().join(variant.name);
            let stale = top.join(variant.name).join("mcs-common/src/gone.rs");
            write_if_changed(&stale, b"").unwrap();
            variant.write_to(&top, root).unwrap();
            assert!(!stale.exists());
            let manifest = fs::read_to_string(top.join("Cargo.toml")).unwrap();
            let member = format!("\"{}/mcs-common\"", variant.name);
            assert_eq!(manifest.matches(&member).count(), 3, "members, default members, its path");
        }
    }
}
