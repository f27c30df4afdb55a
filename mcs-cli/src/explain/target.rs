//! The service in question.

use std::str::FromStr;

use anyhow::Context as _;
use mcs_controller::core::clusterset::ServiceName;
use mcs_kube::names;

/// A service, and a port of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ServiceTarget {
    /// `None`: that of `--namespace`, or of the pod.
    namespace: Option<String>,
    name: String,
    port: Option<u16>,
}

/// The text does not name a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("write NAME, NAMESPACE/NAME or NAME.NAMESPACE.svc.clusterset.local, with or without :PORT")]
pub(super) struct TargetError;

impl FromStr for ServiceTarget {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (namespace, name, port) = names::parse(text).ok_or(TargetError)?;
        ServiceName::new(namespace.unwrap_or("any"), name).map_err(|_| TargetError)?;
        Ok(Self { namespace: namespace.map(str::to_owned), name: name.to_owned(), port })
    }
}

impl ServiceTarget {
    /// The service; one without namespace is in this one.
    pub(super) fn name_in(&self, namespace: Option<&str>) -> anyhow::Result<ServiceName> {
        let namespace = self.namespace.as_deref().or(namespace);
        let namespace = namespace.with_context(|| {
            format!(
                "in which namespace is service {0}? Write NAMESPACE/{0}, or give --namespace",
                self.name
            )
        })?;
        Ok(ServiceName::new(namespace, &self.name)?)
    }

    /// Whether one of its ports is meant.
    pub(super) const fn has_port(&self) -> bool {
        self.port.is_some()
    }

    /// The service as an argument of the agent.
    pub(super) fn shown(&self, name: &ServiceName) -> String {
        self.port.map_or_else(|| name.to_string(), |port| format!("{name}:{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_named_in_each_way() {
        for (text, shown) in [
            ("cart", "shop/cart"),
            ("cart:80", "shop/cart:80"),
            ("bank/cart", "bank/cart"),
            ("cart.bank.svc.clusterset.local:80", "bank/cart:80"),
        ] {
            let target: ServiceTarget = text.parse().unwrap();
            let name = target.name_in(Some("shop")).unwrap();
            assert_eq!(target.shown(&name), shown);
        }
        let bare: ServiceTarget = "cart".parse().unwrap();
        assert!(bare.name_in(None).unwrap_err().to_string().contains("Write NAMESPACE/cart"));
        for wrong in ["", "cart:0", "cart:x", "a/b/c", "Cart", "a.b.c.svc.clusterset.local"] {
            assert_eq!(wrong.parse::<ServiceTarget>(), Err(TargetError), "{wrong}");
        }
    }
}
