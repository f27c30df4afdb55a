//! The name of an imported service in DNS: `NAME.NAMESPACE.svc.clusterset.local`.

/// The zone of the clusterset.
pub const ZONE: &str = "clusterset.local";
/// The end of each name of a service.
const SUFFIX: &str = ".svc.clusterset.local";

/// The name in DNS.
#[must_use]
pub fn of(namespace: &str, name: &str) -> String {
    format!("{name}.{namespace}{SUFFIX}")
}

/// `NAME.NAMESPACE` of a name in DNS, with or without the last dot. `None` for other text.
#[must_use]
pub fn stem(text: &str) -> Option<&str> {
    text.trim_end_matches('.').strip_suffix(SUFFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_of_the_zone() {
        let name = of("shop", "web");
        assert_eq!(name, format!("web.shop.svc.{ZONE}"));
        assert_eq!(stem(&format!("{name}.")), Some("web.shop"));
        assert_eq!(stem("shop/web"), None);
    }
}
