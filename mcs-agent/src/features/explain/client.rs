//! What runs for a client: the socket hooks of its cgroup, and the programs of its device.

use std::{
    fs::{self, File},
    io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    thread,
};

use mcs_kube::{
    program::{self, finding::Finding},
    reasons::Code,
};
use serde::Serialize;

use super::hooks_only_host;
use crate::{
    core::kernel::sockets::NetNamespace,
    core::{
        control::{Attachments, Report, SocketLb},
        kernel::{
            bpf::program_name,
            loader::{
                CgroupRoot, HOOKS, Hook, Pins, TcLink, children, mount_of, path_in_hierarchy,
            },
            netlink::Netlink,
            pods,
        },
    },
};

/// The client from whose point of view it is explained.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ClientOptions {
    /// A process: its cgroup and network namespace.
    pub(crate) pid: Option<u32>,
    /// A network namespace: a name in `/run/netns`, or a path.
    pub(crate) netns: Option<PathBuf>,
    /// The uid of a pod of this node: its cgroup, and its network namespace if its processes are visible.
    pub(crate) pod: Option<String>,
}

impl ClientOptions {
    /// A process of the client, if one is given or visible.
    pub(super) fn process(&self, cgroup: Option<&Path>) -> Option<u32> {
        let of_pod =
            |uid: &String| cgroup.filter(|path| pods::is_of(path, uid)).and_then(pods::process);
        self.pid.or_else(|| self.pod.as_ref().and_then(of_pod))
    }

    /// The client's network namespace; `None` for this process's own. `cgroup`: the client's.
    pub(super) fn namespace(&self, cgroup: Option<&Path>) -> Option<io::Result<NetNamespace>> {
        let pid = self.process(cgroup);
        if let (Some(pod), None) = (&self.pod, pid) {
            let what = format!("no process of pod {pod} is visible");
            return Some(Err(io::Error::other(what)));
        }
        let path = match (&self.netns, pid) {
            (Some(path), _) if path.components().count() == 1 => Path::new("/run/netns").join(path),
            (Some(path), _) => path.clone(),
            (None, Some(pid)) => format!("/proc/{pid}/ns/net").into(),
            (None, None) => return None,
        };
        let at =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        Some(NetNamespace::open(&path).map_err(at))
    }
}

/// What runs for a client.
#[derive(Debug, Default, Serialize)]
pub(super) struct ClientView {
    /// `process 12`, `network namespace red`, `pod UID`, or `any process of this node`.
    pub(super) who: String,
    /// Its cgroup: where the hooks are attached, unless a given process or pod has another.
    pub(super) cgroup: Option<PathBuf>,
    /// The cgroup that the hooks are attached to.
    #[serde(skip)]
    pub(super) root: Option<PathBuf>,
    /// A program of others that runs before one of ours that replaces a VIP by a backend.
    #[serde(skip)]
    pub(super) translates_first: Option<String>,
    /// The socket hooks.
    pub(super) hooks: Vec<HookView>,
    /// The host side of the client's interface; absent for a client of the host.
    pub(super) device: Option<DeviceView>,
}

/// A socket hook.
#[derive(Debug, Serialize)]
pub(super) struct HookView {
    pub(super) name: &'static str,
    /// The id of the program that is pinned for it.
    pub(super) program: Option<u32>,
    /// Whether the kernel runs that program for the client's sockets; absent if the kernel was not asked.
    pub(super) runs: Option<bool>,
    /// Programs of others that run before it.
    pub(super) before: Vec<String>,
}

/// A device.
#[derive(Debug, Serialize)]
pub(super) struct DeviceView {
    pub(super) name: String,
    pub(super) index: u32,
    /// The programs that the agent attaches to it.
    pub(super) programs: Vec<String>,
    /// The programs that are not attached any more.
    pub(super) detached: Vec<String>,
    /// Why it gets none.
    pub(super) left_alone: Option<String>,
}

