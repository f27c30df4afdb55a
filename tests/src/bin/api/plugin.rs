//! The exec plugin of a kubeconfig hangs, and everything but reading goes on.

use mcs_common::maps;

use crate::prelude::*;

/// Longer than the agent's liveness timeout here.
const HANGS: Duration = Duration::from_secs(12);
/// How long an answer of `/livez`, a repair and the agent's end may take.
const PROMPT: Duration = Duration::from_secs(1);
/// Where the agent serves health: another one has the default.
const HEALTH: &str = "127.0.0.1:17450";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("an exec plugin hangs while the API server is away", hangs);
}

/// A plugin that prints a token, or hangs while a file is there.
struct Plugin {
    directory: PathBuf,
}

impl Plugin {
    /// Also writes the kubeconfig that names it.
    fn write(world: &World) -> Result<(Self, PathBuf)> {
        let directory = world.run.directory().join("plugin");
        fs::create_dir(&directory)?;
        let plugin = Self { directory };
        let token = fs::read_to_string(world.east.agents_token())?;
        let status = json!({"token": token, "expirationTimestamp": "2100-01-01T00:00:00Z"});
        fs::write(plugin.file("printed"), json!({"status": status}).to_string())?;
        let script = format!(
            "cd {} && if [ -e hang ]; then echo $$ >> hung; exec sleep 600; fi; cat printed",
            plugin.directory.display()
        );
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh",
            "args": ["-c", script], "interactiveMode": "Never"});
        let mut config: Value = serde_json::from_slice(&fs::read(world.east.agents_kubeconfig())?)?;
        config["users"][0]["user"] = json!({ "exec": exec });
        let kubeconfig = plugin.file("kubeconfig");
        fs::write(&kubeconfig, config.to_string())?;
        Ok((plugin, kubeconfig))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The processes that hung.
    fn hung(&self) -> Result<Vec<u32>> {
        let pids = match fs::read_to_string(self.file("hung")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            pids => pids?,
        };
        pids.lines().map(|pid| pid.parse().context("no process id")).collect()
    }
}

fn hangs(world: &mut World) -> Result {
    let target = world.fresh("plugin").with(&[11, 12]);
    world.east.api.apply_all(&target.objects())?;
    let (plugin, kubeconfig) = Plugin::write(world)?;
    let health = format!("--health-address={HEALTH}");
    let flags = [&health, "--metrics-address=off", "--liveness-timeout=10"];
    let mut site = world.start_on("plugin", Source::Kubeconfig(kubeconfig), &flags)?;
    site.wait_until_healthy()?;
    site.wait_for(&target.service)?;
    fs::write(plugin.file("hang"), "")?;
    world.east.kill()?;
    wait::until("a plugin that hangs", || {
        ensure!(!plugin.hung()?.is_empty(), "none runs");
        Ok(())
    })?;

    let begin = Instant::now();
    let livez = || {
        let url = format!("http://{HEALTH}/livez");
        world.network.node.netns.output("curl", &["--silent", "--fail", "--max-time", "1", &url])
    };
    let pin = site.pins().config().join(maps::FRONTENDS);
    let mut longest = Duration::ZERO;
    while begin.elapsed() < HANGS {
        livez().context("`/livez` while the plugin hangs")?;
        fs::remove_file(&pin)?;
        let removed = Instant::now();
        wait::until("a pin that was removed", || {
            ensure!(pin.exists(), "it is gone");
            Ok(())
        })?;
        longest = longest.max(removed.elapsed());
        thread::sleep(Duration::from_millis(500));
    }
    let hung = plugin.hung()?;
    ensure!(hung.len() == 1, "{} plugins ran at a time", hung.len());
    let ended = Instant::now();
    site.agent.stop()?;
    let took = ended.elapsed();
    ensure!(took < wait::scaled(PROMPT), "the agent ended {took:?} after SIGTERM");
    wait::until("the end of the plugin", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", hung[0]));
        ensure!(stat.is_err() || stat?.contains(") Z "), "it runs");
        Ok(())
    })?;
    tell(format!(
        "pins back within {longest:.1?}, ended {took:.1?} after SIGTERM while the plugin hung"
    ));

    // The agent starts on the maps that are there, although the plugin fails.
    fs::remove_file(plugin.file("hang"))?;
    fs::rename(plugin.file("printed"), plugin.file("aside"))?;
    site.agent.start_again(&flags)?;
    let expected = "the exec plugin \"/bin/sh\" of the kubeconfig failed (exit status: 1): cat: ";
    site.wait_for_problem("endpointslices.discovery.k8s.io", expected)?;
    site.wait_for(&target.service)?;
    fs::rename(plugin.file("aside"), plugin.file("printed"))?;
    world.east.start_again()?;
    site.wait_until_content()?;
    world.site.wait_until_content()?;
    target.objects().iter().try_for_each(|object| world.east.api.delete(object))
}
