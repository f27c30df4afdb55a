//! What the agent makes of answers of an API server, for fuzzing.

use mcs_kube::testing::messages::{read_list, read_watch};

use super::decoders::SliceDecoder;

/// The imported slices of a list, each as text.
pub fn slices_of_list(answer: &[u8], in_protobuf: bool) -> Result<Vec<String>, String> {
    let slices = read_list::<SliceDecoder>(answer, in_protobuf)?;
    Ok(slices.iter().map(|slice| format!("{slice:?}")).collect())
}

/// The imported slices that a watch is about, each as text, as far as it can be read.
pub fn slices_of_watch(answer: &[u8], in_protobuf: bool) -> Vec<String> {
    let slices = read_watch::<SliceDecoder>(answer, in_protobuf);
    slices.iter().map(|slice| format!("{slice:?}")).collect()
}