impl ClientView {
    pub(super) fn read(
        pins: &Pins,
        report: Option<&Report>,
        options: &ClientOptions,
        findings: &mut Vec<Finding>,
    ) -> Self {
        let mut view = Self {
            who: match (&options.pod, options.pid, &options.netns) {
                (Some(pod), ..) => format!("pod {pod}"),
                (None, Some(pid), _) => format!("process {pid}"),
                (None, None, Some(netns)) => format!("network namespace {}", netns.display()),
                (None, None, None) => "any process of this node".to_owned(),
            },
            ..Self::default()
        };
        let attachments = Attachments::read(pins);
        let socket_lb = report.map_or(SocketLb::All, |report| report.socket_lb);
        if socket_lb == SocketLb::Off {
            findings.push(Finding::new(Code::SocketLbOff, "the agent runs with --socket-lb=off"));
        } else if let Err(error) = view.read_hooks(&attachments, report, options, findings) {
            findings.push(Finding::new(Code::ClientUnseen, error));
        }
        let namespace = match options.namespace(view.cgroup.as_deref()) {
            None => return view,
            Some(Err(error)) if options.pod.is_some() => {
                let is_told = findings.iter().any(|one| one.is(Code::PodUnseen));
                let what = format!("{error}, so the programs of its device were not looked at");
                findings.extend((!is_told).then(|| Finding::new(Code::PodUnseen, what)));
                return view;
            }
            Some(Err(error)) => {
                findings.push(Finding::new(Code::ClientUnseen, error.to_string()));
                return view;
            }
            Some(Ok(namespace)) => namespace,
        };
        let is_host = namespace.is_own().unwrap_or(false);
        if hooks_only_host(report) && !is_host {
            let what = "the agent runs with --socket-lb=host, which leaves pods out";
            findings.push(Finding::new(Code::SocketLbOff, what));
        }
        if !is_host {
            match host_devices(namespace) {
                Ok(indices) => view.read_device(&indices, report, &attachments.links, findings),
                Err(error) => {
                    let what = format!("cannot look into the network namespace: {error}");
                    findings.push(Finding::new(Code::ClientUnseen, what));
                }
            }
        }
        // The packet path serves a client whose device has its programs.
        let has_programs =
            |device: &DeviceView| !device.programs.is_empty() && device.detached.is_empty();
        if view.device.as_ref().is_some_and(has_programs) {
            for one in findings.iter_mut().filter(|one| one.is(Code::SocketLbOff)) {
                *one = Finding::new(Code::PacketsOnly, one.message.clone());
            }
        }
        view
    }

    fn read_hooks(
        &mut self,
        attachments: &Attachments,
        report: Option<&Report>,
        options: &ClientOptions,
        findings: &mut Vec<Finding>,
    ) -> Result<(), String> {
        let named = report.map(|report| report.cgroup_path.as_path()).filter(|path| path.is_dir());
        let root = CgroupRoot::find(named).map_err(|error| error.to_string())?;
        let cgroup = match (&options.pod, options.pid) {
            (Some(pod), _) => pods::cgroup(&root.path, pod).unwrap_or_else(|| {
                let shown = root.path.display();
                let what = format!(
                    "no cgroup below {shown} is that of pod {pod}; the hooks are those of {shown}"
                );
                findings.push(Finding::new(Code::PodUnseen, what));
                root.path.clone()
            }),
            (None, None) => root.path.clone(),
            (None, Some(pid)) => {
                cgroup_of(pid, &root.path).map_err(|error| format!("process {pid}: {error}"))?
            }
        };
        let directory =
            File::open(&cgroup).map_err(|error| format!("{}: {error}", cgroup.display()))?;
        let pinned =
            |hook: &Hook| attachments.hooks.iter().find(|one| one.name == hook.name)?.program_id;
        let mut lacking = Vec::new();
        for hook in &HOOKS {
            let program = pinned(hook);
            let running = hook
                .running(directory.as_fd(), program)
                .map_err(|error| format!("cannot ask which programs run: {error}; run as root"))?;
            if !running.runs {
                lacking.push(hook.name);
            }
            let before: Vec<_> = running.before.into_iter().map(named_program).collect();
            for other in &before {
                let what = format!("{other} runs before {}", hook.name);
                findings.push(Finding::new(Code::ForeignFirst, what));
            }
            if hook.translates() && self.translates_first.is_none() {
                self.translates_first = before.first().cloned();
            }
            let runs = Some(running.runs);
            self.hooks.push(HookView { name: hook.name, program, runs, before });
        }
        if !lacking.is_empty() {
            let is_outside = lacking.len() == HOOKS.len() && !cgroup.starts_with(&root.path);
            let (code, what) = if is_outside {
                let what = format!("{} is not below {}", cgroup.display(), root.path.display());
                (Code::OutsideCgroup, what)
            } else {
                let what = format!(
                    "hooks that do not run in {}: {}; connections go where the VIP leads without the agent",
                    cgroup.display(),
                    lacking.join(", ")
                );
                (Code::HookMissing, what)
            };
            findings.push(Finding::new(code, what));
        }
        self.cgroup = Some(cgroup);
        self.root = Some(root.path);
        Ok(())
    }

