//! What `cargo xtask bench` can measure, for its help and for `--list`, which build nothing.

/// A case of the bench.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// As it is written on the command line.
    pub name: &'static str,
    /// What it measures, in one line.
    pub about: &'static str,
}

/// `connect`.
pub const CONNECT: Subject = Subject {
    name: "connect",
    about: "TCP connect and close, UDP connect, HTTP request on a new connection",
};
/// `exchange`.
pub const EXCHANGE: Subject = Subject {
    name: "exchange",
    about: "a byte there and back by TCP and by UDP, connected and not; TCP throughput",
};
/// `tax`.
pub const TAX: Subject = Subject {
    name: "tax",
    about: "the same without a ClusterSetIP: connect, UDP send and receive, forwarding",
};
/// `programs`.
pub const PROGRAMS: Subject =
    Subject { name: "programs", about: "nanoseconds per run of each program, on hit and miss" };
/// `programming`.
pub const PROGRAMMING: Subject = Subject {
    name: "programming",
    about: "one endpoint changes, and 100 changes a second: until it is in effect, and CPU used",
};
/// `rolling`.
pub const ROLLING: Subject =
    Subject { name: "rolling", about: "a rolling update of a service with 10,000 endpoints" };
/// `cold`.
pub const COLD: Subject = Subject {
    name: "cold",
    about: "a start with 100,000 and 3,000,000 endpoints: time, memory, maps",
};

/// All of them, in the order in which they are measured.
pub const SUBJECTS: [Subject; 7] = [CONNECT, EXCHANGE, TAX, PROGRAMS, PROGRAMMING, ROLLING, COLD];
