//! Builds the image a second time, at other paths, and compares the bytes.

use std::{
    fs,
    io::{BufReader, Read as _},
    os::unix::fs::symlink,
    path::Path,
};

use anyhow::{Context as _, Result};

use crate::workspace::{self, Workspace};

/// Fails unless a copy of the source elsewhere makes the same bytes as `archive`.
pub(super) fn compare(workspace: &Workspace, name: &str, archive: &Path) -> Result<()> {
    let directory = super::directory(workspace).join("elsewhere");
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    let copy = Workspace {
        root: directory.join("source"),
        target: directory.join("output"),
        cache: workspace.cache.clone(),
        cargo_home: directory.join("cargo"),
    };
    fs::create_dir_all(&copy.cargo_home)?;
    copy_source(workspace, &copy.root)?;
    // The same packages by another path.
    for entry in fs::read_dir(&workspace.cargo_home)? {
        let entry = entry?;
        symlink(entry.path(), copy.cargo_home.join(entry.file_name()))?;
    }
    let second = directory.join("mcs-agent.tar");
    super::write(&copy, name, &second)?;
    if let Some(offset) = first_difference(archive, &second)? {
        let [first, second] = [archive, &second].map(Path::display);
        anyhow::bail!("not reproducible: {first} and {second} differ from byte {offset} on");
    }
    println!("the same from {}", copy.root.display());
    Ok(fs::remove_dir_all(&directory)?)
}

/// Copies every file that git has or would add.
fn copy_source(workspace: &Workspace, to: &Path) -> Result<()> {
    for file in workspace::files(&workspace.root)? {
        let target = to.join(&file);
        fs::create_dir_all(target.parent().context("a file lies in a directory")?)?;
        fs::copy(workspace.root.join(&file), &target)
            .with_context(|| format!("cannot copy {file}"))?;
    }
    Ok(())
}

/// Where two files begin to differ, if they do.
fn first_difference(one: &Path, other: &Path) -> Result<Option<u64>> {
    let open = |file: &Path| {
        let open = fs::File::open(file).with_context(|| format!("cannot read {}", file.display()));
        open.map(|file| BufReader::new(file).bytes())
    };
    let (mut one, mut other) = (open(one)?, open(other)?);
    for offset in 0.. {
        match (one.next().transpose()?, other.next().transpose()?) {
            (None, None) => return Ok(None),
            (a, b) if a != b => return Ok(Some(offset)),
            _ => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = directory.path().join(name);
            fs::write(&path, content).unwrap();
            path
        };
        let one = file("one", "same");
        for (content, expected) in [("same", None), ("sane", Some(2)), ("same too", Some(4))] {
            assert_eq!(first_difference(&one, &file("other", content)).unwrap(), expected);
        }
    }
}
