//! The flow table: the mark that says whether there are flows, the time of the latest packet, and evicted entries.

use crate::{prelude::*, row::rows};

const ROWS: &str = "
    # An entry that nothing has announced, until the first flow does.
    table: no look at replies while there is no flow | both | plant< <data~ evict< open <data used:no <data~
    # The second flow says that the mark is `YES` again.
    table: the mark that it is ending | both | open used:ending =data client:2 open
    table: the mark without a flow | both | pods: >first?NoBackend
    # Right away it is not written. After a while it is.
    table: the time of the latest packet | both | open >data age>touch >data >data
        open <data age<touch <data <data
    table: one entry of two is recreated | both | open evict< age>touch >data& =data
        open evict> age<touch <data& =data
    table: the client's packet recreates its entry | both | open evict> >data! <data
    table: both entries are gone | both | open evict <data~ >data! <data
";

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    rows(suite, ROWS);
}
