//! Compares a node before and after an agent: pins, files, devices, programs, routes, settings.

use std::{ops::RangeInclusive, os::unix::fs::FileTypeExt as _};

use mcs_tests::{
    agent::Config,
    bpf::{AttachType, classifier::Way},
    netns::Settings,
};

use crate::prelude::*;

/// The numbers in `enum bpf_attach_type` of hooks of cgroups that run programs in turn.
const ATTACH_TYPES: [RangeInclusive<u32>; 6] = [0..=3, 6..=6, 8..=15, 18..=22, 29..=32, 34..=34];

/// What there is, at each place where an agent works.
#[derive(Debug)]
pub(crate) struct Traces {
    by_place: BTreeMap<String, String>,
    settings: Vec<Settings>,
}

impl Traces {
    /// Looks at an agent's pins, files and cgroup, and at the devices, filters, addresses, routes,
    /// rules and settings of these namespaces.
    pub(crate) fn of(config: &Config, namespaces: &[&Namespace]) -> Result<Self> {
        let mut by_place = BTreeMap::new();
        list(&config.bpffs, &mut by_place)?;
        list(&config.run_dir, &mut by_place)?;
        programs_of(&config.cgroup_root, &mut by_place)?;
        let mut settings = Vec::new();
        for netns in namespaces {
            devices_of(netns, &mut by_place)?;
            settings.push(Settings::look_at(netns)?);
        }
        Ok(Self { by_place, settings })
    }

    /// The same, once nothing changes by itself any more: the kernel gives new devices addresses
    /// some time after they came up.
    pub(crate) fn settled(config: &Config, namespaces: &[&Namespace]) -> Result<Self> {
        let mut last = Self::of(config, namespaces)?;
        wait::until("new devices to settle", || {
            thread::sleep(Duration::from_millis(500));
            let now = Self::of(config, namespaces)?;
            let differences = last.differences(&now);
            last = now;
            ensure!(differences.is_empty(), "{differences:?}");
            Ok(())
        })?;
        Ok(last)
    }

    /// The number of places and settings.
    pub(crate) fn count(&self) -> usize {
        self.by_place.len() + self.settings.iter().map(Settings::count).sum::<usize>()
    }

    /// What is not as it was.
    pub(crate) fn differences(&self, now: &Self) -> Vec<String> {
        let places = self.by_place.keys().chain(now.by_place.keys());
        let mut differences: Vec<_> = places
            .filter(|place| self.by_place.get(*place) != now.by_place.get(*place))
            .map(|place| {
                let [was, is] = [self, now].map(|traces| traces.by_place.get(place));
                format!("{place}: {was:?} became {is:?}")
            })
            .collect();
        for (was, is) in self.settings.iter().zip(&now.settings) {
            differences.extend(was.differences(is));
        }
        differences.sort();
        differences.dedup();
        differences
    }
}

/// Directories, sockets, files with what they hold, and pins with what they are.
fn list(directory: &Path, places: &mut BTreeMap<String, String>) -> Result {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        let content = if path.is_dir() {
            list(&path, places)?;
            "a directory".to_owned()
        } else if entry.file_type()?.is_socket() {
            "a socket".to_owned()
        } else {
            match fs::read_to_string(&path) {
                Ok(content) => content,
                Err(_) => pinned(&path)?,
            }
        };
        places.insert(path.display().to_string(), content);
    }
    Ok(())
}

/// What is pinned, by its id.
fn pinned(path: &Path) -> Result<String> {
    let info = bpf::describe_pin(path)?;
    Ok(info.lines().filter(|line| line.contains("_id:")).collect())
}

/// Programs that run on this cgroup and not on its parent, where other agents may be at work.
fn programs_of(cgroup: &Path, places: &mut BTreeMap<String, String>) -> Result {
    let open = File::open(cgroup)?;
    let parent = File::open(cgroup.parent().context("the cgroup has no parent")?)?;
    for attach in ATTACH_TYPES.into_iter().flatten() {
        let above = bpf::attached_to_cgroup(parent.as_fd(), attach)?;
        let mut here = bpf::attached_to_cgroup(open.as_fd(), attach)?;
        here.retain(|id| !above.contains(id));
        if !here.is_empty() {
            places.insert(format!("hook {attach} of {}", cgroup.display()), format!("{here:?}"));
        }
    }
    Ok(())
}

/// Devices with their addresses, qdiscs, filters and programs of tcx.
fn devices_of(netns: &Namespace, places: &mut BTreeMap<String, String>) -> Result {
    let shown = netns.output("ip", &["-j", "address", "show"])?;
    let links: Vec<Value> = serde_json::from_str(&shown)?;
    for link in links {
        let name = link["ifname"].as_str().context("a link without a name")?;
        let index = u32::try_from(link["ifindex"].as_u64().context("a link without an index")?)?;
        let place = |what: &str| format!("{what} of {name} in {}", netns.name());
        places.insert(place("addresses"), link.to_string());
        let qdiscs = netns.output("tc", &["qdisc", "show", "dev", name])?;
        places.insert(place("qdiscs"), qdiscs);
        for way in Way::BOTH {
            let filters = netns.output("tc", &["filter", "show", "dev", name, way.name()])?;
            places.insert(place(&format!("{} filters", way.name())), filters);
        }
        for attach in [AttachType::BPF_TCX_INGRESS, AttachType::BPF_TCX_EGRESS] {
            // Before Linux 6.6 there is none.
            let programs = netns.run(|| bpf::attached_to_interface(index, attach))?;
            let programs = programs.unwrap_or_default();
            places.insert(place(&format!("{attach:?}")), format!("{programs:?}"));
        }
    }
    Ok(())
}
