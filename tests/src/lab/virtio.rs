//! Packets as a virtual machine and its host hand them over: behind a `struct virtio_net_hdr`.

use etherparse::{Ipv4HeaderSlice, LaxIpSlice, checksum::Sum16BitWords, ip_number};

use crate::prelude::*;

/// Bytes of `struct virtio_net_hdr` (`include/uapi/linux/virtio_net.h`).
const HEADER: usize = 10;
const NEEDS_CSUM: u8 = 1;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// The work that the sender has left to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// The sender has finished the packet.
    Finished,
    /// The device has to finish the checksum.
    Unfinished,
    /// The device has to cut the packet into segments, and finish their checksums.
    Uncut,
}

/// An IP packet, or another frame.
pub struct Frame<'a> {
    /// The work that is left to the device.
    pub mark: Mark,
    /// What the mark says of the checksum: where the sum begins, and where it is to be written.
    checksum: (usize, usize),
    bytes: &'a [u8],
    /// Where the IP header begins, if it is one.
    l3: Option<usize>,
}

impl<'a> Frame<'a> {
    /// Reads the header.
    pub fn parse(packet: &'a [u8], ethernet: bool) -> Result<Self> {
        let (header, bytes) = packet.split_at_checked(HEADER).context("no header")?;
        let word = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
        let mark = match (header[0] & NEEDS_CSUM, header[1]) {
            (0, 0) => Mark::Finished,
            (_, 0) => Mark::Unfinished,
            (0, gso) => bail!("segments of kind {gso} without a checksum to finish"),
            _ => Mark::Uncut,
        };
        let start = word(6);
        let l3 = if ethernet {
            let ip = matches!(bytes.get(12..ETHERNET), Some([0x08, 0x00] | [0x86, 0xdd]));
            ip.then_some(ETHERNET)
        } else {
            Some(0)
        };
        Ok(Self { mark, checksum: (start, start + word(8)), bytes, l3 })
    }

    /// Finishes the checksum as a device would, and fails if one is wrong then: that of an IPv4
    /// header, of TCP, UDP or ICMP, or of the IPv4 header which an ICMP error quotes.
    pub fn check(&self) -> Result {
        let Some(l3) = self.l3 else { return Ok(()) };
        let mut bytes = self.bytes.to_vec();
        if self.mark != Mark::Finished {
            finish(&mut bytes, self.checksum)?;
        }
        let bytes = &bytes[l3..];
        check_header(bytes)?;
        let (ip, _) = LaxIpSlice::from_slice(bytes)?;
        let payload = ip.payload();
        if payload.fragmented {
            return Ok(());
        }
        ensure!(!payload.incomplete, "shorter than its header says");
        let (data, protocol) = (payload.payload, payload.ip_number);
        let Some(at) = checksum_offset(protocol) else { return Ok(()) };
        check_payload(&ip, data, at)?;
        if protocol == ip_number::ICMP && matches!(data.first(), Some(3 | 5 | 11 | 12)) {
            check_header(data.get(8..).unwrap_or_default()).context("quoted")?;
        }
        Ok(())
    }
}

/// Writes the checksum of the bytes from `start` on to `field`. The old content of `field` is part of the sum.
fn finish(bytes: &mut [u8], (start, field): (usize, usize)) -> Result {
    let summed = bytes.get(start..).context("the sum begins behind the end")?;
    let checksum = Sum16BitWords::new().add_slice(summed).to_ones_complement_with_no_zero();
    let place = bytes.get_mut(field..field + 2).context("the checksum is behind the end")?;
    place.copy_from_slice(&checksum.to_ne_bytes());
    Ok(())
}

const fn checksum_offset(protocol: etherparse::IpNumber) -> Option<usize> {
    match protocol {
        ip_number::TCP => Some(16),
        ip_number::UDP => Some(6),
        ip_number::ICMP | ip_number::IPV6_ICMP => Some(2),
        _ => None,
    }
}

