//! What the agent makes of answers of an API server, for fuzzing.

use mcs_kube::{
    WatchedObject,
    testing::messages::{read_list, read_watch},
};

use super::decoders::SliceDecoder;

/// The imported slices of a list, each as text.
pub fn slices_of_list(answer: &[u8], in_protobuf: bool) -> Result<Vec<String>, String> {
    Ok(read_list(answer, in_protobuf)?.iter().map(text).collect())
}

/// The imported slices that a watch is about, each as text, as far as it can be read.
pub fn slices_of_watch(answer: &[u8], in_protobuf: bool) -> Vec<String> {
    read_watch(answer, in_protobuf).iter().map(text).collect()
}

fn text(slice: &WatchedObject<SliceDecoder>) -> String {
    format!("{} at {:?}: {:?}", slice.key(), slice.version(), slice.decoded)
}
