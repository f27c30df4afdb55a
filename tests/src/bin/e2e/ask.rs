//! What an operator asks of a cluster with the clusterset: `mcs explain`, `mcs trace` and `mcs ui`, through its API server,
//! kubelet and container runtime.

use rustix::process::{Pid, kill_process};

use crate::prelude::*;

/// The pod of [`Place::Pod`].
pub(crate) const POD: &str = "client";

/// The questions, by `mcs` as this makes it.
pub(crate) fn answers(
    mcs: impl Fn(&str) -> Result<Command>,
    client: &Client<'_>,
    service: &str,
) -> Result {
    explains(mcs("explain")?, service)?;
    traces(mcs("trace")?, client, service)?;
    let import = format!("{NAMESPACE}/{service}");
    shows(&mut mcs("ui")?, &["mcs-agent on node ", &import])?;
    shows(mcs("ui")?.arg("--controller"), &["mcs-controller of cluster ", &import])
}

fn explains(mut explain: Command, service: &str) -> Result {
    explain.args([format!("{NAMESPACE}/{POD}"), format!("{NAMESPACE}/{service}:{TCP}")]);
    let said = process::run(explain.args(["--output", "json"]), "")?;
    let found: Value = serde_json::from_str(&said)?;
    ensure!(found["served"] == true && found["explained"]["served"] == true, "{said}");
    Ok(())
}

/// It ends after two decisions, and leaves nothing in the agent's pod: kubectl is killed, and tells the container runtime nothing.
fn traces(mut trace: Command, client: &Client<'_>, service: &str) -> Result {
    let import = format!("{NAMESPACE}/{service}");
    trace.args([&*import, "--count=2", "--for=5m", "--output=json"]);
    let mut traces = trace.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let name = format!("{service}.{NAMESPACE}.svc.clusterset.local:{TCP}");
    let ended = wait::within(PATIENCE, "two decisions", || {
        client.ask_often("tcp", &name, 4)?;
        traces.try_wait()?.context("it goes on")
    });
    traces.kill()?;
    let output = traces.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(ended?.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for line in said.lines() {
        let event: Value = serde_json::from_str(line)?;
        ensure!(event["k8s.pod.name"] == POD, "{said}");
    }
    ensure!(said.lines().count() >= 2, "{said}");
    wait::within(PATIENCE, "the end of the trace in the agent's pod", || {
        let left = processes(b"mcs-agent\0trace\0")?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
}

/// The processes of this machine whose command line begins so (`proc_pid_cmdline(5)`).
fn processes(begin: &[u8]) -> Result<Vec<u32>> {
    let pids = fs::read_dir("/proc")?.flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        // Some end meanwhile.
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        line.starts_with(begin).then_some(pid)
    });
    Ok(pids.collect())
}

/// `mcs ui` until this is dropped, and the URL that it has printed.
pub(crate) struct Shown {
    ui: Child,
    pub(crate) url: String,
}

impl Shown {
    pub(crate) fn begin(ui: &mut Command) -> Result<Self> {
        let ui = ui.stdout(Stdio::piped()).spawn()?;
        let mut shown = Self { ui, url: String::new() };
        let mut line = String::new();
        BufReader::new(shown.ui.stdout.as_mut().context("no output")?).read_line(&mut line)?;
        line.split_whitespace().next().unwrap_or_default().clone_into(&mut shown.url);
        Ok(shown)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let ended = kill_process(Pid::from_child(&self.ui), Signal::INT);
        if let Err(error) = ended.map_err(Into::into).and_then(|()| self.ui.wait()) {
            eprintln!("mcs ui: {error}");
        }
    }
}

/// Its URL leads to a page with these texts.
fn shows(ui: &mut Command, texts: &[&str]) -> Result {
    let shown = Shown::begin(ui)?;
    // Programs make a page anew every some seconds.
    wait::within(PATIENCE, "the page", || {
        let page = page(&shown.url)?;
        let is_complete = texts.iter().all(|text| page.contains(text));
        ensure!(page.starts_with("HTTP/1.1 200") && is_complete, "{page}");
        Ok(())
    })
}

/// The answer of the page.
fn page(url: &str) -> Result<String> {
    let address = url.strip_prefix("http://").and_then(|rest| rest.split('/').next());
    let address = address.with_context(|| format!("{url:?} is no URL"))?;
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET /page HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}
