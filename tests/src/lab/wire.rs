//! The link between a virtual machine and its host: two tap or tun devices, and a thread that
//! carries packets from one to the other as they are, with checksums to finish and segments to cut.

#![expect(unsafe_code, reason = "ioctl(2) of tap and tun devices")]

use std::{
    ffi::c_ulong,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::fs::OpenOptionsExt as _,
    },
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::write,
};

use crate::{
    prelude::*,
    virtio::{Frame, Mark},
};

/// Room for the largest packet.
const BUFFER: usize = 1 << 17;
/// Packets one way before the other way has its turn.
const BURST: usize = 64;

/// What packets begin with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An Ethernet header.
    Tap,
    /// The IP header.
    Tun,
}

/// How packets crossed a [`Wire`], and what was wrong with them.
#[derive(Clone, Default, Debug)]
pub struct Tally {
    /// How many came with a checksum to finish.
    pub unfinished: u64,
    /// How many of these were to be cut into segments, too.
    pub uncut: u64,
    /// How many were ready to be sent.
    pub finished: u64,
    /// Packets with a wrong checksum, and those that a device did not take.
    pub faults: Vec<String>,
}

/// Two devices and a thread. It ends, and the devices go, when this is dropped.
#[derive(Debug)]
pub struct Wire {
    tally: Arc<Mutex<Tally>>,
    stop: OwnedFd,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Wire {
    /// Makes `device` in the namespace of the host, and `eth0` in that of the machine. Both are
    /// down.
    pub fn lay(kind: Kind, host: &Namespace, device: &str, machine: &Namespace) -> Result<Self> {
        let near = open(kind, host, device)?;
        let far = open(kind, machine, "eth0")?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let tally = Arc::<Mutex<Tally>>::default();
        let carrier =
            Carrier { kind, ends: [near, far], stop: stop.try_clone()?, tally: Arc::clone(&tally) };
        let thread = Some(thread::spawn(move || carrier.carry()));
        Ok(Self { tally, stop, thread })
    }

    /// What has crossed so far.
    pub fn tally(&self) -> Tally {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let stopped = write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take()
            && stopped.is_ok()
            && let Ok(Err(error)) = thread.join()
        {
            eprintln!("a wire ended: {error}");
        }
    }
}

/// A device whose packets have a `struct virtio_net_hdr` before them.
fn open(kind: Kind, netns: &Namespace, device: &str) -> Result<File> {
    const TSO: u32 = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    // Since Linux 6.2.
    const USO: u32 = libc::TUN_F_USO4 | libc::TUN_F_USO6;
    let opened = netns.run(|| {
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")?;
        let mut request = request(kind, device)?;
        // SAFETY: the kernel reads and writes a `struct ifreq`.
        ok(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        leave_to(&file, TSO | USO).or_else(|_| leave_to(&file, TSO))?;
        io::Result::Ok(file)
    })?;
    opened.with_context(|| format!("cannot make {device} in {}", netns.name()))
}

/// Leaves this part of the work to the device.
fn leave_to(device: &File, offloads: u32) -> io::Result<()> {
    let offloads = c_ulong::from(offloads);
    // SAFETY: the argument is a number.
    ok(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD, offloads) })
}

fn ok(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn request(kind: Kind, device: &str) -> io::Result<libc::ifreq> {
    let kind = match kind {
        Kind::Tap => libc::IFF_TAP,
        Kind::Tun => libc::IFF_TUN,
    };
    let flags = kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    // SAFETY: the structure is made of integers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays a zero.
    let room = request.ifr_name.len() - 1;
    if device.len() > room {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name is too long"));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = i16::try_from(flags).map_err(io::Error::other)?;
    Ok(request)
}

struct Carrier {
    kind: Kind,
    ends: [File; 2],
    stop: OwnedFd,
    tally: Arc<Mutex<Tally>>,
}

impl Carrier {
    fn carry(&self) -> io::Result<()> {
        let [near, far] = &self.ends;
        let mut buffer = vec![0; BUFFER];
        loop {
            let mut fds = [
                PollFd::new(&self.stop, PollFlags::IN),
                PollFd::new(near, PollFlags::IN),
                PollFd::new(far, PollFlags::IN),
            ];
            poll(&mut fds, None)?;
            if !fds[0].revents().is_empty() {
                return Ok(());
            }
            self.pass(near, far, &mut buffer)?;
            self.pass(far, near, &mut buffer)?;
        }
    }

    fn pass(&self, mut from: &File, mut to: &File, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..BURST {
            let length = match from.read(buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // The device is down.
                Err(error) if error.raw_os_error() == Some(libc::EIO) => return Ok(()),
                Err(error) => return Err(error),
            };
            let packet = &buffer[..length];
            self.note(packet);
            if let Err(error) = to.write(packet)
                && error.raw_os_error() != Some(libc::EIO)
            {
                self.fault(format!("not taken, {error}: {:02x?}", &packet[..length.min(64)]));
            }
        }
        Ok(())
    }

    fn note(&self, packet: &[u8]) {
        let checked = Frame::parse(packet, self.kind == Kind::Tap).and_then(|frame| {
            let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
            match frame.mark {
                Mark::Finished => tally.finished += 1,
                Mark::Unfinished => tally.unfinished += 1,
                Mark::Uncut => tally.uncut += 1,
            }
            drop(tally);
            frame.check()
        });
        if let Err(fault) = checked {
            self.fault(format!("{fault}: {:02x?}", &packet[..packet.len().min(128)]));
        }
    }

    fn fault(&self, fault: String) {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).faults.push(fault);
    }
}
