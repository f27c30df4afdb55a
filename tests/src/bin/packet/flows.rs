//! Flows from their first packet to their last, in both directions.

use crate::{
    prelude::*,
    row::{play_row, rows},
};

const ROWS: &str = "
    flow: TCP from SYN to FIN | TCP | open >ack >data >data:1400 <data <data:1400 >fin+ack >ack <fin+ack <ack
    # The peer has ignored the reset.
    flow: TCP that is reset | TCP | open >rst+ack >data >rst
        open <rst+ack <data <rst
    # RFC 9293, 3.5: each side sends a SYN before it receives one.
    flow: TCP that both sides open at once | TCP | >first! <syn >syn <syn+ack >syn+ack <ack >ack
    # TCP fast open. The client sends it again, since nobody has answered.
    flow: TCP whose SYN has data | TCP | >first:600! >first:600 <syn+ack =data
    flow: TCP whose flow was evicted | TCP | evicted >data! <data >data
    # The first word is a reply without a flow.
    flow: UDP | UDP | <data~ open =data =data:0 =data:1401
";

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    rows(suite, ROWS);
}

pub(crate) fn tcp(fixture: &mut Fixture) -> Result {
    play_row(fixture, ROWS, "flow: TCP from SYN to FIN")
}
