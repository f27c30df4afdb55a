//! Whether a backend answers the connects of sockets.

use bytemuck::{Pod, Zeroable};

/// How many client network namespaces a backend's record has.
const CLIENTS: usize = 4;

/// Value of the hash map `health`, whose keys the agent sets. Times are nanoseconds of `CLOCK_MONOTONIC`; 0 is never.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct HealthRecord {
    /// When a connect was answered. The latest answer is at most [`HealthRecord::FRESH_NS`] younger.
    pub answered_ns: u64,
    /// How many SYNs of sockets were reset, or sent again since nothing answered.
    pub failed: u64,
    /// Unanswered connects. Each client has one place, so that no client alone displaces another.
    pub failures: [ClientFailures; CLIENTS],
}

/// The latest two unanswered connects of a network namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct ClientFailures {
    /// The namespace's cookie; 0 is a free place.
    pub netns_cookie: u64,
    /// The cookie of the latest connect's socket. A socket sends its SYN several times.
    pub socket_cookie: u64,
    /// When the latest connect failed.
    pub latest_ns: u64,
    /// When the connect before it failed.
    pub before_ns: u64,
}

const _: () = assert!(size_of::<HealthRecord>() == 16 + 32 * CLIENTS);
crate::pod!(HealthRecord);

impl HealthRecord {
    /// Answers within this time after one are not recorded: many CPUs would write one cache line.
    pub const FRESH_NS: u64 = 1 << 26;

    /// The place of a client: its own, or else the place with the oldest failure.
    #[inline(always)]
    #[must_use]
    pub const fn place_of(&self, netns_cookie: u64) -> usize {
        let (mut place, mut oldest, mut nth) = (0, u64::MAX, 0);
        while nth < CLIENTS {
            let one = &self.failures[nth];
            if one.netns_cookie == netns_cookie {
                return nth;
            }
            if one.latest_ns < oldest {
                (place, oldest) = (nth, one.latest_ns);
            }
            nth += 1;
        }
        place
    }
}

impl ClientFailures {
    /// With a failure of a client's socket. A socket fails once.
    #[inline(always)]
    #[must_use]
    pub const fn failed(&self, netns_cookie: u64, socket_cookie: u64, now_ns: u64) -> Self {
        let is_own = self.netns_cookie == netns_cookie;
        if is_own && self.socket_cookie == socket_cookie {
            return *self;
        }
        let before_ns = if is_own { self.latest_ns } else { 0 };
        Self { netns_cookie, socket_cookie, latest_ns: now_ns, before_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_displaces_no_other() {
        let mut record = HealthRecord::zeroed();
        let mut fail = |client, now| {
            let place = record.place_of(client);
            record.failures[place] = record.failures[place].failed(client, now, now);
        };
        fail(7, 1);
        (2..1000).for_each(|now| fail(8, now));
        let of = |netns_cookie, latest_ns, before_ns| ClientFailures {
            netns_cookie,
            socket_cookie: latest_ns,
            latest_ns,
            before_ns,
        };
        assert_eq!(record.failures[0], of(7, 1, 0));
        assert_eq!(record.failures[1], of(8, 999, 998));
        // The oldest client loses its place.
        for client in 9..12 {
            let place = record.place_of(client);
            record.failures[place] = record.failures[place].failed(client, client, 2000 + client);
        }
        assert_eq!(record.failures.map(|one| one.netns_cookie), [11, 8, 9, 10]);
        assert_eq!(record.failures[0].before_ns, 0, "that was another client's");
    }

    #[test]
    fn a_socket_fails_once() {
        let once = ClientFailures::zeroed().failed(7, 1, 10);
        assert_eq!(once.failed(7, 1, 20), once, "its SYN was sent again");
        let twice = once.failed(7, 2, 30);
        assert_eq!((twice.latest_ns, twice.before_ns), (30, 10));
        let other = once.failed(8, 1, 20);
        assert_eq!((other.latest_ns, other.before_ns), (20, 0), "another client's");
    }
}
