//! A start, repairs, growth and variants, on a kernel in memory.

use std::fs;

use super::{fixture::Site, *};
use crate::core::{
    control::kernel::testing::PinnedMaps,
    model::Memory,
    tables::fixtures::{desired, frontend, id, maps},
};

const SMALL: Capacity = Capacity { vips: 8, frontends: 8, endpoints: 16, clusters: 2, imports: 8 };
const LARGE: Capacity =
    Capacity { vips: 16, frontends: 16, endpoints: 64, clusters: 4, imports: 16 };

/// What maps hold that lead one frontend to one backend.
fn contents() -> MapContents {
    let web = frontend("web", &[("10.1.0.1:80", "east")]);
    let (maps, _) = maps(SMALL, &[&desired([(id("10.0.0.1", 80), web)])]);
    maps.contents().clone()
}

/// A site where an earlier agent left maps of another shape: more than `--max-memory` allows.
fn outgrown(contents: Option<MapContents>) -> Site {
    let mut site = Site::new();
    let capacity = Capacity { endpoints: 1 << 22, ..Capacity::default() };
    site.kernel.pin(PinnedMaps { capacity, contents });
    site.config.max_memory = Memory(1 << 20);
    site
}

/// A site where an earlier agent left small maps.
async fn grown() -> (Site, InstalledPrograms) {
    let site = Site::new();
    site.kernel.pin(PinnedMaps { capacity: SMALL, contents: Some(contents()) });
    let installed = site.install().await.unwrap();
    assert_eq!((installed.capacity(), installed.maps.maps.contents()), (SMALL, &contents()));
    site.kernel.take_done();
    (site, installed)
}

fn variant() -> Vec<Setting> {
    vec![Setting::Constant("VARIANT", 1)]
}

#[tokio::test]
async fn programs_are_attached_when_all_that_they_read_is_right() {
    let site = Site::new();
    let installed = site.install().await.unwrap();
    assert_eq!(
        site.kernel.take_done(),
        [
            "load",
            "prepare filter after None",
            "live",
            "record run",
            "copy flows",
            "prepare evictions",
            "attach",
            "copy flows",
            "commit",
            // The hints are right from now on.
            "record run",
        ]
    );
    assert_eq!(site.kernel.attached(), Some(1));
    assert!(!installed.is_outdated());
    // The next agent goes on with the maps and hints.
    drop(installed);
    let again = site.install().await.unwrap();
    assert!(again.keeps.hints && !again.is_outdated());
}

#[tokio::test]
async fn an_agent_whose_programs_do_not_load_attaches_nothing() {
    for what in ["load", "prepare filter after None", "live", "record run", "prepare evictions"] {
        let site = Site::new();
        site.kernel.fail(what);
        assert!(site.install().await.is_err(), "{what}");
        assert_eq!(site.kernel.attached(), None, "{what}");
    }
}

#[tokio::test]
async fn slots_are_kept_until_the_programs_that_keep_them_are_detached() {
    let mut site = Site::new();
    let keeps =
        |site: &Site| read_run_record(&Pins::new(&site.config.bpffs).run()).unwrap().keeps_slots;
    drop(site.install().await.unwrap());
    assert!(keeps(&site));
    site.config.socket_lb = SocketLb::Off;
    for what in ["record run", "prepare evictions"] {
        site.kernel.fail(what);
        assert!(site.install().await.is_err());
        assert!(keeps(&site), "{what}: the programs are attached and keep them");
    }
    drop(site.install().await.unwrap());
    assert!(!keeps(&site));
}

#[tokio::test]
async fn maps_of_another_shape_are_copied_before_the_switch() {
    let site = outgrown(Some(contents()));
    let installed = site.install().await.unwrap();
    assert_eq!(installed.maps.maps.contents(), &contents());
    assert_eq!(site.kernel.attached(), Some(1));
    assert!(!installed.is_outdated());
}

#[tokio::test]
async fn maps_that_cannot_be_read_stay_until_the_new_ones_are_filled() {
    let site = outgrown(None);
    let mut installed = site.install().await.unwrap();
    installed.repair().await;
    assert_eq!((installed.is_outdated(), site.kernel.attached()), (true, None));
    installed.filled().await;
    assert_eq!((installed.is_outdated(), site.kernel.attached()), (false, Some(1)));
}

