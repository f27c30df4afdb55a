//! Takes features out of a copy of the tree, one at a time, and checks that their crate compiles without them.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use anyhow::{Context as _, Result, bail, ensure};

use super::{Feature, NOT_REMOVABLE, product, take_from};
use crate::{
    build, process,
    variant::write_if_changed,
    workspace::{self, Workspace},
};

/// How many errors of a compiler are shown.
const ERRORS: usize = 5;

/// Checks the features that `which` names: `all`, `changed` since the commit `base`, or one.
pub(in crate::lint) fn check(
    workspace: &Workspace,
    features: &[Feature],
    which: &str,
    base: Option<&str>,
) -> Result<()> {
    check_except(workspace, features, which, base, NOT_REMOVABLE)
}

fn check_except(
    workspace: &Workspace,
    features: &[Feature],
    which: &str,
    base: Option<&str>,
    not_removable: &[&str],
) -> Result<()> {
    let chosen: Vec<_> = match which {
        "all" => features.iter().collect(),
        "changed" => {
            let changed = changed(&workspace.root, base)?;
            features.iter().filter(|feature| is_changed(feature, &changed)).collect()
        }
        name => features.iter().filter(|one| one.name == name || one.id() == name).collect(),
    };
    if chosen.is_empty() && which != "changed" && which != "all" {
        let ids: Vec<_> = features.iter().map(Feature::id).collect();
        bail!("there is no feature {which}; there are: {}", ids.join(", "));
    }
    println!("{} of {} features to take out", chosen.len(), features.len());
    let directory = workspace.target.join("lint-features");
    let copy = Workspace {
        root: directory.join("tree"),
        target: directory.join("target"),
        cache: workspace.cache.clone(),
        cargo_home: workspace.cargo_home.clone(),
    };
    let snapshot = Snapshot::take(&workspace.root, &copy.root)?;
    let mut found = Vec::new();
    for feature in chosen {
        let id = feature.id();
        println!("== without {id}");
        snapshot.write()?;
        let has_programs = snapshot.remove(feature)?;
        match (compile(&copy, feature.of, has_programs), not_removable.contains(&id.as_str())) {
            (Ok(()), true) => {
                found.push(format!("it compiles without {id}, {}", take_from("NOT_REMOVABLE")));
            }
            (Err(error), false) => found.push(format!(
                "it does not compile without {id}; move what uses it to its folder:\n    {error:#}"
            )),
            (Err(_), true) => println!("   it does not compile yet"),
            (Ok(()), false) => {}
        }
    }
    if which == "all" {
        let is_gone = |id: &&&str| features.iter().all(|feature| feature.id() != **id);
        let gone = not_removable.iter().filter(is_gone);
        found.extend(gone.map(|id| format!("{id} is gone, {}", take_from("NOT_REMOVABLE"))));
    }
    ensure!(found.is_empty(), "features:\n  {}", found.join("\n  "));
    Ok(())
}

fn compile(copy: &Workspace, of: &str, has_programs: bool) -> Result<()> {
    let mut check = copy.cargo();
    check.args(["check", "--quiet", "--color", "never", "--message-format", "short"]);
    check.args(["--package", of, "--lib", "--bins"]);
    let output = check.output().with_context(|| process::cannot_start(&check))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let errors = text.lines().filter(|line| line.contains("error"));
        bail!("{}", errors.take(ERRORS).collect::<Vec<_>>().join("\n    "));
    }
    if has_programs {
        build::object(copy)?;
    }
    Ok(())
}

/// The files of a workspace as they were at one time, and the directory of their copy.
struct Snapshot<'a> {
    files: BTreeMap<String, Vec<u8>>,
    copy: &'a Path,
}

impl<'a> Snapshot<'a> {
    fn take(root: &Path, copy: &'a Path) -> Result<Self> {
        // It may have files that are gone since.
        if copy.exists() {
            fs::remove_dir_all(copy)
                .with_context(|| format!("cannot remove {}", copy.display()))?;
        }
        let read = |path: String| {
            let bytes =
                fs::read(root.join(&path)).with_context(|| format!("cannot read {path}"))?;
            Ok((path, bytes))
        };
        let files = workspace::files(root)?.into_iter().map(read).collect::<Result<_>>()?;
        Ok(Self { files, copy })
    }

    /// Writes what the copy lacks or has otherwise. Other files keep their times, so cargo does not check their crates again.
    fn write(&self) -> Result<()> {
        let mut files = self.files.iter();
        files.try_for_each(|(path, bytes)| write_if_changed(&self.copy.join(path), bytes))
    }

