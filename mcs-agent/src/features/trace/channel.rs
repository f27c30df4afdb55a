//! The socket between an agent and `mcs-agent trace`. The agent sends the ring buffer, or the reason why there is none.
//! Either side ends the trace by closing the socket.

use std::{
    fs::{self, File, Permissions},
    io::{self, IoSlice, IoSliceMut, Read as _},
    mem::MaybeUninit,
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::fs::PermissionsExt as _,
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::net;

/// How long an agent may take to load and attach programs.
const PATIENCE: Duration = Duration::from_mins(1);
/// Bytes of the longest answer.
const ANSWER: usize = 1024;

/// The agent's end of the socket.
pub(crate) struct Listener(net::UnixListener);

impl Listener {
    /// The socket, in the agent's run directory.
    pub(crate) const NAME: &str = "trace";

    /// Listens in the run directory, and removes the socket of an earlier agent.
    pub(crate) fn bind(directory: &Path) -> io::Result<Self> {
        let (path, _directory) = path_in(directory)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = net::UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        Ok(Self(listener))
    }

    /// Waits for the next client.
    pub(crate) async fn accept(&self) -> io::Result<Client> {
        let (stream, _) = self.0.accept().await?;
        let pid = stream.peer_cred()?.pid();
        Ok(Client { stream, pid })
    }
}

/// The address of the socket through an open directory. It is short: an address has room for 107 bytes.
fn path_in(directory: &Path) -> io::Result<(PathBuf, File)> {
    let open = File::open(directory)?;
    Ok((format!("/proc/self/fd/{}/{}", open.as_raw_fd(), Listener::NAME).into(), open))
}

/// A process that traces.
pub(crate) struct Client {
    stream: net::UnixStream,
    /// Its id, if it is in this PID namespace.
    pub(crate) pid: Option<i32>,
}

impl Client {
    /// Hands over the maps.
    pub(crate) fn give(&self, maps: &[OwnedFd]) -> io::Result<()> {
        let maps: Vec<_> = maps.iter().map(OwnedFd::as_fd).collect();
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut message = SendAncillaryBuffer::new(&mut room);
        if !message.push(SendAncillaryMessage::ScmRights(&maps)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        sendmsg(&self.stream, &[IoSlice::new(b".")], &mut message, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Sends the reason why the trace ends. The client may have ended.
    pub(crate) fn dismiss(self, why: &str) {
        let mut end = why.len().min(ANSWER);
        while !why.is_char_boundary(end) {
            end -= 1;
        }
        let _ = self.stream.try_write(&why.as_bytes()[..end]);
    }

    /// Waits until the client has closed the socket.
    pub(crate) async fn ended(&self) {
        loop {
            if self.stream.readable().await.is_err() {
                return;
            }
            match self.stream.try_read(&mut [0; 16]) {
                Ok(0) => return,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
                // A client has nothing to say.
                _ => {}
            }
        }
    }
}

/// The end of a client.
pub(crate) struct Channel(UnixStream);

impl Channel {
    /// Asks the agent of a run directory for its events.
    pub(crate) fn open(directory: &Path) -> io::Result<(Self, [OwnedFd; 2])> {
        let (path, _directory) = path_in(directory)?;
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut text = [0; ANSWER];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut message = RecvAncillaryBuffer::new(&mut room);
        let mut into = [IoSliceMut::new(&mut text)];
        let read = recvmsg(&stream, &mut into, &mut message, RecvFlags::CMSG_CLOEXEC)?;
        let maps: Vec<OwnedFd> = message
            .drain()
            .filter_map(|one| match one {
                RecvAncillaryMessage::ScmRights(maps) => Some(maps),
                _ => None,
            })
            .flatten()
            .collect();
        let maps = maps.try_into().map_err(|_| said(&text[..read.bytes]))?;
        stream.set_nonblocking(true)?;
        Ok((Self(stream), maps))
    }

    /// Why the agent has ended the trace; `None` while it goes on.
    pub(crate) fn ended(&mut self) -> Option<io::Error> {
        let mut text = [0; ANSWER];
        match self.0.read(&mut text) {
            Ok(read) => Some(said(&text[..read])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => Some(error),
        }
    }
}

fn said(text: &[u8]) -> io::Error {
    if text.is_empty() {
        return io::Error::other("the agent has ended");
    }
    io::Error::other(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn an_agent_hands_over_two_descriptors_or_a_reason() {
        let directory = tempfile::tempdir().unwrap();
        // Longer than an address may be.
        let directory = directory.path().join("x".repeat(120));
        fs::create_dir(&directory).unwrap();
        let listener = Listener::bind(&directory).unwrap();
        let devices = || ["/dev/null", "/dev/zero"].map(|path| File::open(path).unwrap().into());
        let asked = |directory: PathBuf| thread::spawn(move || Channel::open(&directory));
        let asking = asked(directory.clone());
        let client = listener.accept().await.unwrap();
        client.give(&devices()).unwrap();
        let (mut channel, [_, zero]) = asking.join().unwrap().unwrap();
        let mut byte = [1];
        File::from(zero).read_exact(&mut byte).unwrap();
        assert_eq!(byte, [0]);
        assert!(channel.ended().is_none());
        client.dismiss("because");
        assert_eq!(channel.ended().unwrap().to_string(), "because");
        let asking = asked(directory.clone());
        listener.accept().await.unwrap().dismiss("no");
        assert_eq!(asking.join().unwrap().err().unwrap().to_string(), "no");
        let asking = asked(directory);
        let client = listener.accept().await.unwrap();
        client.give(&devices()).unwrap();
        drop(asking.join().unwrap().unwrap());
        client.ended().await;
    }
}
