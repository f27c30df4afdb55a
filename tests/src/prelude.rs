//! What cases of every suite use.

pub use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    fs::{self, File},
    io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

pub use crate::{
    agent::{Agent, Source},
    bpf,
    bpffs::BpfDirectory,
    client::{
        self, Family, ask, connect, connected, identity, receive, receive_nameless, still_goes,
        tcp, udp, udp_connected,
    },
    manifests::{Manifests, Protocol, Service},
    netns::Namespace,
    process,
    run::Run,
    server::Server,
    site::{Launch, Site},
    suite::{Suite, is_full, skip, tell, tell_table},
    target::{DEAF, TCP, Target, UDP},
    topology::{Subnet, network::Network},
    wait,
};
pub use anyhow::{Context as _, bail, ensure};
pub use mcs_agent::core::kernel::loader::{Features, Pins};
pub use rustix::process::Signal;
pub use serde_json::{Value, json};

/// What a case, and what it calls, returns.
pub type Result<T = (), E = anyhow::Error> = std::result::Result<T, E>;
