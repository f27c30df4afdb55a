//! `cargo xtask kind`: two kind clusters become a clusterset, and the end-to-end suite runs on them.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result};
use clap::Subcommand;
use mcs_tests::cluster;

use self::docker::Docker;
use crate::{
    build::{self, DEV, OBJECT_VARIABLE, RELEASE},
    image, process,
    screen::say,
    setup::{self, Purpose},
    workspace::Workspace,
};

mod docker;

/// The name of the image of the nodes.
const NODE_IMAGE: &str = "localhost/mcs-kind-node";

/// Run two kind clusters as a clusterset
///
/// The image of the nodes is made from Debian's packages and from the programs that setup builds: no image is pulled.
/// deploy/kind/clusters.sh starts the clusters, and `mcs up` makes a clusterset of them. The last lines are requests by the name of
/// a service, which pods of both clusters answer. Where no Docker answers, one is started in a network namespace of its own.
/// Takes root.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    /// Before they are a clusterset, run the end-to-end suite on them
    #[arg(long)]
    e2e: bool,
    /// In the end take all away
    #[arg(long)]
    rm: bool,
    /// An archive that has the image of both programs, instead of a new one
    #[arg(long, value_name = "ARCHIVE")]
    image: Option<PathBuf>,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    /// Take away the clusters, the image of their nodes, and the Docker that was started for them
    Down,
}

/// Runs the verb.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        eprintln!(
            "error: cargo xtask kind takes root, for debootstrap and for the network of nodes"
        );
        return Ok(ExitCode::from(2));
    }
    let up = match args.verb {
        Some(Verb::Down) => Ok(()),
        None => up(workspace, args),
    };
    if args.rm || args.verb.is_some() {
        let down = down(workspace);
        if let (Err(_), Err(error)) = (&up, &down) {
            eprintln!("error: {error:#}");
        }
        up.and(down)?;
    } else {
        up?;
    }
    Ok(ExitCode::SUCCESS)
}

fn up(workspace: &Workspace, args: &Args) -> Result<()> {
    setup::ensure(workspace, &[Purpose::Build, Purpose::Clusters, Purpose::Kind])?;
    let archive = args.image.as_ref().map(std::path::absolute).transpose()?;
    // An image that is there is not always of an optimised build, which takes minutes.
    let profile = if archive.is_some() { DEV } else { RELEASE };
    let mut images = vec![archive.map_or_else(|| image::agent(workspace), Ok)?];
    let controller = build::controller(workspace, &build::object(workspace)?, profile)?;
    let mcs = build::command_line(&controller);
    let suite = if args.e2e { Some(Suite::build(workspace, &mut images)?) } else { None };
    let images: Vec<_> = images.iter().map(|archive| archive.display().to_string()).collect();
    let types = setup::go_source(workspace, "mcs-api", "sigs.k8s.io/mcs-api")?.join("config/crd");
    let docker = Docker::begin(workspace)?;
    make_node_image(workspace, &docker)?;
    let clusters = |verb: &str| {
        let mut script = clusters(workspace, &docker)?;
        script.env("NODE_IMAGE", NODE_IMAGE).env("IMAGES", images.join(" "));
        script.env("MCS_API", &types).env("MCS", &mcs);
        process::run(script.arg(verb))
    };
    clusters("up")?;
    if let Some(suite) = suite {
        suite.run(workspace, &docker)?;
    }
    clusters("mcs")?;
    say(format_args!("\n{}cargo xtask kind down takes all away.", docker.advice()));
    Ok(())
}

fn down(workspace: &Workspace) -> Result<()> {
    let Some(docker) = Docker::find(workspace) else {
        say("There is no Docker, and so there are no clusters.");
        return Ok(());
    };
    process::run(clusters(workspace, &docker)?.arg("down"))?;
    docker.end(NODE_IMAGE)?;
    say("Nothing is left of the clusters.");
    Ok(())
}

/// deploy/kind/clusters.sh.
fn clusters(workspace: &Workspace, docker: &Docker) -> Result<Command> {
    let mut script = docker.command(workspace.root.join("deploy/kind/clusters.sh"));
    script.env("PATH", path(workspace)?);
    Ok(script)
}

fn make_node_image(workspace: &Workspace, docker: &Docker) -> Result<()> {
    if docker.has_image(NODE_IMAGE) {
        return Ok(());
    }
    let files = setup::go_source(workspace, "kind", "sigs.k8s.io/kind")?.join("images/base/files");
    // It needs Debian's archive, which a Docker in a network namespace does not reach.
    let mut script = Command::new(workspace.root.join("xtask/src/lab/kind/node-image.sh"));
    script.arg(NODE_IMAGE).arg(files).env("PATH", path(workspace)?);
    process::run(docker.direct(&mut script))
}

/// The programs of clusters, before those of the machine.
fn path(workspace: &Workspace) -> Result<OsString> {
    let directories = setup::cluster_programs(workspace, &[Purpose::Kind, Purpose::Clusters])?;
    let path = env::var_os("PATH").unwrap_or_default();
    Ok(env::join_paths(directories.into_iter().chain(env::split_paths(&path)))?)
}

/// The binary of the end-to-end suite.
struct Suite {
    object: PathBuf,
    program: PathBuf,
}

impl Suite {
    /// Builds it, and the image of its clients and servers.
    fn build(workspace: &Workspace, images: &mut Vec<PathBuf>) -> Result<Self> {
        let traffic = workspace.target.join("container/mcs-traffic.tar");
        cluster::write_traffic(&image::traffic(workspace)?, &traffic)?;
        images.push(traffic);
        let object = build::object(workspace)?;
        build::suites(workspace, &object, RELEASE, &["e2e"])?;
        Ok(Self { object, program: build::suite(workspace, RELEASE, "e2e") })
    }

    fn run(&self, workspace: &Workspace, docker: &Docker) -> Result<()> {
        let mut suite = docker.command(&self.program);
        workspace.enter(&mut suite);
        setup::name_cluster_programs(workspace, &[Purpose::Clusters], &mut suite)?;
        suite.env(OBJECT_VARIABLE, &self.object);
        for number in ["1", "2"] {
            let mut ask = clusters(workspace, docker)?;
            let asked = ask.args(["kubeconfig", number]).output().context("cannot run bash")?;
            suite.arg("--kubeconfig").arg(Path::new(String::from_utf8(asked.stdout)?.trim()));
        }
        process::run(&mut suite)
    }
}
