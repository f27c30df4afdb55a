//! Clients: in a pod, in a pod of the node's network, a process of the node, and one in a network whose sockets no program sees.

use std::process::ChildStdout;

use super::{Member, NAMESPACE, PATIENCE, Target};
use crate::{cluster::Node, prelude::*};

/// Where a client is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In a pod.
    Pod,
    /// In a pod of the node's network.
    HostNetworkPod,
    /// A process of the node.
    Node(Node),
    /// In the network of a pod, and in no cgroup of its node: its packets alone can be translated, as those of a virtual machine.
    ByPackets(&'static str),
}

impl Place {
    /// Those with a file that tells them where DNS is.
    pub const PODS: [Self; 2] = [Self::Pod, Self::HostNetworkPod];
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod => f.write_str("a pod"),
            Self::HostNetworkPod => f.write_str("a pod of the node's network"),
            Self::Node(node) => write!(f, "a process of {node}"),
            Self::ByPackets(_) => f.write_str("a client by packets"),
        }
    }
}

/// A client of one cluster.
#[derive(Clone, Copy)]
pub struct Client<'a> {
    member: &'a Member,
    place: Place,
}

impl fmt::Display for Client<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.place, self.member.name)
    }
}

/// What a client got to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The address that it asked.
    pub asked: SocketAddr,
    /// Who answered, as the server says.
    pub by: SocketAddr,
    /// Who answered, as the kernel says.
    pub shown: SocketAddr,
}

impl<'a> Client<'a> {
    /// A client in a place that its cluster has.
    pub const fn new(member: &'a Member, place: Place) -> Self {
        Self { member, place }
    }

    /// Every client by sockets that there can be in a cluster. Tells which there cannot be.
    pub fn all(member: &'a Member) -> Vec<Self> {
        if member.node.is_none() {
            tell(format!("without a process of the node: that of {} is elsewhere", member.name));
        }
        let nodes = member.nodes().into_iter().map(Place::Node);
        Place::PODS.into_iter().chain(nodes).map(|place| Self::new(member, place)).collect()
    }

    fn command(&self, words: &[String]) -> Result<Command> {
        let pod = match self.place {
            Place::Pod => "client",
            Place::HostNetworkPod => "host-client",
            Place::Node(node) => {
                let mut command = node.command(self.member.traffic()?);
                command.args(words);
                return Ok(command);
            }
            Place::ByPackets(pod) => {
                let mut command = self.member.network_of(pod)?.command(self.member.traffic()?);
                command.args(words);
                return Ok(command);
            }
        };
        let mut command = self.member.kubectl.command();
        command.args(["--namespace", NAMESPACE, "exec", "--stdin", pod, "--", "/traffic"]);
        command.args(words);
        Ok(command)
    }

    /// Asks once at each address of `to`, which is `NAME:PORT`.
    pub fn ask(&self, protocol: &str, to: &str) -> Result<Vec<Answer>> {
        self.ask_often(protocol, to, 1)
    }

    /// Asks that many times.
    pub fn ask_often(&self, protocol: &str, to: &str, times: u32) -> Result<Vec<Answer>> {
        let words = ["ask", protocol, to, &times.to_string()].map(str::to_owned);
        let printed = process::run(&mut self.command(&words)?, "");
        let printed = printed.with_context(|| self.to_string())?;
        let answer = |line: &str| {
            let addresses = line.split(' ').map(|address| Ok(address.parse()?));
            let addresses = addresses.collect::<Result<Vec<SocketAddr>>>()?;
            let [asked, by, shown] = addresses[..] else { bail!("{line:?} is no answer") };
            Ok(Answer { asked, by, shown })
        };
        printed.lines().map(answer).collect()
    }

    /// Waits for an answer from an address that is right.
    pub fn wait_for(
        &self,
        protocol: &str,
        address: SocketAddr,
        is_right: impl Fn(&Answer) -> bool,
    ) -> Result {
        wait::within(PATIENCE, &format!("{address}/{protocol} for {self}"), || {
            let answers = self.ask(protocol, &address.to_string())?;
            ensure!(!answers.is_empty() && answers.iter().all(&is_right), "{answers:?}");
            Ok(())
        })
    }

    /// Waits until servers of `exporter`, and nobody else, answer at every frontend.
    pub fn reach(&self, target: &Target, exporter: &Member) -> Result {
        let backends = exporter.backends()?;
        target.frontends().try_for_each(|(protocol, address)| {
            self.wait_for(protocol, address, |answer| {
                backends.contains(&answer.by) && answer.shown == address
            })
        })
    }

    /// Waits until no frontend has anybody behind it, and says so at once.
    pub fn is_refused(&self, target: &Target) -> Result {
        target.frontends().try_for_each(|(protocol, address)| self.is_refused_at(protocol, address))
    }

    /// The same of one frontend.
    pub fn is_refused_at(&self, protocol: &str, address: SocketAddr) -> Result {
        wait::within(PATIENCE, &format!("{address}/{protocol} to refuse {self}"), || {
            let answers = self.ask(protocol, &address.to_string());
            let error = match answers {
                Ok(answers) => bail!("{answers:?} answered"),
                Err(error) => format!("{error:#}"),
            };
            // EPERM before Linux 5.18.
            let refused = ["Connection refused", "Operation not permitted"];
            ensure!(refused.iter().any(|words| error.contains(words)), "{error}");
            Ok(())
        })
    }

    /// Begins to use every frontend over and over; servers of these clusters may answer. It returns
    /// once all have answered.
    pub fn load(&self, target: &Target, exporters: &[&Member]) -> Result<Load<'a>> {
        let mut words = vec!["load".to_owned()];
        words.extend(target.frontends().map(|(protocol, address)| format!("{protocol}={address}")));
        for exporter in exporters {
            words.extend(exporter.backends()?.iter().map(|address| format!("from={address}")));
        }
        let mut command = self.command(&words)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let stdout = child.stdout.take().context("no standard output")?;
        let mut load = Load { client: *self, child, stdout: BufReader::new(stdout) };
        let mut line = String::new();
        load.stdout.read_line(&mut line)?;
        if line.trim() != "began" {
            let answers = load.end()?;
            bail!("{self}: ended after {answers} answers, before all had answered");
        }
        Ok(load)
    }
}

/// A client that uses a target until it is stopped.
pub struct Load<'a> {
    client: Client<'a>,
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Load<'_> {
    /// Ends it, and returns how often a server answered. It is an error if anything failed.
    pub fn end(mut self) -> Result<u64> {
        drop(self.child.stdin.take());
        let (mut printed, mut complaint) = (String::new(), String::new());
        self.stdout.read_to_string(&mut printed)?;
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut complaint)?;
        }
        let status = self.child.wait()?;
        ensure!(status.success(), "{}: {}", self.client, complaint.trim());
        printed.trim().parse().with_context(|| format!("{}: {printed:?}", self.client))
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
