//! Captures the packets of an interface with tcpdump.

use etherparse::{LaxIpSlice, ip_number};
use pcap_parser::{Linktype, PcapCapture};
use rustix::process::{Pid, kill_process};

use crate::prelude::*;

/// Bytes of each packet that are kept: headers, and those that an ICMP error quotes.
const SNAPLEN: &str = "160";
/// For bursts of bulk traffic.
const BUFFER_KIB: &str = "16384";

/// The type of an ICMPv6 redirect.
const REDIRECT: u8 = 137;

/// A packet as its headers say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The source.
    pub src: IpAddr,
    /// The destination.
    pub dst: IpAddr,
    /// An IP protocol number.
    pub protocol: u8,
    /// Whether it is a fragment.
    pub fragment: bool,
    /// Bytes of the frame, as they were on the interface.
    pub length: u32,
    /// What it says if it is an ICMP error.
    pub error: Option<IcmpError>,
}

/// An ICMP or ICMPv6 error, or a redirect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpError {
    /// The type.
    pub kind: u8,
    /// The code.
    pub code: u8,
    /// The source of the packet that it is about; where an ICMPv6 redirect leads.
    pub src: IpAddr,
    /// The destination of the packet that it is about, or that an ICMPv6 redirect is about.
    pub dst: IpAddr,
}

impl IcmpError {
    /// Whether it says that a packet was too large for a link.
    pub const fn is_too_big(&self) -> bool {
        match self.dst {
            IpAddr::V4(_) => self.kind == 3 && self.code == 4,
            IpAddr::V6(_) => self.kind == 2,
        }
    }
}

impl Packet {
    /// Every address in the packet and in what it quotes.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let quoted = self.error.into_iter().flat_map(|error| [error.src, error.dst]);
        [self.src, self.dst].into_iter().chain(quoted)
    }
}

/// A tcpdump(8) that runs until [`Capture::finish`] or until this is dropped.
#[derive(Debug)]
pub struct Capture {
    process: Child,
    file: PathBuf,
    log: PathBuf,
}

impl Capture {
    /// Begins to watch `device`. `role` tells it from others of the run.
    pub fn start(
        run: &Run,
        role: &str,
        netns: &Namespace,
        device: &str,
        filter: &str,
    ) -> Result<Self> {
        let file = run.directory().join(format!("{role}.pcap"));
        let log = run.directory().join(format!("{role}.tcpdump"));
        let mut command = netns.command("tcpdump");
        command.args(["-n", "-U", "--immediate-mode", "-Z", "root"]);
        command.args(["-s", SNAPLEN, "-B", BUFFER_KIB, "-i", device, "-w"]).arg(&file);
        command.arg(filter).stdin(Stdio::null()).stdout(Stdio::null());
        let process = command.stderr(File::create(&log)?).spawn().context("cannot run tcpdump")?;
        let capture = Self { process, file, log };
        wait::until("tcpdump to watch", || {
            let said = fs::read_to_string(&capture.log)?;
            ensure!(said.contains("listening on"), "{said}");
            Ok(())
        })?;
        Ok(capture)
    }

    /// Ends it, and returns the IP packets it has seen, all of them.
    pub fn finish(mut self) -> Result<Vec<Packet>> {
        wait::until("tcpdump to write what came", || {
            let [written, came, lost] = self.counts()?;
            ensure!(written >= came, "it has written {written} of {came} packets");
            ensure!(lost == 0, "{lost} packets are missing");
            Ok(())
        })?;
        self.signal(Signal::INT)?;
        self.process.wait()?;
        read(&fs::read(&self.file)?)
    }

    /// How many packets it has written, how many came, and how many were lost.
    fn counts(&self) -> Result<[u64; 3]> {
        let before = fs::metadata(&self.log)?.len();
        self.signal(Signal::USR1)?;
        let said = wait::until("tcpdump to count", || {
            let said = fs::read_to_string(&self.log)?;
            let line = said.get(usize::try_from(before)?..).unwrap_or_default();
            ensure!(line.ends_with('\n'), "it says {said}");
            Ok(line.to_owned())
        })?;
        let numbers = said.split_whitespace().filter_map(|word| word.parse().ok());
        let numbers: Vec<_> = numbers.collect();
        numbers.try_into().map_err(|_| anyhow::anyhow!("tcpdump counts so: {said}"))
    }

    fn signal(&self, signal: Signal) -> Result {
        Ok(kill_process(Pid::from_child(&self.process), signal)?)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn read(file: &[u8]) -> Result<Vec<Packet>> {
    let capture = PcapCapture::from_file(file)
        .map_err(|error| anyhow::anyhow!("tcpdump has written no capture: {error:?}"))?;
    let mut packets = Vec::new();
    for block in &capture.blocks {
        let kept = usize::try_from(block.caplen)?;
        let frame = block.data.get(..kept).context("a packet is cut short")?;
        let ip = match capture.header.network {
            Linktype::ETHERNET => match frame.get(12..14) {
                Some([0x08, 0x00] | [0x86, 0xdd]) => &frame[14..],
                _ => continue,
            },
            Linktype::RAW => frame,
            other => anyhow::bail!("a capture of link type {other:?}"),
        };
        packets.push(packet(ip, block.origlen)?);
    }
    Ok(packets)
}

fn packet(bytes: &[u8], length: u32) -> Result<Packet> {
    let (ip, _) = LaxIpSlice::from_slice(bytes)?;
    let payload = ip.payload();
    let (protocol, fragment) = (payload.ip_number, payload.fragmented);
    let is_error = match (protocol, payload.payload.first()) {
        _ if fragment => false,
        (ip_number::ICMP, Some(kind)) => matches!(kind, 3 | 5 | 11 | 12),
        (ip_number::IPV6_ICMP, Some(kind)) => *kind < 128 || *kind == REDIRECT,
        _ => false,
    };
    let error = if is_error { Some(error(payload.payload)?) } else { None };
    let (src, dst) = (ip.source_addr(), ip.destination_addr());
    Ok(Packet { src, dst, protocol: protocol.0, fragment, length, error })
}

fn error(icmp: &[u8]) -> Result<IcmpError> {
    let [kind, code, _, _, _, _, _, _, quoted @ ..] = icmp else {
        anyhow::bail!("an ICMP error that is cut short");
    };
    let (kind, code) = (*kind, *code);
    if kind == REDIRECT
        && let Some((target, rest)) = quoted.split_first_chunk::<16>()
        && let Some(dst) = rest.first_chunk::<16>()
    {
        return Ok(IcmpError { kind, code, src: (*target).into(), dst: (*dst).into() });
    }
    let (quoted, _) =
        LaxIpSlice::from_slice(quoted).context("an ICMP error that quotes nothing")?;
    let (src, dst) = (quoted.source_addr(), quoted.destination_addr());
    Ok(IcmpError { kind, code, src, dst })
}
