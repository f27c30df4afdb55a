//! etcd and API servers, as processes that can be killed.

mod client;
pub mod rights;
mod token;

use std::sync::Arc;

use rustix::process::{Pid, kill_process};

use crate::{
    cluster::{
        CLUSTER_PROPERTIES, Programs,
        certificates::{Authority, Pair, TokenKeys},
        etcd, mcs_definitions,
    },
    prelude::*,
    topology::Node,
};

pub use self::client::{Api, documents, namespace, namespaced};

/// An API server takes its time to start where others work too.
const START_PATIENCE: Duration = Duration::from_mins(2);
/// Who makes the tokens of ServiceAccounts.
pub const ISSUER: &str = "https://kubernetes.default.svc";
/// The token of who may do everything.
pub const TOKEN: &str = "administrator";

/// What the processes of a control plane share: a network namespace, and etcd.
pub struct ControlPlane {
    etcd: Process,
    netns: Arc<Namespace>,
    address: Ipv4Addr,
    programs: Programs,
    authority: Authority,
    /// The cgroup that its processes belong to, whoever starts them.
    cgroup: PathBuf,
    directory: PathBuf,
}

/// An API server with its own cluster.
pub struct ApiServer {
    process: Process,
    address: SocketAddr,
    authority: PathBuf,
    tokens: TokenKeys,
    directory: PathBuf,
    /// Asks it as the administrator.
    pub api: Api,
}

impl ControlPlane {
    /// The address of a control plane that is [alone](Self::alone).
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 250, 1);
    const LINK: Subnet = Subnet(5);

    /// Starts etcd in a namespace that nothing leads to.
    pub fn alone(run: &Run) -> Result<Self> {
        let netns = Namespace::create(run, "control")?;
        netns.ip(&format!("address add {}/32 dev lo\n", Self::ADDRESS))?;
        Self::start(run, netns, Self::ADDRESS)
    }

    /// Starts etcd in a namespace that is linked to a node.
    pub fn linked(run: &Run, node: &Node) -> Result<Self> {
        let netns = node.link(run, "control", Self::LINK, &[2])?;
        Self::start(run, netns, Self::LINK.v4(2))
    }

    /// Starts etcd in a namespace that is reached by `address`.
    fn start(run: &Run, netns: Namespace, address: Ipv4Addr) -> Result<Self> {
        let programs = Programs::from_env();
        let directory = run.directory().to_owned();
        let netns = Arc::new(netns);
        let flags = etcd::flags(&directory.join("etcd"), "error");
        let etcd = Process::start(&programs, "etcd", &flags, &netns, run.cgroup(), &directory)?;
        let authority = Authority::create(directory.join("pki"), "authority")?;
        let cgroup = run.cgroup().to_owned();
        Ok(Self { etcd, netns, address, programs, authority, cgroup, directory })
    }

    /// Links a node to it: by `control` in the node, and by `device` in the control plane.
    pub fn join(&self, node: &Namespace, device: &str, subnet: Subnet) -> Result {
        let peer = self.netns.name();
        node.ip(&format!(
            "link add control type veth peer name {device} netns {peer}\n\
             address add {}/24 dev control\n\
             link set control up\n",
            subnet.v4(1)
        ))?;
        let ours = subnet.v4(2);
        self.netns.ip(&format!("address add {ours}/24 dev {device}\nlink set {device} up\n"))?;
        node.ip(&format!("route add {} via {ours}", self.address))
    }

    /// A certificate for another server at its address.
    pub fn serving(&self, name: &str) -> Result<Pair> {
        self.authority.server(name, &[], [IpAddr::from(self.address)])
    }

    /// Starts an API server with these flags added, and waits until it is ready. Clusters share etcd and nothing else.
    pub fn api_server(&self, name: &str, port: u16, flags: &[&str]) -> Result<ApiServer> {
        let directory = self.directory.join(name);
        fs::create_dir(&directory)?;
        let tokens = TokenKeys::create(&directory)?;
        let serving = self.serving(name)?;
        let users = directory.join("tokens.csv");
        fs::write(&users, format!("{TOKEN},administrator,0,system:masters\n"))?;
        let own = [
            format!("--etcd-servers={}", etcd::URL),
            format!("--etcd-prefix=/{name}"),
            format!("--secure-port={port}"),
            format!("--advertise-address={}", self.address),
            "--endpoint-reconciler-type=none".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            format!("--tls-cert-file={}", serving.certificate.display()),
            format!("--tls-private-key-file={}", serving.key.display()),
            format!("--token-auth-file={}", users.display()),
            format!("--service-account-issuer={ISSUER}"),
            format!("--service-account-key-file={}", tokens.public.display()),
            format!("--service-account-signing-key-file={}", tokens.private.display()),
            "--authorization-mode=RBAC".to_owned(),
        ];
        let flags: Vec<_> =
            own.into_iter().chain(flags.iter().map(|&flag| flag.to_owned())).collect();
        let process = Process::start(
            &self.programs,
            "kube-apiserver",
            &flags,
            &self.netns,
            &self.cgroup,
            &directory,
        )?;
        let address = SocketAddr::new(self.address.into(), port);
        let api = Api::new(Arc::clone(&self.netns), &format!("https://{address}"), TOKEN)?;
        let authority = self.authority.certificate();
        let mut server = ApiServer { process, address, authority, tokens, directory, api };
        server.wait()?;
        Ok(server)
    }

    /// The same, with the types of the Multi-Cluster Services API and of cluster ids.
    pub fn member(&self, name: &str, port: u16, flags: &[&str]) -> Result<ApiServer> {
        let server = self.api_server(name, port, flags)?;
        self.install_types(&server)?;
        server.api.apply_yaml(CLUSTER_PROPERTIES)?;
        Ok(server)
    }

    /// The definitions of ServiceImport and ServiceExport.
    pub fn mcs_definitions(&self) -> Result<String> {
        mcs_definitions(&self.programs)
    }

    /// Gives a cluster the types of the Multi-Cluster Services API, and waits until it serves them.
    pub fn install_types(&self, server: &ApiServer) -> Result {
        server.api.apply_yaml(&self.mcs_definitions()?)?;
        server.api.wait_for_kind(&json!({
            "apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceImport",
        }))
    }

    /// Starts controllers of Kubernetes for a cluster: of slices, garbage, namespaces and service accounts.
    pub fn controllers(&self, server: &ApiServer) -> Result<Process> {
        const CONTROLLERS: &str = "endpointslice-controller,garbage-collector-controller,\
                                   namespace-controller,serviceaccount-controller";
        let flags = [
            format!("--kubeconfig={}", server.administrator()?.display()),
            format!("--controllers={CONTROLLERS}"),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        let (netns, cgroup) = (&self.netns, &self.cgroup);
        let name = "kube-controller-manager";
        Process::start(&self.programs, name, &flags, netns, cgroup, server.directory())
    }

    /// Lets etcd forget all versions but the latest.
    pub fn compact(&self) -> Result {
        let etcd = Api::new(Arc::clone(&self.netns), etcd::URL, "")?;
        let all = json!({ "key": "AA==", "range_end": "AA==", "count_only": true });
        let found = etcd.post("/v3/kv/range", &all)?;
        let revision = found["header"]["revision"].clone();
        etcd.post("/v3/kv/compaction", &json!({ "revision": revision })).map(drop)
    }

    /// The process id of etcd.
    pub fn etcd_pid(&self) -> u32 {
        self.etcd.pid()
    }

    /// Where it is.
    pub const fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The namespace of its processes.
    pub const fn netns(&self) -> &Arc<Namespace> {
        &self.netns
    }
}

