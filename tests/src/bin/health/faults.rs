//! Seeded faults of a node. `explain` names each fault by a code and in words.

use std::iter;

use mcs_agent::core::kernel::loader::capacity_within;
use mcs_tests::{
    agent::fates,
    bpf::observer::{Hook, Observer},
    manifests::Aside,
};

use crate::{
    explain::{Sleeper, explain},
    prelude::*,
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("explain names what is wrong with endpoints and ways to them", endpoints);
    suite.case("explain names a program of others that runs first", others);
    suite.case("explain names an import for which there is no room", no_room);
}

/// What `explain` is to say of an import.
struct Fault {
    what: &'static str,
    service: Service,
    /// Changes its objects.
    edit: fn(&mut [Value]),
    flags: &'static [&'static str],
    status: i32,
    codes: &'static [&'static str],
    fates: Vec<String>,
    /// Words of a finding.
    says: &'static str,
}

fn service() -> Service {
    Service::new("faulty", [Ipv4Addr::new(10, 78, 0, 20).into()]).port(Protocol::Tcp, 80, 8080)
}

/// A word of `fate` for each of these pods.
fn all(fate: &str, pods: &[u8]) -> Vec<String> {
    pods.iter().map(|pod| format!("{} {fate}", pod_address(*pod))).collect()
}

const ROUTELESS: u8 = 98;
const TIERS: &str = r#"[{"clusters":["east"]},{"clusters":["west"]}]"#;

fn faults() -> [Fault; 5] {
    let [first, second] = PODS;
    let both = || {
        let east = service().endpoints("east", [pod_address(first)]);
        east.endpoints("west", [pod_address(second)])
    };
    let probing = &["--probe"];
    [
        Fault {
            what: "wrong port name",
            service: both(),
            edit: |objects| {
                for slice in &mut objects[1..] {
                    slice["ports"][0]["name"] = "web".into();
                }
            },
            flags: &[],
            status: 1,
            codes: &["no-usable-endpoint"],
            fates: all("no-such-port", &PODS),
            says: "no usable endpoint (2 no-such-port)",
        },
        Fault {
            what: "no route",
            service: service().endpoints("east", [pod_address(ROUTELESS)]),
            edit: |_| {},
            flags: probing,
            status: 1,
            codes: &["vip-silent", "backend-silent"],
            fates: all("used", &[ROUTELESS]),
            says: "east: 1 of 1 unreachable",
        },
        Fault {
            what: "policy drops",
            service: service().endpoints("east", [pod_address(first)]),
            edit: |_| {},
            flags: probing,
            status: 1,
            codes: &["vip-silent", "backend-silent"],
            fates: all("used", &[first]),
            says: "east: 1 of 1 silent",
        },
        Fault {
            what: "tier empty",
            service: both(),
            edit: |objects| {
                objects[0]["metadata"]["annotations"] =
                    json!({ "clusterset.mcs-agent.io/cluster-selector-results": TIERS });
                objects[1]["endpoints"][0]["conditions"] = json!({ "ready": false });
            },
            flags: &[],
            status: 0,
            codes: &["tier-empty"],
            fates: [all("other-tier", &[first]), all("used", &[second])].concat(),
            says: "tier 1 (east) has no usable endpoint, so tier 2 (west) serves it",
        },
        Fault {
            what: "all draining",
            service: both().aside(Aside::Draining, PODS.map(pod_address)),
            edit: |_| {},
            flags: &[],
            status: 0,
            codes: &["all-terminating"],
            fates: all("used", &PODS),
            says: "all endpoints that serve it terminate",
        },
    ]
}

fn endpoints(world: &mut World) -> Result {
    let (site, node) = (&world.site, &world.network.node.netns);
    let routeless = format!("route {{}} unreachable {}", pod_address(ROUTELESS));
    // The pod does not hear of what is sent to it, as behind a policy.
    let silent = format!("rule {{}} from {} blackhole", pod_address(PODS[0]));
    for fault in faults() {
        let Fault { what, service, edit, flags, status, codes, fates: expected, says } = fault;
        let mut objects: Vec<_> = iter::once(service.import()).chain(service.slices()).collect();
        edit(&mut objects);
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        site.manifests.put(service.name(), &list)?;
        let seed = |verb: &str| match what {
            "no route" => node.ip(&routeless.replace("{}", verb)),
            "policy drops" => world.network.remote.ip(&silent.replace("{}", verb)),
            _ => Ok(()),
        };
        seed("add")?;
        let words = [&["default/faulty"], flags].concat();
        let said = wait::until(what, || {
            let said = explain(site, node, &words, status, codes)?;
            ensure!(fates(&said) == expected.iter().cloned().collect(), "{said:#}");
            Ok(said)
        });
        seed("delete")?;
        expect(what, &said?, says)?;
        site.remove(&service)?;
    }
    Ok(())
}

/// Fails unless a finding has these words.
fn expect(what: &str, said: &Value, words: &str) -> Result {
    let findings = said["findings"].as_array().context("no findings")?;
    let has = |one: &&Value| one["message"].as_str().is_some_and(|text| text.contains(words));
    let found = findings.iter().find(has).with_context(|| format!("{what}: {findings:#?}"))?;
    tell(format!("{what}: [{}] {}", found["code"], found["message"]).replace('"', ""));
    Ok(())
}

fn others(world: &mut World) -> Result {
    let (site, node) = (&world.site, &world.network.node.netns);
    // Programs of a cgroup run before those of the one above.
    let below = site.cgroup.path().join("below");
    fs::create_dir(&below)?;
    let observer = Observer::attach(File::open(&below)?.as_fd(), Hook::Connect4, true)?;
    let client = Sleeper::start()?;
    fs::write(below.join("cgroup.procs"), client.pid())?;
    let words = ["default/web", "--pid", &client.pid()];
    let said = explain(site, node, &words, 0, &["device-left-alone", "foreign-first"]);
    drop((observer, client));
    wait::until("an empty cgroup", || Ok(fs::remove_dir(&below)?))?;
    expect("another program first", &said?, "runs before connect4")
}

fn no_room(world: &mut World) -> Result {
    let most = capacity_within("64Ki".parse()?).endpoints;
    let many = (0..=most).map(|one| (u32::from(Ipv4Addr::new(10, 79, 0, 0)) + one).into());
    let service = service().endpoints("east", many.map(|ip: Ipv4Addr| ip.into()));
    let flags = ["--tc=off", "--max-memory=64Ki"];
    let (site, netns) = another(world, "crowded", &flags, |manifests| manifests.write(&service))?;
    let said = wait::until("the rejection", || {
        explain(&site, &netns, &["default/faulty"], 1, &["no-room"])
    })?;
    let is_left_out = |fate: &String| fate.ends_with(" no-room");
    ensure!(fates(&said).iter().any(is_left_out), "{said:#}");
    expect("no room", &said, "--max-memory")
}