#[tokio::test]
async fn a_switch_that_fails_is_tried_again_by_a_repair() {
    for what in ["prepare evictions", "attach", "commit"] {
        let site = outgrown(None);
        let mut installed = site.install().await.unwrap();
        site.kernel.fail(what);
        installed.filled().await;
        let refused = installed.grow(LARGE, contents()).await.unwrap_err();
        assert!(refused.to_string().contains("still being switched"), "{what}: {refused:#}");
        site.kernel.fail(what);
        let repaired = installed.repair().await;
        assert_eq!(repaired.problems.len(), 1, "{what}: {repaired:?}");
        let repaired = installed.repair().await;
        assert_eq!((repaired.problems.len(), site.kernel.attached()), (0, Some(1)), "{what}");
        installed.grow(LARGE, contents()).await.unwrap();
    }
}

#[tokio::test]
async fn a_repair_says_what_it_found_and_what_it_cannot_mend() {
    let site = Site::new();
    let mut installed = site.install().await.unwrap();
    let clean = installed.repair().await;
    assert_eq!((clean.repairs.len(), clean.problems.len()), (0, 0), "{clean:?}");

    let what = "connect4 was detached".to_owned();
    site.kernel.damage(Repair { tampering: Tampering::Hook, what: what.clone() });
    fs::remove_dir_all(site.directory.path().join("cgroup")).unwrap();
    site.make_cgroup();
    site.kernel.fail("repair pins");
    let repaired = installed.repair().await;
    let found: Vec<_> = repaired.repairs.iter().map(|repair| repair.tampering).collect();
    assert_eq!(found, [Tampering::Cgroup, Tampering::Hook]);
    assert_eq!(repaired.repairs[1].what, what);
    assert_eq!(repaired.problems.len(), 1, "{repaired:?}");

    // Here is no BPF file system to make the directory in.
    fs::rename(site.directory.path().join("mcs"), site.directory.path().join("away")).unwrap();
    fs::remove_dir_all(site.directory.path().join("cgroup")).unwrap();
    let problems = installed.repair().await.problems;
    assert!(problems[0].contains("is gone"), "{problems:?}");
    assert!(problems[1].contains("the attached programs continue to run"), "{problems:?}");
}

#[tokio::test]
async fn growth_switches_to_larger_maps_that_hold_the_same() {
    let (site, mut installed) = grown().await;
    installed.grow(LARGE, contents()).await.unwrap();
    assert_eq!((installed.capacity(), installed.maps.maps.contents()), (LARGE, &contents()));
    assert_eq!(
        site.kernel.take_done(),
        [
            "load",
            "prepare filter after Unknown",
            "copy flows",
            "prepare evictions",
            "attach",
            "copy flows",
            "commit",
        ]
    );
    assert_eq!(site.kernel.attached(), Some(2));
}

#[tokio::test]
async fn growth_and_a_variant_need_the_programs_that_devices_have() {
    let (site, mut installed) = grown().await;
    assert_eq!(site.kernel.needed(), Vec::<&str>::new(), "a start does without");
    installed.grow(LARGE, contents()).await.unwrap();
    assert_eq!(site.kernel.needed(), ["from_pod"]);
    installed.begin_variant(variant(), &[]).await.unwrap();
    assert_eq!(site.kernel.needed(), ["from_pod"]);
}

#[tokio::test]
async fn growth_that_fails_leaves_the_former_maps() {
    for what in ["load", "prepare filter after Unknown", "write"] {
        let (site, mut installed) = grown().await;
        site.kernel.fail(what);
        assert!(installed.grow(LARGE, contents()).await.is_err(), "{what}");
        assert_eq!((installed.capacity(), site.kernel.attached()), (SMALL, Some(1)), "{what}");
        installed.grow(LARGE, contents()).await.unwrap();
        assert_eq!(site.kernel.attached(), Some(3).filter(|_| what != "load").or(Some(2)));
    }
}

#[tokio::test]
async fn a_variant_ends_with_the_programs_that_were_attached_before() {
    let (site, mut installed) = grown().await;
    site.kernel.fail("load variant");
    assert!(installed.begin_variant(variant(), &[]).await.is_err());
    assert_eq!((installed.has_variant(), site.kernel.attached()), (false, Some(1)));

    installed.begin_variant(variant(), &[]).await.unwrap();
    assert_eq!((installed.has_variant(), site.kernel.attached()), (true, Some(2)));
    assert!(installed.begin_variant(variant(), &[]).await.is_err(), "one at a time");
    site.kernel.fail("attach");
    assert!(installed.end_variant().await.is_err());
    assert_eq!((installed.has_variant(), site.kernel.attached()), (true, Some(2)));
    installed.repair().await;
    assert_eq!((installed.has_variant(), site.kernel.attached()), (false, Some(1)));
}
