//! Credentials from the exec plugin of a kubeconfig, with a time limit.
//!
//! kube cannot end a plugin that hangs (checked in 5.0.0). It runs the first one in the calling thread, another one for the
//! client's certificate, and its error has all that a plugin has printed, tokens too. The protocol is
//! client.authentication.k8s.io.

use std::{pin::pin, process::Stdio, time::Duration};

use jiff::Timestamp;
use k8s_openapi::ByteString;
use kube::config::{AuthInfo, ExecConfig};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::json;
use thiserror::Error;
use tokio::{process::Command, time::timeout};

/// The time limit of a run.
const LIMIT: Duration = Duration::from_secs(30);
/// The most characters of a plugin's last line in a message.
const LONGEST_LINE: usize = 200;

/// The exec plugin of the kubeconfig gave no credentials.
#[derive(Debug, Error)]
#[error("the exec plugin {command:?} of the kubeconfig {reason}")]
pub struct PluginError {
    command: String,
    /// And what to do.
    reason: String,
}

/// What the plugin prints. client-go accepts YAML too.
#[derive(Deserialize)]
struct ExecCredential {
    status: Option<Credentials>,
}

/// `status` of an `ExecCredential`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Credentials {
    expiration_timestamp: Option<Timestamp>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

impl Credentials {
    /// When they expire. `None` means never.
    pub(crate) fn expires(&self) -> Option<Timestamp> {
        self.expiration_timestamp
    }

    fn are_complete(&self) -> bool {
        self.token.is_some()
            || (self.client_certificate_data.is_some() && self.client_key_data.is_some())
    }

    /// Stores them as credentials of the kubeconfig itself.
    pub(crate) fn store_in(self, user: &mut AuthInfo) {
        user.token = self.token.map(Into::into);
        if let (Some(certificate), Some(key)) = (self.client_certificate_data, self.client_key_data)
        {
            user.client_certificate_data = Some(base64(certificate));
            user.client_key_data = Some(base64(key).into());
        }
    }
}

