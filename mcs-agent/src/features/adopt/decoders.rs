//! Decodes Services and slices that other controllers may have written.

use mcs_kube::{Decoder, objects};

use super::{ForeignSlice, Service};
use crate::core::model::ObjectKey;

/// Decodes Services.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ServiceDecoder;

impl Decoder for ServiceDecoder {
    type Object = objects::Service;
    type Value = Service;

    fn convert(key: &ObjectKey, service: objects::Service) -> Result<Self::Value, String> {
        Ok(Service::convert(service, key.clone()))
    }
}

/// Decodes EndpointSlices without the label of an import; `None` is a slice of no Service.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ForeignSliceDecoder;

impl Decoder for ForeignSliceDecoder {
    type Object = objects::EndpointSlice;
    type Value = Option<ForeignSlice>;

    fn convert(key: &ObjectKey, slice: Self::Object) -> Result<Self::Value, String> {
        Ok(ForeignSlice::convert(slice, key.clone()))
    }
}
