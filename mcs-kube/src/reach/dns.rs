//! DNS servers are asked themselves: the system says the same of an error and of silence.

use std::{
    collections::BTreeSet,
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use futures_util::TryFutureExt as _;
pub use simple_dns::RCODE;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, TYPE, rdata::RData};
use tokio::{
    net::{UdpSocket, lookup_host},
    time::timeout,
};

use super::Outcome;

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The port of DNS servers.
pub const PORT: u16 = 53;
/// The most bytes of an answer.
const LONGEST: usize = 4096;

/// What a server says of a name, in both families.
#[derive(Debug)]
pub struct Answer {
    /// The addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// `NoError`, or else an error, which goes before a missing name.
    pub code: RCODE,
}

/// The addresses of a name by this server, or as the system has them, which asks its own; else why there is none.
///
/// # Errors
/// There is none.
pub async fn look_up(
    name: &str,
    server: Option<IpAddr>,
    limit: Duration,
) -> Result<Vec<IpAddr>, Outcome> {
    if let Some(server) = server {
        let answer = ask(SocketAddr::new(server, PORT), name, limit).await;
        let answer = answer.map_err(|_| Outcome::DnsSilent)?;
        return answer.lack().map_or_else(|| Ok(answer.addresses.into_iter().collect()), Err);
    }
    let found = timeout(limit, lookup_host((name, 0_u16))).await.ok().and_then(Result::ok);
    let found: Vec<_> = found.into_iter().flatten().map(|address| address.ip()).collect();
    if found.is_empty() { Err(failure(name, limit).await) } else { Ok(found) }
}

/// Why the system has no address for a name, by the first of its servers that answers. Search domains do not count: the name
/// is whole.
async fn failure(name: &str, limit: Duration) -> Outcome {
    let resolv_conf = fs::read_to_string(RESOLV_CONF).unwrap_or_default();
    failure_at(servers(&resolv_conf).map(|ip| SocketAddr::new(ip, PORT)), name, limit).await
}

async fn failure_at(
    servers: impl IntoIterator<Item = SocketAddr>,
    name: &str,
    limit: Duration,
) -> Outcome {
    for server in servers {
        if let Ok(answer) = ask(server, name, limit).await {
            // It has answered this question, and the system's came to nothing in time.
            return answer.lack().unwrap_or(Outcome::DnsSilent);
        }
    }
    Outcome::DnsSilent
}

impl Answer {
    /// Why it has no address; none if it has.
    fn lack(&self) -> Option<Outcome> {
        match self.code {
            RCODE::NoError | RCODE::NameError if !self.addresses.is_empty() => None,
            RCODE::NoError => Some(Outcome::DnsEmpty),
            RCODE::NameError => Some(Outcome::Unresolved),
            _ => Some(Outcome::DnsFailed),
        }
    }
}

/// The servers in a resolv.conf.
pub fn servers(resolv_conf: &str) -> impl Iterator<Item = IpAddr> {
    let servers = resolv_conf.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    servers.filter_map(|server| server.trim().parse().ok())
}

/// Asks a server for the addresses of a name, and once more if nothing has come by half of the time.
pub async fn ask(server: SocketAddr, name: &str, limit: Duration) -> io::Result<Answer> {
    let ask = || ask_once(server, name, limit / 2);
    ask().or_else(|_| ask()).await
}

async fn ask_once(server: SocketAddr, name: &str, limit: Duration) -> io::Result<Answer> {
    let asked = async {
        let mut answer = Answer { addresses: BTreeSet::new(), code: RCODE::NoError };
        for kind in [TYPE::A, TYPE::AAAA] {
            exchange(server, name, kind, &mut answer).await?;
        }
        Ok(answer)
    };
    timeout(limit, asked).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn exchange(
    server: SocketAddr,
    name: &str,
    kind: TYPE,
    answer: &mut Answer,
) -> io::Result<()> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    let id = fastrand::u16(..);
    socket.send(&query(id, name, kind).map_err(io::Error::other)?).await?;
    let mut said = [0; LONGEST];
    let length = socket.recv(&mut said).await?;
    take(id, said.get(..length).unwrap_or_default(), answer)
}

/// A question for records of one type.
fn query(id: u16, name: &str, kind: TYPE) -> simple_dns::Result<Vec<u8>> {
    let name = Name::new(name.trim_end_matches('.'))?;
    let mut query = Packet::new_query(id);
    query.set_flags(PacketFlag::RECURSION_DESIRED);
    let (qtype, qclass) = (QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN));
    query.questions.push(Question::new(name, qtype, qclass, false));
    query.build_bytes_vec()
}

