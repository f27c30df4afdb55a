//! Compares the settings, routes and rules of network namespaces.

use std::{collections::BTreeMap, fs, path::Path};

use super::Namespace;

/// The settings, routes and rules of a namespace.
#[derive(PartialEq, Eq, Debug)]
pub struct Settings {
    settings: BTreeMap<String, Vec<u8>>,
    others: Vec<String>,
}

/// They count.
const VARYING: &[&str] = &["nf_conntrack_count"];

impl Settings {
    /// Looks at all of them.
    pub fn look_at(netns: &Namespace) -> anyhow::Result<Self> {
        let settings = netns.run(|| {
            let mut settings = BTreeMap::new();
            read_settings(Path::new("/proc/sys/net"), &mut settings)?;
            anyhow::Ok(settings)
        })??;
        let commands: [(&str, &[&str]); 5] = [
            ("ip", &["-4", "rule"]),
            ("ip", &["-6", "rule"]),
            ("ip", &["-4", "route", "show", "table", "all"]),
            ("ip", &["-6", "route", "show", "table", "all"]),
            ("nft", &["list", "ruleset"]),
        ];
        let others = commands.iter().map(|(program, arguments)| netns.output(program, arguments));
        Ok(Self { settings, others: others.collect::<Result<_, _>>()? })
    }

    /// How many settings there are.
    pub fn count(&self) -> usize {
        self.settings.len()
    }

    /// The settings that differ, and what commands printed differently.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let names = self.settings.keys().chain(other.settings.keys());
        let settings = names.filter(|name| self.settings.get(*name) != other.settings.get(*name));
        let others = self.others.iter().zip(&other.others).filter(|(a, b)| a != b);
        settings.cloned().chain(others.map(|(a, b)| format!("{a} became {b}"))).collect()
    }
}

fn read_settings(
    directory: &Path,
    settings: &mut BTreeMap<String, Vec<u8>>,
) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        if entry.file_type()?.is_dir() {
            read_settings(&path, settings)?;
        } else if !VARYING.iter().any(|varying| name == *varying) {
            // Some can only be written.
            settings.insert(path.display().to_string(), fs::read(&path).unwrap_or_default());
        }
    }
    Ok(())
}
