//! Whether a peer is a cluster of the same clusterset, with the same VIP ranges and a version that fits.

use mcs_kube::reasons::Reason;

use super::condition;
use crate::core::{
    objects::{Membership, PeerCondition},
    peers::Peer,
};

/// The condition `Compatible` of a peer.
pub(super) fn compatible(peer: &Peer, own: &Membership) -> PeerCondition {
    let kind = "Compatible";
    let said = peer.view.lease().and_then(|lease| lease.membership.as_ref());
    let Some(said) = said else {
        let message = "the peer does not say its clusterset and version".to_owned();
        return condition(kind, Reason::Pending, message);
    };
    if let Some((reason, message)) = difference(said, own) {
        return condition(kind, reason, message);
    }
    let message = format!(
        "clusterset {} with VIPs of {}, version {}",
        said.clusterset, said.vip_ranges, said.software
    );
    condition(kind, Reason::Compatible, message)
}

/// The settings that differ between a peer and this cluster. Its services are imported nevertheless.
fn difference(peer: &Membership, own: &Membership) -> Option<(Reason, String)> {
    if peer.clusterset != own.clusterset {
        let message = format!(
            "its clusterset is {:?}, and that of this cluster is {:?}",
            peer.clusterset, own.clusterset
        );
        return Some((Reason::OtherClusterset, message));
    }
    if peer.vip_ranges != own.vip_ranges {
        let message = format!(
            "its VIPs are of {}, and those of this cluster of {}: new services have another address in each cluster",
            peer.vip_ranges, own.vip_ranges
        );
        return Some((Reason::OtherVipRanges, message));
    }
    let (theirs, ours) = (minor(&peer.software)?, minor(&own.software)?);
    (theirs.0 != ours.0 || theirs.1.abs_diff(ours.1) > 1).then(|| {
        let (peer, own) = (&peer.software, &own.software);
        let message = format!("its controller has version {peer}, and this one {own}");
        (Reason::VersionSkew, message)
    })
}

/// The first two numbers of a version.
fn minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_of_another_clusterset_is_named() {
        let of = |clusterset: &str, vip_ranges: &str, software: &str| Membership {
            clusterset: clusterset.to_owned(),
            vip_ranges: vip_ranges.to_owned(),
            software: software.to_owned(),
            ..Membership::default()
        };
        let own = of("shop", "241.0.0.0/8,fd00::/96", "0.3.1");
        let reason = |peer: &Membership| difference(peer, &own).map(|(reason, _)| reason);
        assert_eq!(reason(&own), None);
        assert_eq!(reason(&of("shop", "241.0.0.0/8,fd00::/96", "0.2.0")), None);
        assert_eq!(reason(&of("shop", "241.0.0.0/8,fd00::/96", "next")), None, "nobody can say");
        assert_eq!(
            reason(&of("bank", "241.0.0.0/8,fd01::/96", "0.3.1")),
            Some(Reason::OtherClusterset)
        );
        assert_eq!(
            reason(&of("shop", "242.0.0.0/8,fd00::/96", "0.3.1")),
            Some(Reason::OtherVipRanges)
        );
        for version in ["0.1.9", "0.5.0", "1.3.1"] {
            let peer = of("shop", "241.0.0.0/8,fd00::/96", version);
            assert_eq!(reason(&peer), Some(Reason::VersionSkew), "{version}");
        }
    }
}