/// Adds what a message says.
fn take(id: u16, message: &[u8], answer: &mut Answer) -> io::Result<()> {
    let said = Packet::parse(message).map_err(io::Error::other)?;
    if said.id() != id || !said.has_flags(PacketFlag::RESPONSE) {
        return Err(io::Error::other("it is no answer to this question"));
    }
    if said.rcode() != RCODE::NoError && matches!(answer.code, RCODE::NoError | RCODE::NameError) {
        answer.code = said.rcode();
    }
    answer.addresses.extend(said.answers.iter().filter_map(|record| match &record.rdata {
        RData::A(found) => Some(IpAddr::from(Ipv4Addr::from(found.address))),
        RData::AAAA(found) => Some(Ipv6Addr::from(found.address).into()),
        _ => None,
    }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use simple_dns::{ResourceRecord, rdata::A};

    use super::*;
    use crate::program;

    const LIMIT: Duration = Duration::from_millis(500);

    /// What is made of a server that answers each question with this code and number of records.
    fn outcome(code: RCODE, records: usize) -> Outcome {
        program::block_on(async move {
            let socket = UdpSocket::bind("127.0.0.1:0").await?;
            let server = socket.local_addr()?;
            let serve = async {
                let mut question = [0; LONGEST];
                while let Ok((length, from)) = socket.recv_from(&mut question).await {
                    let mut answer = Packet::parse(&question[..length]).unwrap().into_reply();
                    let name = answer.questions[0].qname.clone();
                    let address = RData::A(A { address: 1 });
                    let record = ResourceRecord::new(name, CLASS::IN, 5, address);
                    answer.answers = vec![record; records];
                    *answer.rcode_mut() = code;
                    socket.send_to(&answer.build_bytes_vec().unwrap(), from).await.unwrap();
                }
            };
            tokio::select! {
                outcome = failure_at([server], "web.shop.svc.clusterset.local", LIMIT) => Ok(outcome),
                () = serve => panic!("no question"),
            }
        })
        .unwrap()
    }

    #[test]
    fn an_error_of_dns_is_no_missing_name() {
        assert_eq!(outcome(RCODE::NameError, 0), Outcome::Unresolved);
        assert_eq!(outcome(RCODE::ServerFailure, 0), Outcome::DnsFailed);
        assert_eq!(outcome(RCODE::Refused, 0), Outcome::DnsFailed);
        assert_eq!(outcome(RCODE::NoError, 0), Outcome::DnsEmpty);
        assert_eq!(outcome(RCODE::NoError, 1), Outcome::DnsSilent);
    }

    #[test]
    fn a_server_that_does_not_answer_is_silent() {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let server = silent.local_addr().unwrap();
        let asked = async { Ok(failure_at([server], "web.shop", LIMIT).await) };
        assert_eq!(program::block_on(asked).unwrap(), Outcome::DnsSilent);
        let none = async { Ok(failure_at([], "web.shop", LIMIT).await) };
        assert_eq!(program::block_on(none).unwrap(), Outcome::DnsSilent);
    }

    #[test]
    fn an_answer_is_one_to_this_question() {
        let query = query(0x1234, "a.bc.", TYPE::A).unwrap();
        let reply = Packet::parse(&query).unwrap().into_reply();
        assert_eq!(reply.questions[0].qname.to_string(), "a.bc");
        assert!(super::query(1, &"x".repeat(64), TYPE::A).is_err());
        let reply = reply.build_bytes_vec().unwrap();
        let mut answer = Answer { addresses: BTreeSet::new(), code: RCODE::NoError };
        let mut take = |id, message| take(id, message, &mut answer);
        assert!(take(0x1234, &reply).is_ok());
        assert!(take(0x1235, &reply).is_err(), "to another question");
        assert!(take(0x1234, &query).is_err(), "a question");
    }

    #[test]
    fn servers_are_addresses() {
        let text = "search a\n# nameserver 1.1.1.1\nnameserver 10.96.0.10\n nameserver fd00::a\nnameserver x\n";
        let found: Vec<_> = servers(text).map(|server| server.to_string()).collect();
        assert_eq!(found, ["10.96.0.10", "fd00::a"]);
    }
}
