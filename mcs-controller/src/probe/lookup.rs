//! Why a name has no address: the system says the same of an error and of silence, so the DNS servers are asked themselves.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};
use tokio::{net::UdpSocket, time::timeout};

use super::Outcome;

const RESOLV_CONF: &str = "/etc/resolv.conf";
const PORT: u16 = 53;
/// The most bytes of an answer to a question without EDNS (RFC 1035, 4.2.1).
const LONGEST: usize = 512;

/// Why the system has no address for a name. Search domains do not count: the name is whole.
pub(super) async fn failure(name: &str, limit: Duration) -> Outcome {
    let servers = servers(&fs::read_to_string(RESOLV_CONF).unwrap_or_default());
    let servers = servers.into_iter().map(|ip| SocketAddr::new(ip, PORT));
    failure_at(servers, name, limit).await
}

/// What the first of these servers that answers says.
async fn failure_at(
    servers: impl IntoIterator<Item = SocketAddr>,
    name: &str,
    limit: Duration,
) -> Outcome {
    for server in servers {
        let asked = async {
            let answers = [ask(server, name, TYPE::A).await?, ask(server, name, TYPE::AAAA).await?];
            Some(judged(answers))
        };
        if let Ok(Some(outcome)) = timeout(limit, asked).await {
            return outcome;
        }
    }
    Outcome::DnsSilent
}

/// The addresses of the servers.
fn servers(resolv_conf: &str) -> Vec<IpAddr> {
    let servers = resolv_conf.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    servers.filter_map(|server| server.trim().parse().ok()).collect()
}

/// A server's answer to one question.
#[derive(Clone, Copy)]
struct Answer {
    code: RCODE,
    /// Whether it has records.
    has_records: bool,
}

/// By the answers for both families.
fn judged(answers: [Answer; 2]) -> Outcome {
    let is_error = |answer: &Answer| ![RCODE::NoError, RCODE::NameError].contains(&answer.code);
    if answers.iter().any(is_error) {
        Outcome::DnsFailed
    } else if answers.iter().any(|answer| answer.has_records) {
        // It has answered this question, and the system's came to nothing in time.
        Outcome::DnsSilent
    } else if answers.iter().any(|answer| answer.code == RCODE::NameError) {
        Outcome::Unresolved
    } else {
        Outcome::DnsEmpty
    }
}

/// `None`: no sound answer.
async fn ask(server: SocketAddr, name: &str, kind: TYPE) -> Option<Answer> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await.ok()?;
    socket.connect(server).await.ok()?;
    let id = fastrand::u16(..);
    socket.send(&query(id, name, kind)?).await.ok()?;
    let mut answer = [0; LONGEST];
    let length = socket.recv(&mut answer).await.ok()?;
    read(id, answer.get(..length)?)
}

/// A question for records of one type. `None`: the name cannot be asked for.
fn query(id: u16, name: &str, kind: TYPE) -> Option<Vec<u8>> {
    let name = Name::new(name.trim_end_matches('.')).ok()?;
    let mut query = Packet::new_query(id);
    query.set_flags(PacketFlag::RECURSION_DESIRED);
    let (qtype, qclass) = (QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN));
    query.questions.push(Question::new(name, qtype, qclass, false));
    query.build_bytes_vec().ok()
}

fn read(id: u16, answer: &[u8]) -> Option<Answer> {
    let answer = Packet::parse(answer).ok()?;
    let is_answer = answer.id() == id && answer.has_flags(PacketFlag::RESPONSE);
    is_answer.then(|| Answer { code: answer.rcode(), has_records: !answer.answers.is_empty() })
}

#[cfg(test)]
mod tests {
    use mcs_kube::program;
    use simple_dns::{
        ResourceRecord,
        rdata::{A, RData},
    };

    use super::*;

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
        assert!(super::query(1, &"x".repeat(64), TYPE::A).is_none());
        let answer = reply.build_bytes_vec().unwrap();
        assert!(read(0x1234, &answer).is_some());
        assert!(read(0x1235, &answer).is_none(), "to another question");
        assert!(read(0x1234, &query).is_none(), "a question");
    }

    #[test]
    fn servers_are_addresses() {
        let found = servers("search a\nnameserver 10.96.0.10\n nameserver fd00::a\nnameserver x\n");
        assert_eq!(found.len(), 2);
    }
}
