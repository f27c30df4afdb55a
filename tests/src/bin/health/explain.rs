//! `mcs-agent explain`, with the maps and hooks of a real agent.

use std::{process::Output, sync::Arc, thread::JoinHandle};

use mcs_tests::agent::{self, CAPABILITIES, fates};
use simple_dns::{
    CLASS, Packet, QTYPE, RCODE, ResourceRecord, TYPE,
    rdata::{A, RData},
};

use crate::{failing::status_file, prelude::*};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("explain: served, without slices, wrong port, unknown", names);
    suite.case("explain: no ready endpoint, and a VIP that another import holds", endpoints);
    suite.case("explain: the probe, from whose namespace, and without the right to", probe);
    suite.case("explain: whose hooks run", hooks);
    suite.case("explain: what a DNS server makes of the name", dns);
    suite
        .case("explain: a stopped agent, none, a hook that was detached, no source", without_agent);
}

/// Runs `mcs-agent explain` in a network namespace, in the cgroup of the agent.
fn run(site: &Site, netns: &Namespace, words: &[&str]) -> Result<Output> {
    let _in_cgroup = site.cgroup.visit()?;
    site.agent.run_explain(netns, words)
}

/// The same, if it ends with this status, and finds exactly these codes.
pub(crate) fn explain(
    site: &Site,
    netns: &Namespace,
    words: &[&str],
    status: i32,
    codes: &[&str],
) -> Result<Value> {
    let _in_cgroup = site.cgroup.visit()?;
    site.agent.explain(netns, words, status, codes)
}

/// The tree, whose lines fit a terminal. A link stays whole.
fn tree(site: &Site, netns: &Namespace, words: &[&str]) -> Result<String> {
    let text = String::from_utf8(run(site, netns, words)?.stdout)?;
    let is_long = |line: &&str| line.chars().count() > 80 && !line.trim().starts_with("https://");
    let long: Vec<_> = text.lines().filter(is_long).collect();
    ensure!(long.is_empty(), "too long: {long:?}");
    Ok(text)
}

fn names(world: &mut World) -> Result {
    let (site, netns) = (&world.site, &world.network.node.netns);
    for target in ["default/web", "default/web:80", "web.default.svc.clusterset.local"] {
        let said = explain(site, netns, &[target], 0, &[])?;
        let used = PODS.map(|pod| format!("{} used", pod_address(pod)));
        ensure!(fates(&said) == used.into(), "{said:#}");
        ensure!(said["served"] == true && said["frontends"][0]["slots"] == 2, "{said:#}");
        ensure!(
            said["client"]["hooks"].as_array().is_some_and(|hooks| hooks.len() == agent::HOOKS)
        );
    }
    let vip = format!("{WEB}:80/TCP");
    let said = explain(site, netns, &[&vip], 0, &[])?;
    ensure!(said["imports"][0]["name"] == "web", "{said:#}");
    let text = tree(site, netns, &[&vip])?;
    for part in [
        "10.78.0.1:80/TCP is served\n",
        "ServiceImport default/web: Ready\n",
        "    east: endpoints 1, EndpointSlices 2, ports tcp-80 8080/TCP\n",
        "      1 used for tcp-80: ",
        "2 slots in the maps\n",
        "hooks that run: recvmsg4",
    ] {
        ensure!(text.contains(part), "{part:?} is missing: {text}");
    }
    let refused = ["no-slices", "no-usable-endpoint"];
    explain(site, netns, &["default/empty"], 1, &refused)?;
    explain(site, netns, &[&format!("{EMPTY}:80")], 1, &refused)?;
    let said = explain(site, netns, &[&format!("{WEB}:81")], 1, &["unknown-port"])?;
    ensure!(said["findings"][0]["message"].to_string().contains("it has 80/TCP"), "{said:#}");
    explain(site, netns, &["default/web:81"], 1, &["unknown-port"])?;
    let said = explain(site, netns, &["default/wbe"], 1, &["unknown-import"])?;
    ensure!(
        said["findings"][0]["message"].to_string().contains("did you mean default/web?"),
        "{said:#}"
    );
    explain(site, netns, &["10.78.0.99:80"], 1, &["unknown-vip"])?;
    let usage = run(site, netns, &["web"])?;
    ensure!(usage.status.code() == Some(2), "{usage:?}");
    let nowhere = Command::new(agent::binary()?)
        .args(["explain", "default/web", "--bpffs", "/nope"])
        .output()?;
    ensure!(nowhere.status.code() == Some(3), "{nowhere:?}");
    Ok(())
}

