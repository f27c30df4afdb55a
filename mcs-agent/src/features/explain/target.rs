//! What is to be explained: a name or an address.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use mcs_kube::names;

use crate::core::model::{FrontendId, ObjectKey, Protocol};

/// What is to be explained.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    pub(super) what: What,
    /// All ports if absent.
    pub(super) port: Option<u16>,
    /// Both if absent.
    pub(super) protocol: Option<Protocol>,
    /// Whether it was given as a name of DNS.
    pub(super) is_dns_name: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum What {
    Import(ObjectKey),
    Vip(IpAddr),
}

impl Target {
    /// Whether the question includes this port.
    pub(super) fn has_port(&self, port: u16, protocol: Protocol) -> bool {
        self.port.is_none_or(|asked| asked == port)
            && self.protocol.is_none_or(|asked| asked == protocol)
    }

    /// Whether the question includes this frontend of its import.
    pub(super) fn has(&self, id: &FrontendId) -> bool {
        self.has_port(id.port, id.protocol)
            && match self.what {
                What::Vip(ip) => ip == id.ip,
                What::Import(_) => true,
            }
    }
}

/// The text is no target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "write VIP:PORT or VIP:PORT/TCP, NAMESPACE/NAME or NAMESPACE/NAME:PORT, or NAME.NAMESPACE.svc.clusterset.local"
)]
pub(crate) struct TargetError;

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        if let Some(vip) = vip(text) {
            return vip;
        }
        let is_dns_name = text.split(':').next().and_then(names::stem).is_some();
        let (namespace, name, port) = names::parse(text).ok_or(TargetError)?;
        let what = What::Import(ObjectKey::new(namespace.ok_or(TargetError)?, name));
        Ok(Self { what, port, protocol: None, is_dns_name })
    }
}

/// `None` if the text does not begin with an address.
fn vip(text: &str) -> Option<Result<Target, TargetError>> {
    let (address, protocol) = match text.split_once('/') {
        Some((address, protocol)) => (address, Some(protocol)),
        None => (text, None),
    };
    let (ip, port) = if let Ok(address) = address.parse::<SocketAddr>() {
        (address.ip(), Some(address.port()))
    } else {
        (address.parse().ok()?, None)
    };
    let protocol = match protocol.map(str::to_ascii_uppercase).as_deref() {
        None => Ok(None),
        Some("TCP") => Ok(Some(Protocol::Tcp)),
        Some("UDP") => Ok(Some(Protocol::Udp)),
        Some(_) => Err(TargetError),
    };
    if port == Some(0) {
        return Some(Err(TargetError));
    }
    Some(protocol.map(|protocol| Target {
        what: What::Vip(ip),
        port,
        protocol,
        is_dns_name: false,
    }))
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.what, self.port) {
            (What::Import(key), None) => write!(f, "{key}"),
            (What::Import(key), Some(port)) => write!(f, "{key}:{port}"),
            (What::Vip(ip), None) => write!(f, "{ip}"),
            (What::Vip(ip), Some(port)) => write!(f, "{}", SocketAddr::new(*ip, port)),
        }?;
        match self.protocol {
            Some(protocol) => write!(f, "/{protocol}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_told_apart() {
        for (text, shown) in [
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("10.0.0.1:80/udp", "10.0.0.1:80/UDP"),
            ("[fd00::1]:80/TCP", "[fd00::1]:80/TCP"),
            ("10.0.0.1", "10.0.0.1"),
            ("shop/web", "shop/web"),
            ("shop/web:80", "shop/web:80"),
            ("web.shop.svc.clusterset.local", "shop/web"),
            ("web.shop.svc.clusterset.local.", "shop/web"),
            ("web.shop.svc.clusterset.local:80", "shop/web:80"),
        ] {
            assert_eq!(text.parse::<Target>().map(|target| target.to_string()), Ok(shown.into()));
        }
        for wrong in [
            "",
            "web",
            "shop/",
            "/web",
            "shop/web:x",
            "shop/web:0",
            "10.0.0.1:80/SCTP",
            "10.0.0.1:0",
            "a.b.c.svc.clusterset.local",
            "shop/web/80",
        ] {
            assert_eq!(wrong.parse::<Target>(), Err(TargetError), "{wrong}");
        }
    }
}
