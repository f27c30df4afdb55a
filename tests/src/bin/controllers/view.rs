//! What the agent of the first cluster makes of a service, and what its clients reach.

use crate::{prelude::*, service::PORT};

/// A change passes through controllers of others, which retry and wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// A set of four backends is missed by less than one run in 100,000.
const CONNECTIONS: u32 = 45;

impl Stage {
    /// The backends of a service by TCP, as `ADDRESS CLUSTER`.
    pub(crate) fn backends(&self, namespace: &str) -> Result<BTreeSet<String>> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let backends = self.frontends(namespace)?;
        let backends = backends.iter().filter_map(|one| one["backends"].as_array().cloned());
        let name = |one: Value| format!("{} {}", text(&one["address"]), text(&one["cluster"]));
        Ok(backends.flatten().map(name).collect())
    }

    /// Waits until the backends of a service are these. Returns how long that has taken.
    pub(crate) fn wait_for_backends(
        &self,
        namespace: &str,
        expected: &BTreeSet<String>,
    ) -> Result<Duration> {
        let begin = Instant::now();
        wait::within(PATIENCE, &format!("backends of {namespace}/{NAME}"), || {
            let found = self.backends(namespace)?;
            let state = || self.state_of(namespace).unwrap_or_default();
            ensure!(found == *expected, "{found:?}, not {expected:?}; the import is {}", state());
            Ok(())
        })?;
        Ok(begin.elapsed())
    }

    /// What the agent says of the import, if there is one.
    pub(crate) fn state_of(&self, namespace: &str) -> Result<Value> {
        let services = self.site.agent.services()?;
        let mut imports = services["imports"].as_array().into_iter().flatten();
        let found = imports.find(|one| is_of(&one["import"], namespace));
        Ok(found.cloned().unwrap_or_default())
    }

    /// Waits until the agent leaves the import alone for that reason. Returns how long that has taken.
    pub(crate) fn wait_until_left_alone(&self, namespace: &str, reason: &str) -> Result<Duration> {
        let begin = Instant::now();
        wait::within(PATIENCE, &format!("{namespace}/{NAME} to be left alone"), || {
            let state = self.state_of(namespace)?;
            ensure!(state["left_alone"] == reason, "the agent says {state}");
            let backends = self.backends(namespace)?;
            ensure!(backends.is_empty(), "the agent serves {backends:?}");
            Ok(())
        })?;
        Ok(begin.elapsed())
    }

    /// Connects to the address of a service until each of the backends that the agent shows has answered. No connection fails.
    pub(crate) fn reach(&self, world: &World, namespace: &str) -> Result {
        let vip = self.vip(namespace)?;
        let address = |text: &String| text.split(' ').next().unwrap_or_default().to_owned();
        let expected: BTreeSet<_> = self.backends(namespace)?.iter().map(address).collect();
        let _in_cgroup = self.site.cgroup.visit()?;
        let answers = world.node.netns.run(|| {
            let ask = |_| identity(&connected(Family::V4, vip)?);
            (0..CONNECTIONS).map(ask).collect::<Result<BTreeSet<_>>>()
        })?;
        let found: BTreeSet<_> =
            answers.with_context(|| vip.to_string())?.iter().map(SocketAddr::to_string).collect();
        ensure!(found == expected, "{found:?} answered at {vip}, not {expected:?}");
        Ok(())
    }

    /// The address that the agent serves for a service.
    pub(crate) fn vip(&self, namespace: &str) -> Result<SocketAddr> {
        let frontends = self.frontends(namespace)?;
        let ip = frontends.first().context("the agent serves no address")?["ip"].clone();
        Ok(SocketAddr::new(serde_json::from_value(ip)?, PORT))
    }

    fn frontends(&self, namespace: &str) -> Result<Vec<Value>> {
        let services = self.site.agent.services()?;
        let all = services["frontends"].as_array().context("no list of frontends")?;
        Ok(all.iter().filter(|one| is_of(one, namespace)).cloned().collect())
    }
}

fn is_of(key: &Value, namespace: &str) -> bool {
    key["namespace"] == namespace && key["name"] == NAME
}