fn check_header(bytes: &[u8]) -> Result {
    if bytes.first().is_none_or(|first| first >> 4 != 4) {
        return Ok(());
    }
    let header = Ipv4HeaderSlice::from_slice(bytes)?;
    let (found, right) = (header.header_checksum(), header.to_header().calc_header_checksum());
    ensure!(found == right, "IPv4 header: checksum {found:04x} instead of {right:04x}");
    Ok(())
}

/// The sum over all must come out as nothing.
fn check_payload(ip: &LaxIpSlice<'_>, data: &[u8], at: usize) -> Result {
    let protocol = ip.payload_ip_number();
    let field = data.get(at..at + 2).context("no checksum")?;
    if protocol == ip_number::UDP && field == [0, 0] {
        ensure!(ip.source_addr().is_ipv4(), "UDP on IPv6 without a checksum");
        return Ok(());
    }
    let begun =
        if protocol == ip_number::ICMP { Sum16BitWords::new() } else { pseudo_header(ip, data) };
    let rest = begun.add_slice(data).ones_complement();
    ensure!(rest == 0, "{protocol:?}: the checksum is wrong by {rest:04x}");
    Ok(())
}

fn pseudo_header(ip: &LaxIpSlice<'_>, data: &[u8]) -> Sum16BitWords {
    let mut sum = Sum16BitWords::new();
    for address in [ip.source_addr(), ip.destination_addr()] {
        sum = match address {
            IpAddr::V4(v4) => sum.add_4bytes(v4.octets()),
            IpAddr::V6(v6) => sum.add_16bytes(v6.octets()),
        };
    }
    let [_, _, high, low] = u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes();
    sum.add_2bytes([high, low]).add_2bytes([0, ip.payload_ip_number().0])
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    const FIRST: [u8; 4] = [10, 1, 0, 1];
    const SECOND: [u8; 4] = [10, 1, 0, 2];

    fn tcp() -> Vec<u8> {
        let mut packet = vec![0; HEADER];
        let builder = PacketBuilder::ipv4(FIRST, SECOND, 64).tcp(1, 2, 3, 4);
        builder.write(&mut packet, b"hello").unwrap();
        packet
    }

    fn check(packet: &[u8]) -> Result {
        Frame::parse(packet, false)?.check()
    }

    #[test]
    fn a_finished_checksum_is_checked() {
        let mut packet = tcp();
        check(&packet).unwrap();
        *packet.last_mut().unwrap() ^= 1;
        assert!(check(&packet).unwrap_err().to_string().contains("wrong by"));
    }

    #[test]
    fn an_unfinished_checksum_is_that_of_the_pseudo_header() {
        let mut packet = tcp();
        packet[0] = NEEDS_CSUM;
        packet[6..8].copy_from_slice(&20_u16.to_ne_bytes());
        packet[8..10].copy_from_slice(&16_u16.to_ne_bytes());
        assert!(check(&packet).is_err());
        // 10.1 + 0.1 + 10.1 + 0.2 + length 25 + protocol 6.
        let field = HEADER + 20 + 16;
        packet[field..field + 2].copy_from_slice(&(0x0a01_u16 * 2 + 3 + 25 + 6).to_be_bytes());
        check(&packet).unwrap();
        // Another payload does not matter.
        *packet.last_mut().unwrap() ^= 1;
        check(&packet).unwrap();
    }

    #[test]
    fn the_header_that_an_error_quotes_is_checked() {
        let mut quoted = tcp().split_off(HEADER);
        quoted.truncate(28);
        let unreachable = etherparse::Icmpv4Type::DestinationUnreachable(
            etherparse::icmpv4::DestUnreachableHeader::Port,
        );
        let packet = |quoted: &[u8]| {
            let mut packet = vec![0; HEADER];
            let builder = PacketBuilder::ipv4(SECOND, FIRST, 64).icmpv4(unreachable.clone());
            builder.write(&mut packet, quoted).unwrap();
            packet
        };
        check(&packet(&quoted)).unwrap();
        quoted[15] ^= 1;
        let error = check(&packet(&quoted)).unwrap_err();
        assert!(format!("{error:#}").starts_with("quoted: IPv4 header"), "{error:#}");
    }
}
