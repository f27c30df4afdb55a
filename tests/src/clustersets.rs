//! Clustersets as text: what users and operators do in several clusters in, what controllers make of it out.
//!
//! A file of `tests/clustersets` tells one story. The shipped controllers run in one thread, each with an API server in
//! memory, and time passes as soon as all of them wait. Clusters are `c1` and `c2`, peers of each other, with the namespace
//! `shop`.
//!
//! ```text
//! # What it is about.
//!
//! # First of all, if it has other clusters:
//! -- clusters c1 c2 c3 --
//!
//! # A user applies objects in c1, and deletes one. Without a namespace they are in `shop`.
//! -- apply c1 --
//! kind: ServiceExport
//! metadata: {name: web}
//! ---
//! kind: ...
//! -- delete c1 ServiceExport shop/web --
//!
//! # The same for a Service with port 80, its pods and its export, with fields of its spec; and only the end of the export.
//! -- export c1 shop/web 10.1.0.1 10.1.0.2 --
//! sessionAffinity: ClientIP
//! -- unexport c1 shop/web --
//!
//! # c1 gets the usual credentials for the mailbox of c2.
//! -- link c1 c2 --
//!
//! # The controller is killed, ends in order, starts, begins again with these flags. `{c2}` is a file with a kubeconfig of c2.
//! -- kill c1 --
//! -- end c1 --
//! -- start c1 --
//! -- restart c1 --
//! --adopt
//!
//! # The controller has two replicas from now on, which elect a leader. The steps above take one of them too.
//! -- replicas c1 --
//! -- kill c1+a --
//!
//! # The mailboxes of all clusters are at the API server of c3, a hub.
//! -- hub c3 --
//!
//! # The clock of c1 is an hour behind: that of its API server and of its controller.
//! -- clock c1 -3600 --
//!
//! # The API server is away, hangs, answers again, knows no versions from before. `away c1/c2`: for the controller of c2 alone.
//! -- away c1 --
//! -- hangs c1 --
//! -- answers c1 --
//! -- forgets c1 --
//!
//! # It refuses requests of the controller of c2 (without `/c2`: of everybody) by verb, plural and the begin of a name, with
//! # this code and message; and none any more.
//! -- refuse c1/c2 watch exportedservices * 403 --
//! exportedservices is forbidden
//! -- allow c1 --
//!
//! # A type goes with its objects, and comes back.
//! -- gone c1 ExportedService --
//! -- back c1 ExportedService --
//!
//! # Another controller applies objects for 12 seconds, whenever they are not as it has applied them. The next `expect` begins
//! # with how often that was.
//! -- contest c1 12 --
//! kind: ...
//!
//! # Somebody keeps all that an API server has, and brings it back.
//! -- snapshot c1 --
//! -- rewind c1 --
//!
//! # The address of c1's API server leads the controller of c2 to that of c3.
//! -- leads c1/c2 c3 --
//!
//! # c1 gets another token for the API server of c2, which takes the former ones no more.
//! -- rotate c1 c2 --
//!
//! # The controller of c1 is killed after three more writes, and starts again.
//! -- dies c1 3 --
//!
//! # The API server is an old one: it streams no lists, and answers them from its cache. Its types lack a field.
//! -- plain c1 --
//! -- prunes c1 serviceimports spec.ipFamilies --
//!
//! # A hostile peer forges what is in its mailbox, in the way of this number.
//! -- forges c1 7 --
//!
//! # So many seconds pass.
//! -- wait 300 --
//!
//! # Somebody keeps what a mailbox has, and brings it back later.
//! -- backup c1 --
//! -- restore c1 --
//!
//! # Five seconds later there is this, or after as many as a word like `2s` says. Words choose clusters, services (`shop/web`),
//! # and parts: imports, slices, exports, if none is named; vips, peers, events (each once), mailbox, services, properties,
//! # namespaces, counts.
//! -- expect c2 imports --
//! what there is
//!
//! # Five seconds later all that was shown last is as it was.
//! -- expect no change --
//! ```
//!
//! `MCS_BLESS=1 cargo run --package mcs-tests --bin clustersets` writes what comes out into the files.

mod forge;
mod journal;
mod kinds;
mod member;
mod node;
mod ownership;
mod panics;
mod play;
mod schema;
mod selector;
mod server;
mod simulation;
mod step;
mod store;
mod view;
mod witness;

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser as _;

pub use self::simulation::main as simulate;
use self::{play::play, step::Step};
use crate::{
    script::{Script, files},
    suite::{Args, Suite},
};

/// One story, as its file tells it.
type Story = Script<Step>;

/// Plays every story of `tests/clustersets`.
pub fn main() -> ExitCode {
    let files = match files("clustersets") {
        Ok(files) => files,
        Err(error) => {
            println!("cannot begin: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let mut suite = Suite::default();
    for path in files {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        suite.case(name, move |()| check(&path));
    }
    // Nothing is logged there.
    suite.run(Args::parse(), || Ok(((), PathBuf::from(env!("CARGO_MANIFEST_DIR")))))
}

fn check(path: &Path) -> anyhow::Result<()> {
    let mut story = Story::read(path)?;
    let outcomes = play(&story)?;
    if env::var_os("MCS_BLESS").is_some() {
        story.bless(&outcomes)?;
        story = Story::read(path)?;
    }
    story.compare(&outcomes)
}
