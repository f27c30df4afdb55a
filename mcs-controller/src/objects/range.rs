//! ServiceCIDRs: the addresses of this cluster's Services.

use ipnet::IpNet;
use mcs_kube::{Decoder, ObjectKey, ReadMessage, message};
use serde_json::Value;

/// Decodes a ServiceCIDR to its ranges.
#[derive(Clone, PartialEq, Debug)]
pub struct RangeDecoder;

impl Decoder for RangeDecoder {
    type Value = Vec<IpNet>;

    const MESSAGE: Option<ReadMessage<Self::Value>> =
        Some(message::as_json::<message::ServiceCidr, Self>);

    fn decode(_: ObjectKey, object: &Value) -> Result<Vec<IpNet>, String> {
        let texts = object["spec"]["cidrs"].as_array().into_iter().flatten();
        Ok(texts.filter_map(Value::as_str).filter_map(|text| text.parse().ok()).collect())
    }
}