fn base64(pem: String) -> String {
    let encoded = serde_json::to_value(ByteString(pem.into_bytes()));
    encoded.ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Removes the plugin from the user, so that kube does not run it. `None`: there is no plugin, or other credentials take
/// precedence, as in kube.
pub(crate) fn take(user: &mut AuthInfo) -> Option<ExecConfig> {
    let plugin = user.exec.take()?;
    let has_others = user.token.is_some()
        || user.token_file.is_some()
        || user.auth_provider.is_some()
        || (user.username.is_some() && user.password.is_some());
    (!has_others).then_some(plugin)
}

/// Runs the plugin. Dropping the future kills it.
pub(crate) async fn run(plugin: &ExecConfig) -> Result<Credentials, PluginError> {
    let run = run_within(plugin, LIMIT).await;
    let named =
        |reason| PluginError { command: plugin.command.clone().unwrap_or_default(), reason };
    run.map_err(named)
}

async fn run_within(plugin: &ExecConfig, limit: Duration) -> Result<Credentials, String> {
    let mut command = command(plugin).ok_or("has no command: set users[].user.exec.command")?;
    let hint = plugin.install_hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
    let not_started = |error| format!("cannot be started: {error}{hint}");
    let child = command.spawn().map_err(not_started)?;
    let pid = child.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
    let mut output = pin!(child.wait_with_output());
    // After `output`, so that it is dropped before the child is reaped.
    let group = ProcessGroup(pid);
    let output = timeout(limit, &mut output).await.map_err(|_| {
        format!(
            "did not end within {} s and was killed: run it by hand on this node to see what it waits for",
            limit.as_secs_f32()
        )
    })?;
    group.leave();
    let output = output.map_err(|error| format!("cannot be waited for: {error}"))?;
    if !output.status.success() {
        return Err(format!("failed ({}): {}", output.status, last_line(&output.stderr)));
    }
    let why = match serde_saphyr::from_slice(&output.stdout) {
        Ok(ExecCredential { status: Some(credentials) }) if credentials.are_complete() => {
            return Ok(credentials);
        }
        Ok(_) => String::new(),
        Err(error) => format!(" ({})", error.to_string().lines().next().unwrap_or_default()),
    };
    Err(format!(
        "printed no ExecCredential with a token or a certificate and key{why}: run it by hand to see what it prints"
    ))
}

fn command(plugin: &ExecConfig) -> Option<Command> {
    let mut command = Command::new(plugin.command.as_ref()?);
    let variables = plugin.env.iter().flatten();
    let variables = variables.filter_map(|one| Some((one.get("name")?, one.get("value")?)));
    let cluster = plugin.cluster.as_ref().filter(|_| plugin.provide_cluster_info);
    let mut spec = json!({"interactive": false});
    if let Some(cluster) = cluster {
        spec["cluster"] = serde_json::to_value(cluster).unwrap_or_default();
    }
    let info = json!({"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec});
    command
        .args(plugin.args.iter().flatten())
        .envs(variables)
        .env("KUBERNETES_EXEC_INFO", info.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    Some(command)
}

/// The last non-empty line, shortened.
fn last_line(printed: &[u8]) -> String {
    let text = String::from_utf8_lossy(printed);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    line.unwrap_or("it printed nothing").chars().take(LONGEST_LINE).collect()
}

/// The processes of a plugin. They are killed when this is dropped.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    /// The plugin has ended. Processes that it left on purpose continue.
    fn leave(mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // All of them may have ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, thread, time::Instant};

    use super::*;

    /// A plugin that runs this script.
    fn script(text: &str) -> ExecConfig {
        ExecConfig {
            api_version: Some("client.authentication.k8s.io/v1".to_owned()),
            command: Some("/bin/sh".to_owned()),
            args: Some(vec!["-c".to_owned(), text.to_owned()]),
            ..ExecConfig::default()
        }
    }

    #[tokio::test]
    async fn a_token_and_its_expiry_are_read() {
        let plugin =
            script("echo '{status: {token: t, expirationTimestamp: \"2030-01-01T00:00:00Z\"}}'");
        let credentials = run(&plugin).await.unwrap();
        assert_eq!(credentials.expires(), Some("2030-01-01T00:00:00Z".parse().unwrap()));
        let mut user = AuthInfo::default();
        credentials.store_in(&mut user);
        assert_eq!(serde_json::to_value(&user).unwrap()["token"], "t");
    }

    #[tokio::test]
    async fn a_plugin_learns_what_is_asked_for() {
        // What is asked for ends in standard error, which the message shows.
        let mut plugin = script("echo $MODE $KUBERNETES_EXEC_INFO >&2; exit 1");
        let variable = [("name", "MODE"), ("value", "test")];
        plugin.env = Some(vec![variable.map(|(key, value)| (key.into(), value.into())).into()]);
        let message = run(&plugin).await.err().unwrap().to_string();
        let asked = r#"test {"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":false}}"#;
        assert!(message.ends_with(asked), "{message}");
    }

    #[tokio::test]
    async fn a_certificate_is_stored_as_in_a_kubeconfig() {
        let plugin = script("echo '{status: {clientCertificateData: AB, clientKeyData: CD}}'");
        let mut user = AuthInfo::default();
        run(&plugin).await.unwrap().store_in(&mut user);
        let user = serde_json::to_value(&user).unwrap();
        assert_eq!(user["client-certificate-data"], "QUI=");
        assert_eq!(user["client-key-data"], "Q0Q=");
    }

    #[tokio::test]
    async fn a_plugin_that_hangs_is_killed_with_its_children() {
        let directory = tempfile::tempdir().unwrap();
        let pid = directory.path().join("pid");
        // The child keeps the output open after the shell has ended.
        let plugin = script(&format!("sleep 600 & echo $! > {}", pid.display()));
        let begin = Instant::now();
        let failure = run_within(&plugin, Duration::from_millis(500)).await.err().unwrap();
        assert!(failure.starts_with("did not end within 0.5 s"), "{failure}");
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        wait_until_gone(&pid);
    }

    #[tokio::test]
    async fn a_plugin_ends_with_who_runs_it() {
        let directory = tempfile::tempdir().unwrap();
        let pid = directory.path().join("pid");
        let plugin = script(&format!("echo $$ > {} && sleep 600", pid.display()));
        assert!(timeout(Duration::from_millis(500), run(&plugin)).await.is_err());
        wait_until_gone(&pid);
    }

    /// Waits until the process in this file runs no longer. A zombie does not run.
    fn wait_until_gone(file: &Path) {
        let pid = fs::read_to_string(file).unwrap();
        let stat = format!("/proc/{}/stat", pid.trim());
        let begin = Instant::now();
        while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(begin.elapsed() < Duration::from_secs(10), "{stat} is still there");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[tokio::test]
    async fn messages_name_the_plugin_and_what_to_do() {
        let absent = ExecConfig {
            command: Some("no-such-plugin".to_owned()),
            install_hint: Some("get it".to_owned()),
            ..ExecConfig::default()
        };
        for (plugin, parts) in [
            (absent, ["\"no-such-plugin\"", "cannot be started: No such file", "(get it)"]),
            (
                script("echo old >&2; echo new >&2; exit 3"),
                ["\"/bin/sh\"", "exit status: 3", "): new"],
            ),
            (script("false"), ["\"/bin/sh\"", "exit status: 1", "it printed nothing"]),
            (script("echo '{status: {}}'"), ["\"/bin/sh\"", "no ExecCredential", "run it by hand"]),
            (script("echo '{'"), ["\"/bin/sh\"", "no ExecCredential", "run it by hand"]),
            (ExecConfig::default(), ["\"\"", "has no command", "exec.command"]),
        ] {
            let message = run(&plugin).await.err().unwrap().to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
    }

    #[test]
    fn other_credentials_precede_a_plugin() {
        let user = AuthInfo { exec: Some(script("true")), ..AuthInfo::default() };
        assert!(take(&mut user.clone()).is_some());
        let mut both = AuthInfo { token: Some("t".to_owned().into()), ..user };
        assert!(take(&mut both).is_none());
        assert!(both.exec.is_none());
    }
}
