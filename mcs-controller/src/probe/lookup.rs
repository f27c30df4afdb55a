//! Why a name has no address: the system says the same of an error and of silence, so the DNS servers are asked themselves.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use tokio::{net::UdpSocket, time::timeout};

use super::Outcome;

const RESOLV_CONF: &str = "/etc/resolv.conf";
const PORT: u16 = 53;
/// The types of questions: A and AAAA.
const KINDS: [u16; 2] = [1, 28];
const NO_ERROR: u8 = 0;
const NXDOMAIN: u8 = 3;

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
            let answers = [ask(server, name, KINDS[0]).await?, ask(server, name, KINDS[1]).await?];
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
    /// The RCODE.
    code: u8,
    /// Whether it has records.
    has_records: bool,
}

/// By the answers for both families.
fn judged(answers: [Answer; 2]) -> Outcome {
    let is_error = |answer: &Answer| ![NO_ERROR, NXDOMAIN].contains(&answer.code);
    if answers.iter().any(is_error) {
        Outcome::DnsFailed
    } else if answers.iter().any(|answer| answer.has_records) {
        // It has answered this question, and the system's came to nothing in time.
        Outcome::DnsSilent
    } else if answers.iter().any(|answer| answer.code == NXDOMAIN) {
        Outcome::Unresolved
    } else {
        Outcome::DnsEmpty
    }
}

/// `None`: no sound answer.
async fn ask(server: SocketAddr, name: &str, kind: u16) -> Option<Answer> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await.ok()?;
    socket.connect(server).await.ok()?;
    let query = query(fastrand::u16(..), name, kind)?;
    socket.send(&query).await.ok()?;
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer).await.ok()?;
    read(&query, answer.get(..length)?)
}

/// A question for records of one type. `None`: the name cannot be asked for.
fn query(id: u16, name: &str, kind: u16) -> Option<Vec<u8>> {
    // One question, and recursion is desired.
    let mut query = [id, 0x0100, 1, 0, 0, 0].map(u16::to_be_bytes).concat();
    for label in name.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..64).contains(length))?;
        query.push(length);
        query.extend(label.as_bytes());
    }
    query.push(0);
    query.extend(kind.to_be_bytes());
    // The class IN.
    query.extend(1_u16.to_be_bytes());
    Some(query)
}

fn read(query: &[u8], answer: &[u8]) -> Option<Answer> {
    let [id @ .., flags, code, _, _, records, more, _, _, _, _] = answer.get(..12)? else {
        return None;
    };
    let is_answer = query.get(..2) == Some(id) && flags & 0x80 != 0;
    is_answer.then(|| Answer { code: code & 0x0f, has_records: (*records, *more) != (0, 0) })
}

#[cfg(test)]
mod tests {
    use mcs_kube::program;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(500);

    /// What is made of a server that answers each question with this code and number of records.
    fn outcome(code: u8, records: u8) -> Outcome {
        program::block_on(async move {
            let socket = UdpSocket::bind("127.0.0.1:0").await?;
            let server = socket.local_addr()?;
            let serve = async {
                let mut question = [0; 512];
                while let Ok((length, from)) = socket.recv_from(&mut question).await {
                    let mut answer = question[..length].to_vec();
                    (answer[2], answer[3], answer[7]) = (0x81, 0x80 | code, records);
                    socket.send_to(&answer, from).await.unwrap();
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
        assert_eq!(outcome(NXDOMAIN, 0), Outcome::Unresolved);
        assert_eq!(outcome(2, 0), Outcome::DnsFailed, "SERVFAIL");
        assert_eq!(outcome(5, 0), Outcome::DnsFailed, "REFUSED");
        assert_eq!(outcome(NO_ERROR, 0), Outcome::DnsEmpty);
        assert_eq!(outcome(NO_ERROR, 1), Outcome::DnsSilent);
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
    fn a_query_has_the_labels_of_the_name() {
        let query = query(0x1234, "a.bc.", 1).unwrap();
        assert_eq!(query[..6], [0x12, 0x34, 1, 0, 0, 1]);
        assert_eq!(query[12..], *b"\x01a\x02bc\x00\x00\x01\x00\x01");
        assert!(super::query(1, "a..b", 1).is_none());
        assert!(super::query(1, &"x".repeat(64), 1).is_none());
        assert!(read(&query, b"\x12\x35\x81\x80\0\0\0\0\0\0\0\0").is_none(), "another question");
        let found = servers("search a\nnameserver 10.96.0.10\n nameserver fd00::a\nnameserver x\n");
        assert_eq!(found.len(), 2);
    }
}
