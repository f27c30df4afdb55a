//! Lists of the kernel, which count only if they are whole.

use std::io;

use futures_util::{Stream, StreamExt as _};
use rtnetlink::{
    Handle,
    packet_core::{NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload},
    packet_route::RouteNetlinkMessage,
};

use super::into_io;

/// How often an interrupted list is asked for again.
const ATTEMPTS: usize = 8;

/// What `take` makes of each object that the kernel lists in answer to a request.
///
/// The kernel sends a long list in several messages. It marks a list whose objects changed meanwhile (`NLM_F_DUMP_INTR`), and
/// such a list may lack objects that nobody touched; then this asks again. Lists of qdiscs and, in Linux 6.6 to 6.8, of
/// devices lack the mark: what is absent from one of those need not be absent.
pub(super) async fn list<T>(
    handle: &Handle,
    request: RouteNetlinkMessage,
    take: impl Fn(RouteNetlinkMessage) -> Option<T>,
) -> io::Result<Vec<T>> {
    let mut attempt = 1;
    loop {
        let mut message = NetlinkMessage::from(request.clone());
        message.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        let answers = handle.clone().request(message).map_err(into_io)?;
        match whole_list(answers, &take).await {
            Err(error) if error.kind() == io::ErrorKind::Interrupted && attempt < ATTEMPTS => {
                attempt += 1;
            }
            result => return result,
        }
    }
}

/// Reads up to the end in any case: the kernel refuses another list while one is under way.
async fn whole_list<T>(
    mut answers: impl Stream<Item = NetlinkMessage<RouteNetlinkMessage>> + Unpin,
    take: impl Fn(RouteNetlinkMessage) -> Option<T>,
) -> io::Result<Vec<T>> {
    let (mut all, mut flags) = (Vec::new(), 0);
    while let Some(answer) = answers.next().await {
        flags |= answer.header.flags;
        match answer.payload {
            NetlinkPayload::InnerMessage(message) => all.extend(take(message)),
            NetlinkPayload::Done(done) => {
                return ended(done.code).and_then(|()| uninterrupted(flags)).map(|()| all);
            }
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            NetlinkPayload::Overrun(_) => return Err(io::Error::from_raw_os_error(libc::ENOBUFS)),
            _ => {}
        }
    }
    // The socket has broken before the end of the list.
    Err(io::ErrorKind::ConnectionReset.into())
}

/// Fails for the flags of a message of an interrupted list.
pub(super) fn uninterrupted(flags: u16) -> io::Result<()> {
    if flags & NLM_F_DUMP_INTR == 0 {
        return Ok(());
    }
    let text = "the kernel's list changed while it was read";
    Err(io::Error::new(io::ErrorKind::Interrupted, text))
}

/// The end of a list: the kernel ends one that it cannot finish with an error (`netlink_dump_done`,
/// `net/netlink/af_netlink.c`).
pub(super) fn ended(code: i32) -> io::Result<()> {
    if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use rtnetlink::{
        packet_core::{DoneMessage, NetlinkHeader},
        packet_route::tc::TcMessage,
    };

    use super::*;

    type Message = NetlinkMessage<RouteNetlinkMessage>;

    fn item(flags: u16) -> Message {
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        let message = RouteNetlinkMessage::NewQueueDiscipline(TcMessage::default());
        NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message))
    }

    fn done(code: i32, flags: u16) -> Message {
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        let mut done = DoneMessage::default();
        done.code = code;
        NetlinkMessage::new(header, NetlinkPayload::Done(done))
    }

    #[tokio::test]
    async fn a_list_counts_if_its_end_says_so() {
        const INTERRUPTED: u16 = NLM_F_DUMP_INTR;
        let cases = [
            (vec![item(0), item(0), done(0, 0)], Ok(2)),
            (vec![done(0, 0)], Ok(0)),
            (vec![item(0), item(INTERRUPTED), done(0, 0)], Err(io::ErrorKind::Interrupted)),
            (vec![item(0), done(0, INTERRUPTED)], Err(io::ErrorKind::Interrupted)),
            (vec![item(0), done(-libc::ENOMEM, 0)], Err(io::ErrorKind::OutOfMemory)),
            (vec![item(0)], Err(io::ErrorKind::ConnectionReset)),
        ];
        for (number, (answers, expected)) in cases.into_iter().enumerate() {
            let listed = whole_list(stream::iter(answers), Some).await;
            let listed = listed.map(|all| all.len()).map_err(|error| error.kind());
            assert_eq!(listed, expected, "case {number}");
        }
    }
}
