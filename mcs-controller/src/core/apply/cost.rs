//! What requests cost the cluster that causes them.

use serde_json::Value;

use super::{Action, Request};

/// A slice of 100 endpoints with all texts is smaller.
const TOKEN_BYTES: usize = 32 * 1024;

/// The tokens for this many bytes: one at least.
#[expect(clippy::cast_precision_loss, reason = "an object has a few megabytes")]
pub fn tokens(bytes: usize) -> f64 {
    (bytes as f64 / TOKEN_BYTES as f64).max(1.0)
}

impl Request {
    /// About how many bytes it writes. What takes something away is free: somebody has paid for it.
    pub fn bytes(&self) -> usize {
        match &self.action {
            Action::Apply { object, .. }
            | Action::Create(object)
            | Action::Replace { object, .. }
            | Action::Update(object)
            | Action::ApplyStatus(object)
            | Action::ApplyCondition(object)
            | Action::MergeStatus(object) => bytes(object),
            Action::Restrict(_) | Action::Delete { .. } => 0,
        }
    }
}

fn bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(all) => all.iter().map(|one| bytes(one) + 1).sum(),
        Value::Object(all) => all.iter().map(|(key, one)| key.len() + 4 + bytes(one)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        apply::own_request,
        clusterset::{
            ImportedSlice,
            fixture::{endpoint, imported_slice},
        },
        own_cluster::OwnCluster,
        plan::Write,
    };

    #[test]
    fn large_slices_cost_more() {
        let own = OwnCluster::new(vec![]);
        let of = |endpoints: usize| {
            let endpoints = std::iter::repeat_with(|| endpoint("10.1.0.1")).take(endpoints);
            let slice = ImportedSlice { endpoints: endpoints.collect(), ..imported_slice("east") };
            let request = own_request(&Write::ApplySlice(slice), &own, false);
            let Action::Replace { object, .. } = &request.action else { panic!("{request:?}") };
            let (json, bytes) = (object.to_string().len(), request.bytes());
            assert!(bytes.abs_diff(json) < json / 20, "{bytes} of {json}");
            tokens(bytes)
        };
        assert!((of(100) - 1.0).abs() < 0.01, "a usual slice is one token");
        assert!((3.0..6.0).contains(&of(1000)), "{}", of(1000));
    }
}