    fn read_device(
        &mut self,
        indices: &[u32],
        report: Option<&Report>,
        links: &[TcLink],
        findings: &mut Vec<Finding>,
    ) {
        let devices = report.map(|report| report.tc.devices.as_slice()).unwrap_or_default();
        let device = devices.iter().find(|device| indices.contains(&device.index));
        let Some(device) = device else {
            let what = "no device of the client is one that the agent knows: packets are not translated (--tc=off, or another CNI)";
            findings.push(Finding::new(Code::DeviceLeftAlone, what));
            return;
        };
        let detached: Vec<_> = device.detached(links).cloned().collect();
        if !detached.is_empty() {
            let what = format!("{} on {}", detached.join(", "), device.name);
            findings.push(Finding::new(Code::DeviceHookMissing, what));
        }
        if let Some(why) = &device.left_alone {
            findings.push(Finding::new(Code::DeviceLeftAlone, format!("{}: {why}", device.name)));
        }
        self.device = Some(DeviceView {
            name: device.name.clone(),
            index: device.index,
            programs: device.hooks.clone(),
            detached,
            left_alone: device.left_alone.clone(),
        });
    }
}

fn named_program(id: u32) -> String {
    match program_name(id) {
        Ok(Some(name)) if !name.is_empty() => format!("program {id} ({name})"),
        Ok(_) | Err(_) => format!("program {id}"),
    }
}

/// The cgroup of a process, below the mount with the agent's cgroup.
fn cgroup_of(pid: u32, root: &Path) -> io::Result<PathBuf> {
    let own = path_in_hierarchy(&pid.to_string())?;
    let own = own.ok_or_else(|| io::Error::other("it is in no cgroup of version 2"))?;
    // In a cgroup namespace of its own, this process sees other cgroups relative to its own.
    if own.contains("/..") {
        return find_process(pid, root);
    }
    Ok(mount_of(root).join(own.trim_start_matches('/')))
}

/// The cgroup of a process, below this one.
fn find_process(pid: u32, root: &Path) -> io::Result<PathBuf> {
    let mut rest = vec![root.to_owned()];
    while let Some(cgroup) = rest.pop() {
        let processes = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
        if processes.lines().any(|line| line.parse() == Ok(pid)) {
            return Ok(cgroup);
        }
        rest.extend(children(&cgroup));
    }
    Err(io::Error::other(format!("it is in no cgroup below {}", root.display())))
}

/// The interface indices of the other ends of a namespace's devices.
fn host_devices(namespace: NetNamespace) -> io::Result<Vec<u32>> {
    run_in(Some(namespace), async {
        let devices = Netlink::open()?.list_devices().await?.devices;
        let ends = devices.iter().filter(|device| device.peer_elsewhere);
        Ok(ends.filter_map(|one| one.peer).collect())
    })
}

/// Runs a future on a thread of its own, which stays in the network namespace; `None`: that of this process.
pub(super) fn run_in<T: Send>(
    namespace: Option<NetNamespace>,
    future: impl Future<Output = anyhow::Result<T>> + Send,
) -> io::Result<T> {
    let run = || {
        if let Some(namespace) = namespace {
            namespace.enter().map_err(|error| {
                io::Error::new(error.kind(), format!("cannot enter the network namespace: {error}"))
            })?;
        }
        program::block_on(future).map_err(|error| io::Error::other(format!("{error:#}")))
    };
    thread::scope(|scope| scope.spawn(run).join())
        .map_err(|_| io::Error::other("the thread ended"))?
}
