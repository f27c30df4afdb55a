//! Counters of nftables.

/// The packets that each counter of a listing has counted, in order.
pub fn counted(listing: &str) -> Vec<u64> {
    let counts = listing.split("counter packets ").skip(1);
    counts.filter_map(|rest| rest.split(' ').next()?.parse().ok()).collect()
}