impl ApiServer {
    /// Waits until it answers.
    fn wait(&mut self) -> Result {
        wait::within(START_PATIENCE, &format!("the API server at {}", self.address), || match self
            .process
            .check()
        {
            Ok(()) => self.api.is_ready().map(Ok),
            ended => Ok(ended),
        })?
    }

    /// Starts another process of the same cluster at the same address. Both need `--permit-port-sharing`: a connection leads to
    /// either of them, as through a load balancer.
    pub fn twin(&self) -> Result<Process> {
        self.process.twin()
    }

    /// Starts it again after [`ApiServer::kill`], and waits until it is ready.
    pub fn start_again(&mut self) -> Result {
        self.process.start_again()?;
        self.wait()
    }

    /// Kills it, and waits for that.
    pub fn kill(&mut self) -> Result {
        self.process.signal(Signal::KILL)?;
        self.process.child.wait()?;
        Ok(())
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Stops it (SIGSTOP), with all its connections open.
    pub fn freeze(&self) -> Result {
        self.process.signal(Signal::STOP)
    }

    /// Lets it continue (SIGCONT).
    pub fn thaw(&self) -> Result {
        self.process.signal(Signal::CONT)
    }

    /// Another client as the administrator, with separate connections.
    pub fn another_client(&self) -> Result<Api> {
        self.with_token(TOKEN)
    }

    /// Asks with that token.
    pub fn with_token(&self, token: &str) -> Result<Api> {
        Api::new(self.api.netns(), &format!("https://{}", self.address), token)
    }

    /// Asks as that user.
    pub fn as_user(&self, user: &str) -> Result<Api> {
        let url = format!("https://{}", self.address);
        Api::impersonating(self.api.netns(), &url, TOKEN, Some(user))
    }

    /// Where it is.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate of its authority.
    pub fn authority(&self) -> &Path {
        &self.authority
    }

    /// A token of a ServiceAccount, as the API server makes them, with another time. `account` is the object as it is, and
    /// the seconds are those since 1970.
    pub fn token(&self, account: &Value, issued: i64, expires: i64) -> Result<String> {
        let metadata = &account["metadata"];
        let (namespace, name) = (&metadata["namespace"], &metadata["name"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let claims = json!({
            "iss": ISSUER,
            "aud": [ISSUER],
            "sub": format!("system:serviceaccount:{}:{}", text(namespace), text(name)),
            "iat": issued,
            "nbf": issued,
            "exp": expires,
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": { "name": name, "uid": metadata["uid"] },
            },
        });
        token::sign(&self.tokens.private, &claims)
    }

    /// Its own directory, which has its log.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes a kubeconfig of the administrator.
    pub fn administrator(&self) -> Result<PathBuf> {
        let [kubeconfig, token] = ["administrator.kubeconfig", "administrator.token"]
            .map(|name| self.directory.join(name));
        fs::write(&token, TOKEN)?;
        self.write_kubeconfig(&kubeconfig, &token)?;
        Ok(kubeconfig)
    }

    /// Writes a kubeconfig of whoever has the token in that file.
    pub fn write_kubeconfig(&self, path: &Path, token_file: &Path) -> Result {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "contexts": [{ "name": "agent", "context": { "cluster": "it", "user": "agent" } }],
            "current-context": "agent",
            "clusters": [{
                "name": "it",
                "cluster": {
                    "server": format!("https://{}", self.address),
                    "certificate-authority": self.authority,
                },
            }],
            "users": [{ "name": "agent", "user": { "tokenFile": token_file } }],
        });
        Ok(fs::write(path, config.to_string())?)
    }
}

