//! `mcs-agent explain`: why a name or an address is served, or not.

use std::{net::IpAddr, path::PathBuf, process::ExitCode, thread, time::Duration};

use clap::Args;
use mcs_kube::program::{Style, print};

use super::{ClientOptions, Explained, KernelAndReport, Question, Target};
use crate::core::{
    cli::{ReadArgs, view},
    feature::Definition,
    kernel::loader::Pins,
};

/// Could not be found out.
const UNKNOWN: u8 = 3;
/// Columns of the tree, where no terminal says otherwise.
const WIDTH: usize = 80;
/// How long an agent may take to write what it reads.
const LAG: Duration = Duration::from_millis(500);

/// Explain why a name or an address is served, or not: the import, each endpoint, the maps, the hooks
///
/// It runs the agent's own rules on the import and its EndpointSlices, which it reads from where the agent reads them.
/// Run it in the agent's pod, or on the node as root. It works while the agent is down: it explains what the maps have,
/// and says how old the last report is. Each finding has a code; deploy/explain.md lists them.
///
/// Exits with 0 if it is served, with 1 if something is wrong, with 3 if it could not be found out.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs-agent explain shop/cart
  mcs-agent explain 10.99.0.10:80
  mcs-agent explain cart.shop.svc.clusterset.local --probe
  mcs-agent explain shop/cart:80 --pid 4711
  mcs-agent explain shop/cart -o json | jq -r '.findings[].code'")]
pub(crate) struct ExplainArgs {
    /// VIP:PORT or VIP:PORT/TCP, NAMESPACE/NAME or NAMESPACE/NAME:PORT of a ServiceImport, or
    /// NAME.NAMESPACE.svc.clusterset.local
    #[arg(value_name = "TARGET")]
    target: Target,

    /// Take the point of view of this process: its cgroup's hooks, and its device
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,

    /// Take the point of view of this network namespace: a name in /run/netns, or a path
    #[arg(long, value_name = "NAME")]
    netns: Option<PathBuf>,

    /// Take the point of view of this pod of the node: its cgroup's hooks, and its device if its processes are visible
    #[arg(long, value_name = "UID", conflicts_with_all = ["pid", "netns"])]
    pod: Option<String>,

    /// Connect by TCP to the VIP and to some backends, from the client's network namespace. With --pod it takes a visible process of
    /// the pod: on the node, or in an agent's pod with hostPID
    #[arg(long)]
    probe: bool,

    /// Ask this DNS server what the name resolves to, unless the process of --pid or --pod names one. Without it that one is asked if
    /// TARGET is a name
    #[arg(long, value_name = "ADDRESS")]
    dns_server: Option<IpAddr>,

    #[command(flatten)]
    read: ReadArgs,
}

pub(crate) fn run(args: &ExplainArgs, features: &'static [Definition]) -> ExitCode {
    let pins = Pins::new(&args.read.bpffs.bpffs);
    let question = Question {
        target: args.target.clone(),
        client: ClientOptions { pid: args.pid, netns: args.netns.clone(), pod: args.pod.clone() },
        probes: args.probe,
        dns_server: args.dns_server,
        features,
    };
    let once = || -> anyhow::Result<Explained> {
        let maps = view::of(&view::read_maps(&pins)?);
        let view::RunFiles { report, is_former, .. } = view::RunFiles::read(&pins);
        Ok(Explained::read(
            &pins,
            &question,
            &KernelAndReport { maps, report: report.ok(), is_former },
        ))
    };
    let read = || {
        let explained = once()?;
        if explained.may_lag() {
            thread::sleep(LAG);
            return once();
        }
        Ok(explained)
    };
    let show =
        |explained: &Explained, style: Style| print(&explained.tree(WIDTH, style.wide, features));
    match args.read.output.show(read, show) {
        Ok(explained) => explained.exit_status().into(),
        Err(error) => {
            eprintln!("mcs-agent: {error:#}");
            UNKNOWN.into()
        }
    }
}
