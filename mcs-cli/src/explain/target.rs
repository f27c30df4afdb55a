//! The service in question.

use std::str::FromStr;

use mcs_controller::clusterset::ServiceName;
use mcs_kube::dns_name;

/// A service, and a port of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Target {
    /// `None`: the pod's namespace.
    namespace: Option<String>,
    name: String,
    port: Option<u16>,
}

/// The text does not name a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("write NAME, NAMESPACE/NAME or NAME.NAMESPACE.svc.clusterset.local, with or without :PORT")]
pub(super) struct TargetError;

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) => (name, Some(port.parse().map_err(|_| TargetError)?)),
            None => (text, None),
        };
        let (namespace, name) = match dns_name::stem(name) {
            Some(dns) => dns
                .split_once('.')
                .map(|(name, namespace)| (Some(namespace), name))
                .ok_or(TargetError)?,
            None => match name.split_once('/') {
                Some((namespace, name)) => (Some(namespace), name),
                None => (None, name),
            },
        };
        if port == Some(0) || ServiceName::new(namespace.unwrap_or("any"), name).is_err() {
            return Err(TargetError);
        }
        Ok(Self { namespace: namespace.map(str::to_owned), name: name.to_owned(), port })
    }
}

impl Target {
    /// The service for a pod of this namespace.
    pub(super) fn name_in(&self, namespace: &str) -> anyhow::Result<ServiceName> {
        Ok(ServiceName::new(self.namespace.as_deref().unwrap_or(namespace), &self.name)?)
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
            let target: Target = text.parse().unwrap();
            let name = target.name_in("shop").unwrap();
            assert_eq!(target.shown(&name), shown);
        }
        for wrong in ["", "cart:0", "cart:x", "a/b/c", "Cart", "a.b.c.svc.clusterset.local"] {
            assert_eq!(wrong.parse::<Target>(), Err(TargetError), "{wrong}");
        }
    }
}
