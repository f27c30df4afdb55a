//! Mistakes that a new user makes: each has a message that says what to do, and an exit status.

use std::process::Output;

use mcs_tests::agent;

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("wrong flags and variables", usage);
    suite.case("no source, and kubeconfigs that cannot be used", sources);
    suite.case("wrong directories, and missing rights", places);
    suite.case("imports that are not there, or not served", imports);
    suite.case("an agent that was killed, and a file that is broken", degraded);
    suite.case(
        "an agent that cannot start leaves the report of the one before, and why",
        cannot_start,
    );
}

/// A command of the agent, without any variable of this process.
struct Attempt<'a> {
    words: &'a [&'a str],
    variables: &'a [(&'a str, &'a str)],
}

impl Attempt<'_> {
    fn run(&self, world: &World) -> Result<Output> {
        let mut command: Command = world.network.node.netns.command("timeout");
        command.args(["5"]).arg(agent::binary()?).args(self.words);
        command.env_clear().envs(self.variables.iter().copied());
        Ok(command.output()?)
    }
}

/// Fails unless the command ends with this status, and says all of that on standard error.
fn expect(
    world: &World,
    words: &[&str],
    variables: &[(&str, &str)],
    status: i32,
    says: &[&str],
) -> Result {
    let output = Attempt { words, variables }.run(world)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(status), "{words:?}: {}: {said}", output.status);
    for text in says {
        ensure!(said.contains(text), "{words:?} does not say {text:?}: {said}");
    }
    Ok(())
}

fn usage(world: &mut World) -> Result {
    expect(world, &["run", "--vip-cidr", "10.0.0.0"], &[], 2, &["write 10.0.0.0/N"])?;
    expect(world, &["run", "--manifest", "x"], &[], 2, &["'--manifests'"])?;
    expect(world, &["run", "--max-memory", "lots"], &[], 2, &["256Mi"])?;
    let note = "note: the value is from the environment variable MCS_TC";
    expect(world, &["run"], &[("MCS_TC", "sometimes")], 2, &[note, "'sometimes' for '--tc"])?;
    let told = Attempt { words: &["run", "--tc", "sometimes"], variables: &[("MCS_TC", "off")] };
    let told = String::from_utf8(told.run(world)?.stderr)?;
    ensure!(!told.contains("note:"), "{told}");
    let meant = "MCS_SOCKETLB is ignored: did you mean MCS_SOCKET_LB?";
    expect(
        world,
        &["run", "--manifests", "/nope", "--bpffs", "/nope"],
        &[("MCS_SOCKETLB", "off")],
        1,
        &[meant],
    )?;
    expect(world, &["backends", "cart"], &[], 2, &["NAMESPACE/NAME", "--namespace"])?;
    let script = Attempt { words: &["completion", "bash"], variables: &[] }.run(world)?;
    ensure!(
        script.status.success() && String::from_utf8_lossy(&script.stdout).contains("--max-memory")
    );
    Ok(())
}

