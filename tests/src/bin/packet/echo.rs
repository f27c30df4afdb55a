//! Echo requests (ping), and other ICMP messages that are no errors.

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    each(suite, "echo: a VIP answers", answered);
    each(suite, "echo: requests that are cut short or in pieces", broken);
    each(suite, "echo: other messages to a VIP", others);
    each(suite, "echo: to a pod", to_pod);
}

fn furnish(fixture: &mut Fixture) -> Result {
    fixture.service_of(Protocol::Tcp, 1, &[1])?;
    // No flow at all, and no port.
    fixture.vip(fixture.family.vip(2))
}

fn answered(fixture: &mut Fixture) -> Result {
    furnish(fixture)?;
    let (request, reply) = fixture.family.echo();
    let client = fixture.family.client(1).ip();
    for vip in [fixture.family.vip(1).ip(), fixture.family.vip(2).ip()] {
        for payload in [&[][..], b"a", b"odd", &[0x61; 56], &[0xff; 1400]] {
            let message = |src, dst, kind| {
                let packet = Packet::icmp(src, dst, (kind, 0, [0x12, 0x34, 0, 7]), payload);
                match Packet::family_of(dst) {
                    Family::V4 => vec![packet.clone(), packet.options(&[7, 7, 4, 0, 0, 0, 0, 0])],
                    Family::V6 => {
                        let chain = [Extension::HopByHop, Extension::Destination];
                        vec![packet.clone(), packet.extensions(&chain)]
                    }
                }
            };
            let replies = message(vip, client, reply);
            for (ping, pong) in message(client, vip, request).iter().zip(&replies) {
                let expect = Expect::back(pong).counts(&[Counter::EchoAnswered]);
                fixture
                    .expect(Hook::FromPod, ping, expect)
                    .with_context(|| format!("{} bytes", payload.len()))?;
                fixture.ignores(Hook::ToPod, pong)?;
            }
        }
    }
    Ok(())
}

fn broken(fixture: &mut Fixture) -> Result {
    furnish(fixture)?;
    let (request, _) = fixture.family.echo();
    let (client, vip) = (fixture.family.client(1).ip(), fixture.family.vip(1).ip());
    for length in 0..8 {
        let bytes = &[request, 0, 0, 0, 0, 0, 0, 0][..length];
        let ping = Packet::other(client, vip, fixture.family.icmp(), bytes);
        fixture
            .drops(Hook::FromPod, ping, Counter::PacketDroppedMalformed)
            .with_context(|| format!("{length} bytes"))?;
    }
    let ping = Packet::icmp(client, vip, (request, 0, [0, 1, 0, 1]), &[1; 100]);
    let pieces = ping.pieces(&[56]);
    let reasons = [Counter::PacketDroppedIcmp, Counter::PacketDroppedFragment];
    for (piece, reason) in pieces.iter().zip(reasons) {
        fixture.drops(Hook::FromPod, piece, reason)?;
    }
    Ok(())
}

fn others(fixture: &mut Fixture) -> Result {
    furnish(fixture)?;
    let (client, vip) = (fixture.family.client(1).ip(), fixture.family.vip(1).ip());
    // Replies, redirects, discovery, timestamps, and unassigned types. errors.rs has the errors.
    let kinds: &[u8] = match fixture.family {
        Family::V4 => &[0, 5, 9, 10, 13, 14, 15, 16, 17, 18, 30, 40, 42, 128, 255],
        Family::V6 => &[0, 5, 100, 127, 129, 130, 133, 134, 135, 136, 137, 143, 160, 255],
    };
    for kind in kinds {
        let message = Packet::icmp(client, vip, (*kind, 0, [0, 1, 0, 1]), &[0; 24]);
        fixture
            .drops(Hook::FromPod, message, Counter::PacketDroppedIcmp)
            .with_context(|| format!("type {kind}"))?;
    }
    Ok(())
}

fn to_pod(fixture: &mut Fixture) -> Result {
    furnish(fixture)?;
    fixture.set_flows_used(FlowsUsed::YES)?;
    let (request, reply) = fixture.family.echo();
    let (client, pod) = (fixture.family.client(1).ip(), fixture.family.pod(1).ip());
    for kind in [request, reply] {
        let message = Packet::icmp(pod, client, (kind, 0, [0, 1, 0, 1]), b"ping");
        fixture.ignores(Hook::ToPod, message)?;
    }
    Ok(())
}