fn endpoints(world: &mut World) -> Result {
    let (site, netns) = (&world.site, &world.network.node.netns);
    let sick = Service::new("sick", ["10.78.0.7".parse()?])
        .port(Protocol::Tcp, 80, 8080)
        .endpoints("east", [pod_address(PODS[0])]);
    let mut slices = sick.slices();
    for slice in &mut slices {
        for endpoint in slice["endpoints"].as_array_mut().into_iter().flatten() {
            endpoint["conditions"] = json!({"ready": false});
        }
    }
    let items: Vec<_> = [sick.import()].into_iter().chain(slices).collect();
    site.manifests.put("sick", &json!({"apiVersion": "v1", "kind": "List", "items": items}))?;
    wait::until("the refusal", || {
        let said = explain(site, netns, &["default/sick"], 1, &["no-usable-endpoint"])?;
        let expected = format!("{} not-ready", pod_address(PODS[0]));
        ensure!(fates(&said) == [expected].into(), "{said:#}");
        Ok(())
    })?;
    // Without creation times the names decide.
    let late = Service::new("web-late", [WEB.into()])
        .port(Protocol::Tcp, 80, 8080)
        .endpoints("east", [pod_address(PODS[0])]);
    site.manifests.write(&late)?;
    explain(site, netns, &["default/web-late"], 1, &["frontend-taken"])?;
    let said = explain(site, netns, &[&format!("{WEB}:80")], 0, &["frontend-taken"])?;
    ensure!(said["imports"][0]["name"] == "web", "{said:#}");
    let text = tree(site, netns, &["default/web-late"])?;
    ensure!(text.contains("wrong [frontend-taken]") && text.contains("default/web,"), "{text}");
    site.manifests.remove("web-late")?;
    site.manifests.remove("sick")
}

fn probe(world: &mut World) -> Result {
    let (site, netns) = (&world.site, &world.network.node.netns);
    let said = explain(site, netns, &["default/web", "--probe"], 0, &[])?;
    let outcomes = |said: &Value, list: &str| -> Vec<String> {
        let results = said["probe"][list].as_array().cloned().unwrap_or_default();
        results.iter().filter_map(|one| one["outcome"].as_str()).map(str::to_owned).collect()
    };
    ensure!(outcomes(&said, "vips") == ["connected"], "{said:#}");
    ensure!(outcomes(&said, "backends") == ["connected"; 2], "{said:#}");
    // From elsewhere, into the node's namespace.
    let elsewhere = Namespace::create(&world.run, "elsewhere")?;
    let node = netns.path().display().to_string();
    let known = ["device-left-alone"];
    let said = explain(site, &elsewhere, &["default/web", "--probe", "--netns", &node], 0, &known)?;
    ensure!(outcomes(&said, "vips") == ["connected"], "{said:#}");
    // As in an agent's pod, which sees no process of other pods.
    let known = ["pod-unseen", "probe-from-node"];
    let said = explain(site, netns, &["default/web", "--probe", "--pod", "3d-4e"], 0, &known)?;
    ensure!(outcomes(&said, "backends") == ["connected"; 2], "{said:#}");
    ensure!(outcomes(&said, "vips").is_empty(), "{said:#}");
    let mut limited = elsewhere.command("setpriv");
    limited.args(agent::limit(&CAPABILITIES)).arg(agent::binary()?);
    limited.args(["explain", "default/web", "--probe", "--netns", &node, "--bpffs"]);
    let limited = limited.arg(site.agent.bpffs()).output()?;
    let text = String::from_utf8(limited.stdout)?;
    ensure!(limited.status.code() == Some(3), "{}: {text}", limited.status);
    ensure!(text.contains("unknown [probe-not-allowed]"), "{text}");
    // Nobody has the address.
    let lost = Service::new("lost", ["10.78.0.8".parse()?])
        .port(Protocol::Tcp, 80, 8080)
        .endpoints("east", [pod_address(PODS[0])])
        .endpoints("north", [pod_address(99)]);
    site.apply(&lost)?;
    let output = run(site, netns, &["default/lost", "--probe"])?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(output.status.code() == Some(1), "{text}");
    ensure!(text.contains("wrong [backend-silent] north: 1 of 1 "), "{text}");
    site.remove(&lost)
}

