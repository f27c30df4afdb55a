//! Checks that no file names a file in its imports that names it, directly or by way of others.
//!
//! What a file and the modules below it use of each other does not count: they are one room. So what a parent exports again
//! counts as the parent's. Tests and the bodies of macros do not count either.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use syn::{
    Attribute, ItemMod, UseTree,
    visit::{self, Visit},
};

const CRATES: [&str; 6] =
    ["mcs-agent", "mcs-cli", "mcs-common", "mcs-controller", "mcs-ebpf", "mcs-kube"];

/// A module that has a file, as its path in the crate.
type Module = Vec<String>;

/// Fails with the files of each circle.
pub(super) fn check(root: &Path) -> Result<()> {
    let mut found = Vec::new();
    for name in CRATES {
        let source = root.join(name).join("src");
        let mut files = Vec::new();
        super::boundaries::collect(&source, &mut files)?;
        let files: BTreeMap<Module, PathBuf> = files
            .into_iter()
            .map(|file| Ok((module(&source, &file)?, file)))
            .collect::<Result<_>>()?;
        let mut imports = BTreeMap::new();
        for (module, file) in &files {
            let text = fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            let used =
                used(module, &text).with_context(|| format!("cannot parse {}", file.display()))?;
            let used = used.into_iter().filter_map(|path| file_of(&files, path));
            let others: BTreeSet<_> = used.filter(|other| !is_one_room(module, other)).collect();
            imports.insert(module.clone(), others);
        }
        found.extend(circles(&imports).into_iter().map(|circle| {
            let names: Vec<_> = circle.iter().map(|module| module.join("::")).collect();
            format!("{name}: {}", names.join(" -> "))
        }));
    }
    ensure!(
        found.is_empty(),
        "files that import each other (move what both use to a third one):\n  {}",
        found.join("\n  ")
    );
    Ok(())
}

fn module(source: &Path, file: &Path) -> Result<Module> {
    let path = file.strip_prefix(source)?.with_extension("");
    let mut module: Module = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module == ["lib"] || module == ["main"] {
        module.clear();
    }
    if module.last().is_some_and(|name| name == "mod") {
        module.pop();
    }
    Ok(module)
}

/// The file that has an item of this path. The root of a crate counts for none.
fn file_of(files: &BTreeMap<Module, PathBuf>, mut path: Module) -> Option<Module> {
    while !path.is_empty() && !files.contains_key(&path) {
        path.pop();
    }
    (!path.is_empty()).then_some(path)
}

fn is_one_room(one: &Module, other: &Module) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// The paths in the crate that a module uses.
fn used(module: &Module, text: &str) -> syn::Result<Vec<Module>> {
    let mut reader = Reader { module: module.clone(), used: Vec::new() };
    reader.visit_file(&syn::parse_file(text)?);
    Ok(reader.used)
}

/// Collects what the module at `module` uses.
struct Reader {
    module: Module,
    used: Vec<Module>,
}

impl Reader {
    fn note(&mut self, path: &[String]) {
        let (first, rest) = path.split_first().map_or(("", path), |(first, rest)| (first, rest));
        let start = match first {
            "crate" => Vec::new(),
            "self" => self.module.clone(),
            "super" => self.module[..self.module.len().saturating_sub(1)].to_vec(),
            _ => return,
        };
        let above = rest.iter().take_while(|part| *part == "super").count();
        let start = &start[..start.len().saturating_sub(above)];
        self.used.push([start, &rest[above..]].concat());
    }

    fn note_tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.note_tree(&with(&path.ident), &path.tree),
            UseTree::Name(name) => self.note(&with(&name.ident)),
            UseTree::Rename(name) => self.note(&with(&name.ident)),
            UseTree::Glob(_) => self.note(before),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.note_tree(before, tree));
            }
        }
    }
}

impl Visit<'_> for Reader {
    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        if !is_of_tests(&item.attrs) {
            self.note_tree(&[], &item.tree);
        }
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let parts: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        self.note(&parts);
        visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, item: &ItemMod) {
        if item.content.is_some() && !is_of_tests(&item.attrs) {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }

    fn visit_item_impl(&mut self, item: &syn::ItemImpl) {
        if !is_of_tests(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &syn::ItemFn) {
        if !is_of_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }
}

fn is_of_tests(attributes: &[Attribute]) -> bool {
    let is_test = |attribute: &Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|name| name == "test")
    };
    attributes.iter().any(is_test)
}

/// One circle for each file that is first in one.
fn circles(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Vec<Module>> {
    let mut found: Vec<Vec<Module>> = Vec::new();
    for start in imports.keys() {
        let is_known = found.iter().any(|circle| circle.contains(start));
        if let Some(circle) = circle_from(imports, start).filter(|_| !is_known) {
            found.push(circle);
        }
    }
    found
}

/// The shortest way from a file back to it.
fn circle_from(
    imports: &BTreeMap<Module, BTreeSet<Module>>,
    start: &Module,
) -> Option<Vec<Module>> {
    let mut seen = BTreeSet::new();
    let mut ways = vec![vec![start.clone()]];
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            for next in way.last().and_then(|last| imports.get(last)).into_iter().flatten() {
                if next == start {
                    return Some(way);
                }
                if seen.insert(next) {
                    longer.push([&way[..], std::slice::from_ref(next)].concat());
                }
            }
        }
        ways = longer;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Module {
        text.split("::").map(str::to_owned).collect()
    }

    #[test]
    fn paths_lead_from_the_module_that_uses_them() {
        let text = "use super::{b::{c, d as e}, super::f}; use crate::g::*; use std::fmt;
            mod inner { use super::h; }
            #[cfg(test)] mod tests { use crate::t; }
            fn k(x: crate::m::X) { self::n::o() }";
        let found: Vec<_> =
            used(&path("a::b"), text).unwrap().iter().map(|one| one.join("::")).collect();
        assert_eq!(found, ["a::b::c", "a::b::d", "f", "g", "a::b::h", "m::X", "a::b::n::o"]);
    }

    #[test]
    fn circles_of_any_length_are_found_once() {
        let edges = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("e", "f"), ("f", "e")];
        let mut imports: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for (from, to) in edges {
            imports.entry(path(from)).or_default().insert(path(to));
        }
        let found = circles(&imports);
        assert_eq!(found, [["a", "b", "c"].map(path).to_vec(), ["e", "f"].map(path).to_vec()]);
    }
}