    /// Takes a feature out of the copy. Returns whether programs had a part in it.
    fn remove(&self, feature: &Feature) -> Result<bool> {
        let of_feature = || self.files.keys().filter(|path| feature.has(path));
        for path in of_feature() {
            let file = self.copy.join(path);
            fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
        for list in feature.lists() {
            if let Some(bytes) = self.files.get(&list) {
                let text = without(&String::from_utf8_lossy(bytes), &feature.name);
                fs::write(self.copy.join(&list), text)
                    .with_context(|| format!("cannot write {list}"))?;
            }
        }
        Ok(of_feature().any(|path| path.starts_with(super::PROGRAMS)))
    }
}

/// The lines that do not have `word`.
fn without(text: &str, word: &str) -> String {
    text.split_inclusive('\n')
        .filter(|line| product::tokens(line).all(|token| token != word))
        .collect()
}

fn is_changed(feature: &Feature, changed: &[String]) -> bool {
    let lists: Vec<_> = feature.lists().collect();
    changed.iter().any(|path| feature.has(path) || lists.contains(path))
}

/// The files that differ from a commit, by default from the main branch, or from the commit before if this is main.
fn changed(root: &Path, base: Option<&str>) -> Result<Vec<String>> {
    let commit = |name: &str| {
        git(root, &["rev-parse", "--verify", "--quiet", &format!("{name}^{{commit}}")])
    };
    let base = if let Some(base) = base {
        commit(base)?.with_context(|| format!("--base: there is no commit {base}"))?
    } else {
        let head = commit("HEAD")?;
        let candidates = ["origin/main", "main", "HEAD^"].map(commit);
        let candidates = candidates.into_iter().collect::<Result<Vec<_>>>()?;
        let mut others = candidates.into_iter().flatten().filter(|one| Some(one) != head.as_ref());
        others.next().context("there is no main branch and no commit before: say --base REF")?
    };
    let differ =
        git(root, &["diff", "--name-only", "-z", base.trim()])?.context("git diff failed")?;
    let untracked = git(root, &["ls-files", "-z", "--others", "--exclude-standard"])?;
    let paths = differ + &untracked.unwrap_or_default();
    Ok(paths.split_terminator('\0').map(str::to_owned).collect())
}

/// What git prints, or nothing if it fails.
fn git(root: &Path, arguments: &[&str]) -> Result<Option<String>> {
    let output = Command::new("git").current_dir(root).args(arguments).output();
    let output = output.context("cannot start git")?;
    Ok(output.status.success().then_some(String::from_utf8(output.stdout)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Feature {
        Feature { of: "mcs-agent", name: "trace".to_owned() }
    }

    #[test]
    fn a_feature_is_taken_out_and_put_back() {
        let directory = tempfile::tempdir().unwrap();
        let (root, copy) = (directory.path().join("root"), directory.path().join("copy"));
        let files = [
            ("mcs-agent/src/features.rs", "mod page;\nmod trace;\nlist![page::A, traced::B]\n"),
            ("mcs-agent/src/features/page/mod.rs", ""),
            ("mcs-agent/src/features/trace/mod.rs", ""),
            ("mcs-ebpf/src/features/trace/ring.rs", ""),
            (".gitignore", "/target\n"),
            ("target/much", ""),
        ];
        for (path, text) in files {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        }
        git(&root, &["init", "--quiet"]).unwrap().unwrap();
        let snapshot = Snapshot::take(&root, &copy).unwrap();
        snapshot.write().unwrap();
        assert!(snapshot.remove(&trace()).unwrap());
        let exists = |path: usize| copy.join(files[path].0).exists();
        assert_eq!([0, 1, 2, 3, 4, 5].map(exists), [true, true, false, false, true, false]);
        let list = || fs::read_to_string(copy.join(files[0].0)).unwrap();
        assert_eq!(list(), "mod page;\nlist![page::A, traced::B]\n");

        snapshot.write().unwrap();
        assert_eq!([0, 1, 2, 3, 4, 5].map(exists), [true, true, true, true, true, false]);
        assert_eq!(list(), files[0].1);
    }

    #[test]
    fn a_crate_has_to_compile_without_a_feature() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        let files = [
            ("Cargo.toml", "[workspace]\nmembers = [\"mcs-agent\"]\nresolver = \"3\"\n"),
            ("mcs-agent/Cargo.toml", "[package]\nname = \"mcs-agent\"\nedition = \"2024\"\n"),
            (
                "mcs-agent/src/lib.rs",
                "pub mod features;\npub fn f() {\n    features::page::f()\n}\n",
            ),
            ("mcs-agent/src/main.rs", "fn main() {}\n"),
            ("mcs-agent/src/features.rs", "pub mod page;\npub mod trace;\n"),
            ("mcs-agent/src/features/page/mod.rs", "pub fn f() {}\n"),
            ("mcs-agent/src/features/trace/mod.rs", "fn unused() {}\n"),
        ];
        for (path, text) in files {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        }
        git(&root, &["init", "--quiet"]).unwrap().unwrap();
        let here = Workspace::discover().unwrap();
        let workspace = Workspace { target: root.join("target"), root, ..here };
        let features = [Feature { of: "mcs-agent", name: "page".to_owned() }, trace()];
        let of = |which, not_removable: &[&str]| {
            check_except(&workspace, &features, which, None, not_removable)
                .map_err(|error| error.to_string())
        };
        let error = of("all", &["mcs-agent/trace"]).unwrap_err();
        let page = "not compile without mcs-agent/page; move what uses it to its folder:\n    mcs-agent/src/lib.rs:3:";
        assert!(
            error.contains(page) && error.contains("compiles without mcs-agent/trace, take"),
            "{error}"
        );
        assert_eq!(of("all", &["mcs-agent/page"]), Ok(()));
        assert_eq!(of("trace", &[]), Ok(()));
        assert!(of("pages", &[]).unwrap_err().contains("mcs-agent/page, mcs-agent/trace"));
    }

    #[test]
    fn a_feature_has_changed_with_its_folder_and_its_list() {
        let cases = [
            ("mcs-agent/src/features/trace/ring.rs", true),
            ("mcs-ebpf/src/features/trace.rs", true),
            ("mcs-agent/src/features.rs", true),
            ("mcs-ebpf/src/features.rs", true),
            ("mcs-controller/src/features.rs", false),
            ("mcs-agent/src/features/traced.rs", false),
        ];
        for (path, expected) in cases {
            assert_eq!(is_changed(&trace(), &[path.to_owned()]), expected, "{path}");
        }
    }
}