/// A process that is killed when this is dropped.
pub struct Process {
    name: &'static str,
    program: PathBuf,
    flags: Vec<String>,
    netns: Arc<Namespace>,
    cgroup: PathBuf,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts a program in a network namespace and a cgroup. It logs into a file of its name in
    /// `directory`.
    pub fn start(
        programs: &Programs,
        name: &'static str,
        flags: &[String],
        netns: &Arc<Namespace>,
        cgroup: &Path,
        directory: &Path,
    ) -> Result<Self> {
        Self::start_file(programs.find(name)?, name, flags, netns, cgroup, directory)
    }

    /// The same with the file of a program. `name` is that of the log.
    pub fn start_file(
        program: PathBuf,
        name: &'static str,
        flags: &[String],
        netns: &Arc<Namespace>,
        cgroup: &Path,
        directory: &Path,
    ) -> Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let child = spawn(&program, flags, netns, cgroup, &log)?;
        let (netns, cgroup) = (Arc::clone(netns), cgroup.to_owned());
        Ok(Self { name, program, flags: flags.to_owned(), netns, cgroup, log, child })
    }

    fn start_again(&mut self) -> Result {
        self.child = spawn(&self.program, &self.flags, &self.netns, &self.cgroup, &self.log)?;
        Ok(())
    }

    fn twin(&self) -> Result<Self> {
        let child = spawn(&self.program, &self.flags, &self.netns, &self.cgroup, &self.log)?;
        let (netns, log) = (Arc::clone(&self.netns), self.log.clone());
        Ok(Self {
            name: self.name,
            program: self.program.clone(),
            flags: self.flags.clone(),
            netns,
            cgroup: self.cgroup.clone(),
            log,
            child,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, and does not wait.
    pub fn signal(&self, signal: Signal) -> Result {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// An error if it has ended.
    fn check(&mut self) -> Result {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "{} ended: see {}", self.name, self.log.display());
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(
    program: &Path,
    flags: &[String],
    netns: &Namespace,
    cgroup: &Path,
    log: &Path,
) -> Result<Child> {
    let log = File::options().create(true).append(true).open(log)?;
    let mut command = netns.command("/bin/sh");
    command
        .args(["-c", "echo 0 >\"$0\" && exec \"$@\""])
        .arg(cgroup.join("cgroup.procs"))
        .arg(program)
        .args(flags)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    command.spawn().with_context(|| format!("cannot start {}", program.display()))
}
