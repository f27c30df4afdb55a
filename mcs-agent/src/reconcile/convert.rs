//! Converts between the domain types and the entries of the maps.

use std::net::SocketAddr;

use mcs_common::{BackendRecord, FRONTEND_AFFINITY_CLIENT_IP, FrontendKey, VipMode};

use crate::model::{Departure, Frontend, FrontendId, Protocol};

/// The key of a frontend.
pub fn frontend_key(id: &FrontendId) -> FrontendKey {
    FrontendKey::new(id.ip.into(), id.port, id.protocol.number())
}

/// The frontend of a key; `None` for a protocol that is not ours.
pub fn frontend_id(key: &FrontendKey) -> Option<FrontendId> {
    let protocol = Protocol::from_number(key.protocol)?;
    Some(FrontendId { ip: key.vip.to_ip(), port: key.port, protocol })
}

/// A key for people: `10.0.0.1:80/TCP`, with a number for a protocol that is not ours.
pub fn key_text(key: &FrontendKey) -> String {
    frontend_id(key).map_or_else(
        || format!("{}/{}", SocketAddr::new(key.vip.to_ip(), key.port), key.protocol),
        |id| id.to_string(),
    )
}

/// The mode of a VIP that has departed.
pub const fn mode(departure: Departure) -> u32 {
    match departure {
        Departure::HandedBack => VipMode::HANDED_BACK,
        Departure::Gone => VipMode::GONE,
    }
}

/// What a mode stands for; `None` for a VIP that is served.
pub const fn departure(mode: u32) -> Option<Departure> {
    match mode {
        VipMode::SERVED => None,
        VipMode::GONE => Some(Departure::Gone),
        _ => Some(Departure::HandedBack),
    }
}

/// `FrontendState::flags` and `FrontendState::affinity_seconds`.
pub fn attributes(frontend: &Frontend) -> (u32, u32) {
    frontend.affinity_seconds.map_or((0, 0), |seconds| (FRONTEND_AFFINITY_CLIENT_IP, seconds))
}

/// Where a backend is.
pub fn backend_address(backend: &BackendRecord) -> SocketAddr {
    SocketAddr::new(backend.addr.to_ip(), backend.port)
}

/// The text up to the first zero; what is no UTF-8 is replaced.
pub(crate) fn string(text: &[i8]) -> String {
    let bytes: Vec<u8> =
        text.iter().take_while(|&&byte| byte != 0).map(|byte| byte.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::fixtures::{address, frontend, id};

    #[test]
    fn a_frontend_comes_back_from_its_key() {
        for (ip, text) in [("10.0.0.1", "10.0.0.1:80/TCP"), ("fd00::1", "[fd00::1]:80/TCP")] {
            let key = frontend_key(&id(ip, 80));
            assert_eq!(frontend_id(&key), Some(id(ip, 80)));
            assert_eq!(key_text(&key), text);
        }
        let sctp = FrontendKey::new(address("10.0.0.1").into(), 80, 132);
        assert_eq!(frontend_id(&sctp), None);
        assert_eq!(key_text(&sctp), "10.0.0.1:80/132");
    }

    #[test]
    fn affinity_is_a_flag_and_seconds() {
        let mut frontend = frontend("web", &[]);
        assert_eq!(attributes(&frontend), (0, 0));
        frontend.affinity_seconds = Some(60);
        assert_eq!(attributes(&frontend), (FRONTEND_AFFINITY_CLIENT_IP, 60));
    }
}
