//! The wire between nodes, where frames to addresses are counted.

use mcs_tests::nft;

use crate::prelude::*;

const TABLE: &str = "bridge mcs-wire";
/// Addresses that nobody has. Packets to them leave a node by its default route.
const NOBODY: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 253, 78, 1)), 9),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0xfdfd, 0x78, 0, 0, 0, 0, 0, 1)), 9),
];

/// Counts until this is dropped.
pub(crate) struct Wire {
    netns: Namespace,
    /// How many addresses are watched.
    watched: usize,
}

impl Wire {
    /// Begins to count the frames to these addresses.
    pub(crate) fn watch(addresses: &[IpAddr]) -> Result<Self> {
        let netns = Namespace::open(&ClusterSet::CNIS.wan())?;
        let nobody = NOBODY.map(|address| address.ip());
        let rule = |address: &IpAddr| {
            let family = if address.is_ipv4() { "ip" } else { "ip6" };
            format!("{family} daddr {address} counter\n")
        };
        let rules: String = addresses.iter().chain(&nobody).map(rule).collect();
        let text = format!(
            "table {TABLE} {{\nchain frames {{\ntype filter hook prerouting priority 0;\n{rules}}}\n}}\n"
        );
        process::run(netns.command("nft").args(["--file", "-"]), &text)?;
        Ok(Self { netns, watched: addresses.len() })
    }

    /// How many frames to the addresses there were.
    pub(crate) fn frames(&self) -> Result<u64> {
        Ok(self.counts()?.into_iter().take(self.watched).sum())
    }

    /// Fails unless what each of these networks sends to somebody outside is counted.
    pub(crate) fn is_seen_by(&self, senders: &[Namespace]) -> Result {
        let others = || anyhow::Ok(self.counts()?.split_off(self.watched));
        for netns in senders {
            let before = others()?;
            wait::until(&format!("frames of {}", netns.name()), || {
                netns.run(|| {
                    for to in NOBODY {
                        let family = if to.is_ipv4() { Family::V4 } else { Family::V6 };
                        client::udp(family)?.send_to(b"anybody there", to)?;
                    }
                    anyhow::Ok(())
                })??;
                let after = others()?;
                let both = after.iter().zip(&before).all(|(after, before)| after > before);
                ensure!(both, "{after:?} after {before:?}");
                Ok(())
            })?;
        }
        Ok(())
    }

    fn counts(&self) -> Result<Vec<u64>> {
        let listing = self.netns.output("nft", &["list table", TABLE])?;
        Ok(nft::counted(&listing))
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if let Err(error) = self.netns.output("nft", &["delete table", TABLE]) {
            eprintln!("cannot stop counting frames: {error:#}");
        }
    }
}