/// A process that ends when this is dropped.
pub(crate) struct Sleeper(Child);

impl Sleeper {
    pub(crate) fn start() -> Result<Self> {
        Ok(Self(Command::new("sleep").arg("600").stdin(Stdio::null()).spawn()?))
    }

    pub(crate) fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn hooks(world: &mut World) -> Result {
    let (site, netns) = (&world.site, &world.network.node.netns);
    let inside = {
        let _in_cgroup = site.cgroup.visit()?;
        Sleeper::start()?
    };
    let outside = Sleeper::start()?;
    // Neither is in the namespace of the agent, and no device leads there.
    let words = |of: &Sleeper| [String::from("default/web"), String::from("--pid"), of.pid()];
    let view = |of: &Sleeper, status, codes: &[&str]| {
        let words = words(of);
        explain(site, netns, &words.each_ref().map(String::as_str), status, codes)
    };
    let said = view(&inside, 0, &["device-left-alone"])?;
    let cgroup = site.cgroup.path().display().to_string();
    ensure!(said["client"]["cgroup"] == cgroup, "{said:#}");
    view(&outside, 1, &["device-left-alone", "outside-cgroup"])?;
    explain(site, netns, &["default/web", "--pid", "999999999"], 3, &["client-unseen"])?;
    // As a kubelet puts it.
    let pod = site.cgroup.path().join("kubepods-besteffort-pod1b_2c.slice");
    fs::create_dir(&pod)?;
    fs::write(pod.join("cgroup.procs"), inside.pid())?;
    let said = explain(site, netns, &["default/web", "--pod", "1b-2c"], 0, &["device-left-alone"]);
    explain(site, netns, &["default/web", "--pod", "3d-4e"], 0, &["pod-unseen"])?;
    drop(inside);
    fs::remove_dir(&pod)?;
    let client = &said?["client"];
    ensure!(
        client["who"] == "pod 1b-2c" && client["cgroup"] == *pod.display().to_string(),
        "{client:#}"
    );
    Ok(())
}

/// A DNS server that gives every name this address, until this is dropped.
struct NameServer(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl NameServer {
    fn start(netns: &Namespace, server: Ipv4Addr, answer: Option<Ipv4Addr>) -> Result<Self> {
        let socket = netns.run(|| UdpSocket::bind((server, 53)))??;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let serve = move || {
            let mut buffer = [0; 512];
            while !ends.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                let reply = reply(&buffer[..length], answer);
                let _ = reply.map(|reply| socket.send_to(&reply, from));
            }
        };
        Ok(Self(is_over, Some(thread::spawn(serve))))
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let _ = self.1.take().map(JoinHandle::join);
    }
}

/// Names without address do not exist, and no name has one of IPv6.
fn reply(query: &[u8], answer: Option<Ipv4Addr>) -> Result<Vec<u8>> {
    let mut reply = Packet::parse(query)?.into_reply();
    let question = reply.questions.first().context("no question")?.clone();
    match answer {
        Some(address) if question.qtype == QTYPE::TYPE(TYPE::A) => {
            let address = RData::A(A { address: address.into() });
            reply.answers.push(ResourceRecord::new(question.qname, CLASS::IN, 5, address));
        }
        Some(_) => {}
        None => *reply.rcode_mut() = RCODE::NameError,
    }
    Ok(reply.build_bytes_vec()?)
}

fn dns(world: &mut World) -> Result {
    let (site, netns) = (&world.site, &world.network.node.netns);
    // As a node-local cache has it, which may not know the zone.
    let server = Ipv4Addr::new(169, 254, 20, 10);
    netns.ip(&format!("address add {server}/32 dev lo"))?;
    let words = ["web.default.svc.clusterset.local", "--dns-server", "169.254.20.10"];
    for (answer, status, codes) in [
        (Some(WEB), 0, &[][..]),
        (Some(EMPTY), 1, &["dns-other-address"]),
        (None, 1, &["dns-no-name"]),
    ] {
        let _server = NameServer::start(netns, server, answer)?;
        let said = explain(site, netns, &words, status, codes)?;
        let addresses: Vec<_> = answer.iter().map(ToString::to_string).collect();
        ensure!(said["dns"]["addresses"] == json!(addresses), "{said:#}");
    }
    let said = explain(site, netns, &words, 3, &["dns-silent"])?;
    ensure!(said["served"].is_null(), "nobody has said so: {said:#}");
    netns.ip(&format!("address delete {server}/32 dev lo"))
}

fn without_agent(world: &mut World) -> Result {
    let (mut site, netns) =
        another(world, "explained", &["--tc=off"], |manifests| manifests.write(&web()))?;
    site.agent.wait_until_healthy()?;
    explain(&site, &netns, &["default/web"], 0, &[])?;
    site.agent.signal(Signal::STOP)?;
    wait::within(Duration::from_secs(10), "a word on the agent that is stopped", || {
        explain(&site, &netns, &["default/web"], 1, &["agent-stuck"]).map(drop)
    })?;
    let status = site.agent.status()?;
    ensure!(status["degraded"].to_string().contains("no sign of life"), "{status:#}");
    site.agent.kill()?;
    let text = tree(&site, &netns, &["default/web"])?;
    ensure!(text.contains("wrong [agent-down] no agent runs on "), "{text}");
    ensure!(text.contains("its last report is "), "{text}");
    let said = explain(&site, &netns, &["default/web"], 1, &["agent-down"])?;
    ensure!(said["frontends"][0]["state"] == "ready", "{said:#}");
    let pin = site.bpffs.path().join("mcs/links/connect4");
    process::run(Command::new("bpftool").args(["link", "detach", "pinned"]).arg(pin), "")?;
    let text = tree(&site, &netns, &["default/web"])?;
    ensure!(text.contains("wrong [hook-missing] hooks that do not run in"), "{text}");
    explain(&site, &netns, &["default/web"], 1, &["agent-down", "hook-missing"])?;
    // What nobody followed.
    site.manifests.write(&web().endpoints("west", [pod_address(77)]))?;
    let found = ["agent-down", "hook-missing", "not-written", "stale-backend"];
    let said = explain(&site, &netns, &["default/web"], 1, &found)?;
    ensure!(fates(&said).contains(&format!("{} not-written", pod_address(77))), "{said:#}");
    // The maps and the report alone.
    let away = site.manifests.path().with_extension("away");
    fs::rename(site.manifests.path(), &away)?;
    let found = ["agent-down", "hook-missing", "source-unread"];
    let said = explain(&site, &netns, &["default/web"], 1, &found)?;
    ensure!(said["imports"][0]["state"] == "Ready" && said["source"].is_null(), "{said:#}");
    explain(&site, &netns, &[&format!("{WEB}:80")], 1, &found)?;
    fs::rename(&away, site.manifests.path())?;
    // The maps alone.
    let file = status_file(&site.agent.config().run_dir)?;
    fs::rename(&file, file.with_extension("away"))?;
    let text = tree(&site, &netns, &["default/typo"])?;
    ensure!(text.contains("ServiceImport default/typo: not known: neither"), "{text}");
    ensure!(text.contains("unknown [no-report]") && !text.contains("typo is served"), "{text}");
    let services = process::json(&site.agent.command(&["services", "-o", "json"])?)?;
    ensure!(services["reported"] == false && services["unreported"].is_string(), "{services:#}");
    Ok(())
}
