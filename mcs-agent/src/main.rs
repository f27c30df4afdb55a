//! The command line of mcs-agent; everything else is in the library.

fn main() {}
