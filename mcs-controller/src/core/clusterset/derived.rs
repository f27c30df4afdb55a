//! The derived Service of an import: for Gateway implementations that lead to Services alone.
//!
//! It has no ClusterIP, so no client depends on a dataplane that does not serve it. It uses the slices of the import.

use sha2::{Digest as _, Sha256};

use super::{Import, ServiceName, ServicePort};

/// The name by the convention of the reference implementation of KEP-1645 (`controllers/common.go` of mcs-api).
pub fn derived_name(import: &ServiceName) -> String {
    let hash = Sha256::digest(format!("{}/{}", import.namespace(), import.name()).as_bytes());
    let bits = hash.iter().take(8).fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    let digits = (1..=10).map(|place| bits >> (64 - 5 * place) & 31);
    let digits = digits.filter_map(|digit| char::from_digit(u32::try_from(digit).ok()?, 32));
    "derived-".chars().chain(digits).collect()
}

/// The ports of the derived Service. A Service with several ports names each.
pub fn derived_ports(import: &Import) -> Vec<ServicePort> {
    let ports = &import.spec.ports;
    let is_possible = |port: &&ServicePort| ports.len() == 1 || !port.name.is_empty();
    ports.iter().filter(is_possible).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::clusterset::fixture::{name, port, spec};

    #[test]
    fn the_name_is_that_of_the_reference_implementation() {
        assert_eq!(derived_name(&name("shop/cart")), "derived-bsqa4s8pq5");
    }

    #[test]
    fn one_of_several_ports_needs_a_name() {
        let ports = |ports: Vec<ServicePort>| {
            let import = Import {
                name: name("shop/web"),
                ips: vec![],
                spec: super::super::ServiceSpec { ports, ..spec() },
                has_derived_service: true,
                tiers: None,
            };
            derived_ports(&import).len()
        };
        assert_eq!(ports(vec![port("", 80)]), 1);
        assert_eq!(ports(vec![port("", 80), port("https", 443)]), 1);
    }
}
