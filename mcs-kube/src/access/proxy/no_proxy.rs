//! `NO_PROXY`: the servers that need no proxy, by the rules of Go (`golang.org/x/net/http/httpproxy`), which kubectl and helm
//! follow.

use std::net::IpAddr;

use hyper::Uri;
use ipnet::IpNet;

/// Whether the server needs no proxy: a loopback address, or an entry names it. Entries are addresses, ranges, domains, or
/// `*`. A domain stands for its subdomains too, with a dot in front for these alone. A port narrows an address or domain.
pub(super) fn names(entries: &str, server: &Uri) -> bool {
    let host = server.host().unwrap_or_default().to_ascii_lowercase();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let ip: Option<IpAddr> = host.parse().ok();
    let port =
        server.port_u16().unwrap_or(if server.scheme_str() == Some("http") { 80 } else { 443 });
    host == "localhost"
        || ip.is_some_and(|ip| ip.is_loopback())
        || entries.split(',').any(|entry| {
            let entry = entry.trim().to_ascii_lowercase();
            entry == "*" || is_for(&entry, (host, ip, port))
        })
}

fn is_for(entry: &str, (host, ip, port): (&str, Option<IpAddr>, u16)) -> bool {
    if let Ok(range) = entry.parse::<IpNet>() {
        return ip.is_some_and(|ip| range.contains(&ip));
    }
    let (name, only) = with_port(entry);
    let is_port = only.is_none_or(|only| only.is_empty() || only.parse() == Ok(port));
    let is_host = match (name.parse::<IpAddr>(), ip) {
        (Ok(address), ip) => ip == Some(address),
        (Err(_), Some(_)) => false,
        (Err(_), None) => is_of_domain(host, name),
    };
    is_host && is_port
}

/// An address or domain, and its port.
fn with_port(entry: &str) -> (&str, Option<&str>) {
    if let Some(rest) = entry.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').unwrap_or((rest, ""));
        return (address, rest.strip_prefix(':'));
    }
    match entry.split_once(':') {
        Some((name, port)) if !port.contains(':') => (name, Some(port)),
        _ => (entry, None),
    }
}

fn is_of_domain(host: &str, domain: &str) -> bool {
    let domain = domain.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(domain);
    let above = host.strip_suffix(domain.strip_prefix('.').unwrap_or(domain));
    !domain.is_empty()
        && above.is_some_and(|above| {
            above.ends_with('.') || (above.is_empty() && !domain.starts_with('.'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of Go's `TestUseProxy` and `TestProxyForURL`, and what users write.
    #[test]
    fn the_rules_are_those_of_go() {
        let entries = "foobar.com, .barbaz.net, 192.168.1.1, 192.168.1.2:81, 192.168.1.3:80, 10.0.0.0/30, \
                       2001:db8::52:0:1, [2001:db8::52:0:2]:443, [2001:db8::52:0:3]:80, 2002:db8:a::45/64,\
                       *.example.org, ported.net:6443,, ";
        for (server, is_named) in [
            ("localhost:6443", true),
            ("127.0.0.1", true),
            ("127.0.0.2", true),
            ("[::1]", true),
            ("[::2]", false),
            ("192.168.1.1", true),
            ("192.168.1.2", false),
            ("192.168.1.2:81", true),
            ("192.168.1.3:80", true),
            ("192.168.1.4", false),
            ("10.0.0.2:6443", true),
            ("10.0.0.4", false),
            ("[2001:db8::52:0:1]", true),
            ("[2001:db8::52:0:2]", true),
            ("[2001:db8::52:0:3]", false),
            ("[2002:db8:a::123]:6443", true),
            ("[fe80::424b:c8be:1643:a1b6]", false),
            ("foobar.com:6443", true),
            ("FOOBAR.com", true),
            ("www.foobar.com", true),
            ("foofoobar.com", false),
            ("barbaz.net", false),
            ("www.barbaz.net", true),
            ("baz.com", false),
            ("localhost.net", false),
            ("example.org", false),
            ("api.example.org", true),
            ("api.ported.net:6443", true),
            ("ported.net", false),
        ] {
            let uri = format!("https://{server}").parse().unwrap();
            assert_eq!(names(entries, &uri), is_named, "{server}");
        }
        let server = Uri::from_static("https://10.9.9.9:6443");
        for (entries, is_named) in [("", false), ("*", true), ("a.b, *", true), (":6443", false)] {
            assert_eq!(names(entries, &server), is_named, "{entries:?}");
        }
        assert!(!names(":6443,.,", &Uri::from_static("https://api:6443")));
    }
}