fn sources(world: &mut World) -> Result {
    let directory = world.run.directory().to_owned();
    let file = |name: &str, content: &str| -> Result<String> {
        let path = directory.join(name);
        fs::write(&path, content)?;
        Ok(path.display().to_string())
    };
    let contexts = json!({
        "contexts": [{"name": "blue", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
    });
    let kubeconfig = file("no-current-context", &contexts.to_string())?;
    let nothing = ["give --manifests or --kubeconfig, set KUBECONFIG, or run in a pod"];
    expect(world, &["run"], &[], 1, &nothing)?;
    let run = |flags: &[&str], variables: &[(&str, &str)], says: &str| {
        let off = ["--health-address=off", "--metrics-address=off"];
        expect(world, &[&["run"], &off[..], flags].concat(), variables, 1, &[says])
    };
    run(
        &["--kubeconfig=/nope"],
        &[],
        "the kubeconfig /nope: No such file or directory (os error 2)\n",
    )?;
    run(&[], &[("KUBECONFIG", "/nope")], "the kubeconfig /nope: No such file")?;
    run(&[], &[("KUBECONFIG", "/a:/b")], "KUBECONFIG names several files")?;
    let flag = format!("--kubeconfig={kubeconfig}");
    run(&[&flag], &[], "set one, or give --context (it has: blue)")?;
    let empty = format!("--kubeconfig={}", file("empty", "{}")?);
    run(&[&empty], &[], "it has no contexts: write one, with a cluster and a user")?;
    run(&[&flag, "--context=red"], &[], "it has no context red (it has: blue)")?;
    run(&["--context=red"], &[], "--context needs --kubeconfig or KUBECONFIG")?;
    let manifest = format!("--manifests={}", file("one.yaml", "")?);
    run(&[&manifest], &[], "is a file: give its directory")
}

fn places(world: &mut World) -> Result {
    let bpffs = world.site.agent.bpffs().display().to_string();
    let plain = world.run.directory().display().to_string();
    let start = |flags: &[&str], says: &str| {
        let common = ["run", "--manifests=/nope", "--health-address=off", "--metrics-address=off"];
        expect(world, &[&common[..], flags].concat(), &[], 1, &[says])
    };
    start(&["--bpffs", &plain], "is not on a BPF file system: mount one with `mount -t bpf bpf")?;
    start(&["--bpffs", "/nope/x"], "--bpffs /nope/x does not exist: name the mount point")?;
    let other = format!("{bpffs}/other");
    start(&["--bpffs", &other, "--cgroup-root", &plain], "name a directory below its mount point")?;
    start(
        &["--bpffs", &other, "--cgroup-root", "/nope"],
        "--cgroup-root /nope does not exist: name the mount point of cgroup v2",
    )?;
    expect(world, &["cleanup", "--bpffs", &bpffs], &[], 1, &["stop it first"])?;
    expect(world, &["services", "--bpffs", &plain], &[], 1, &["start `mcs-agent run`"])?;
    let nobody = |words: &[&str]| -> Result<String> {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--clear-groups"]).arg(agent::binary()?).args(words);
        let output = command.env_clear().output()?;
        ensure!(output.status.code() == Some(1), "{output:?}");
        Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    for command in ["services", "status"] {
        let said = nobody(&[command, "--bpffs", &bpffs])?;
        ensure!(said.contains("Permission denied") && said.contains("run as root"), "{said}");
        ensure!(!said.contains("Counters"), "{said}");
    }
    let said =
        nobody(&["run", "--manifests=/nope", "--health-address=off", "--metrics-address=off"])?;
    ensure!(
        said.contains("lacks CAP_BPF") && said.contains("run it as root, or in a container"),
        "{said}"
    );
    Ok(())
}

fn imports(world: &mut World) -> Result {
    let bpffs = world.site.agent.bpffs().display().to_string();
    let backends = |words: &[&str], says: &str| {
        expect(world, &[&["backends", "--bpffs", &bpffs], words].concat(), &[], 1, &[says])
    };
    backends(&["default/wbe"], "there is no default/wbe: did you mean default/web?")?;
    backends(&["wbe", "--namespace=default"], "did you mean default/web?")?;
    backends(&["default/of-nobody"], "`mcs-agent services` lists all")?;
    world.site.manifests.write(
        &mcs_tests::manifests::Service::new("looped", ["127.0.0.9".parse()?]).port(
            mcs_tests::manifests::Protocol::Tcp,
            80,
            8080,
        ),
    )?;
    wait_for_sample(world, "mcs_rejections{reason=\"vip_forbidden\"}", 1.0)?;
    mcs_tests::wait::until("the reason", || {
        let status = ask(world, &["status"])?;
        let times = status.matches("127.0.0.9 is loopback").count();
        ensure!(times == 1, "told {times} times: {status}");
        Ok(())
    })?;
    let services = ask(world, &["services", "--namespace=default"])?;
    let row = services.lines().find(|line| line.starts_with("default/looped")).context("no row")?;
    ensure!(row.contains("Rejected  ClusterSetIP 127.0.0.9"), "{row}");
    ensure!(!ask(world, &["services", "--namespace=none"])?.contains("default/"), "of a namespace");
    backends(&["default/looped"], "has no frontend: Rejected: ClusterSetIP 127.0.0.9 is loopback")?;
    world.site.manifests.remove("looped")
}

fn degraded(world: &mut World) -> Result {
    let (mut site, _netns) = another(world, "mistaken", &["--tc=off"], |_| Ok(()))?;
    site.agent.wait_until_healthy()?;
    let bpffs = site.agent.bpffs().to_owned();
    fs::write(site.manifests.path().join("broken.yaml"), "kind: [")?;
    let status = || ask_at(world, &bpffs, &["status"]);
    mcs_tests::wait::until("a degraded agent", || {
        let said = status()?;
        ensure!(said.starts_with("State: degraded\n  broken.yaml, document 1"), "{said}");
        Ok(())
    })?;
    site.agent.kill()?;
    let said = status()?;
    ensure!(
        said.contains("no agent runs here") && said.contains("what follows is as of "),
        "{said}"
    );
    Ok(())
}

/// The first failure is one of the flags, and the second one of the kernel: the map of signs of life takes no write.
fn cannot_start(world: &mut World) -> Result {
    let (mut site, netns) =
        another(world, "unstartable", &[], |manifests| manifests.write(&web()))?;
    site.agent.wait_until_healthy()?;
    let former = site.agent.pid();
    site.agent.stop()?;
    let is_told = |site: &Site, why: &str| -> Result {
        let status = site.agent.status()?;
        ensure!(status["report"]["agent"]["pid"] == former, "the report is gone: {status}");
        ensure!(status["report"]["imports"][0]["state"] == "Ready", "{status}");
        ensure!(status["start"]["agent"]["pid"] == site.agent.pid(), "{}", status["start"]);
        let failure = status["start"]["failure"].as_str().unwrap_or_default();
        ensure!(failure.contains(why), "{failure:?} does not say {why:?}");
        let degraded = status["degraded"].to_string();
        let whose = format!(
            "by the agent before: mcs-agent {}, process {former} on",
            env!("CARGO_PKG_VERSION")
        );
        ensure!(degraded.contains(why) && degraded.contains(&whose), "{degraded}");
        ensure!(status["running"] == false, "it runs");
        Ok(())
    };
    let manifests = Source::Manifests(site.manifests.path().to_owned());
    site.agent.start_again_on(Source::Kubeconfig("/nope".into()))?;
    site.agent.wait_until_ended()?;
    is_told(&site, "cannot use the kubeconfig /nope")?;
    let alive = site.bpffs.path().join("mcs/alive").display().to_string();
    netns.output("bpftool", &["map", "freeze", "pinned", &alive])?;
    site.agent.start_again_on(manifests)?;
    site.agent.wait_until_ended()?;
    is_told(&site, "alive")
}

/// What a command prints, whatever its status.
fn ask(world: &World, words: &[&str]) -> Result<String> {
    ask_at(world, world.site.agent.bpffs(), words)
}

fn ask_at(world: &World, bpffs: &Path, words: &[&str]) -> Result<String> {
    let bpffs = bpffs.display().to_string();
    let words = [words, &["--bpffs", &bpffs]].concat();
    let output = Attempt { words: &words, variables: &[] }.run(world)?;
    Ok(String::from_utf8(output.stdout)?)
}
