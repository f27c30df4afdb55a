//! Removal of backends: existing TCP flows stay, new flows go to other backends.

use crate::{prelude::*, row::rows};

const ROWS: &str = "
    removal: TCP stays until it ends | TCP | open pods:2 =data >fin+ack >ack <fin+ack <ack
    # The client does not know the old backend, so late packets of it are not translated.
    removal: a SYN starts a new flow | TCP | open pods:2 >first^ old<data~
    # Late replies of the old backend still come from the VIP.
    removal: UDP moves at once | UDP | open pods:2,3 >data^ >data old<data
    removal: of another backend | both | open:3 pods:own =data >first pods:4,own,5 =data >first
    removal: of the last backend, TCP | TCP | open pods: >data <data >first?NoBackend
    removal: of the last backend, UDP | UDP | open pods: <data >first?NoBackend
    # A half-closed connection has not ended.
    end of a flow: a SYN that is sent again | TCP | open:3 >first >first >first >fin+ack >first
    # Late packets still belong to the old flow, and the same tuple leads to the same backend.
    end of a flow: a SYN after it was closed | TCP | open:3 =fin+ack >ack <data =fin+ack >ack >syn+ecn^ same =data
        open:3 <fin+ack >fin+ack <ack <data <fin+ack >fin+ack <ack >syn+ecn^ same =data
    end of a flow: a SYN after it was reset | TCP | open:3 >rst <data >rst >syn+ecn^ same =data
        open:3 >rst+ack <data >rst+ack >syn+ecn^ same =data
        open:3 <rst <data <rst >syn+ecn^ same =data
        open:3 <rst+ack <data <rst+ack >syn+ecn^ same =data
    # While the connection is open, a SYN of the backend is its answer.
    end of a flow: a direct connection from its port | TCP | open <syn+ack >rst+ack <syn+ack% <data~
        open <syn+ack =fin+ack <syn+ack% <data~
";

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    rows(suite, ROWS);
    each(suite, "removal: UDP stays with a kept backend, and new flows go elsewhere", udp_stays);
    each(suite, "removal: of a backend whose id is used again", both(id_used_again));
    each(suite, "owner: packets of another device", both(of_another_device));
}

/// An answered flow to one of these pods.
fn open(fixture: &mut Fixture, protocol: Protocol, pods: &[u8]) -> Result<(TestFlow, Service)> {
    let service = fixture.new_service(protocol, pods)?;
    let (flow, _) = fixture.opens_with_any_choice(fixture.family.client(1), &service)?;
    fixture.answers(&flow)?;
    Ok((flow, service))
}

fn udp_stays(fixture: &mut Fixture) -> Result {
    let (flow, mut service) = open(fixture, Protocol::Udp, &[1, 2])?;
    fixture.keep(&mut service, flow.pick)?;
    fixture.goes_on(&flow)?;
    let (other, _) = fixture.opens_with_any_choice(fixture.family.client(2), &service)?;
    assert_ne!(other.pick, flow.pick);
    fixture.keep(&mut service, other.pick)?;
    assert!(service.backends.is_empty());
    fixture.goes_on(&flow)
}

fn id_used_again(fixture: &mut Fixture, protocol: Protocol) -> Result {
    let (flow, mut service) = open(fixture, protocol, &[1])?;
    fixture.change(&mut service, &[])?;
    let pick = fixture.reuse(&mut service, flow.pick, fixture.family.pod(2))?;
    if protocol == Protocol::Tcp {
        fixture.goes_on(&flow)?;
    }
    let ends = move |tables: &mut Tables, _: &TestFlow| flow.ends_in(tables);
    let new = fixture.opens_with(&service, &flow.first(), ends)?;
    fixture.answers(&new)?;
    assert_eq!(new.pick, pick);
    Ok(())
}

fn of_another_device(fixture: &mut Fixture, protocol: Protocol) -> Result {
    let (flow, _) = open(fixture, protocol, &[1, 2, 3])?;
    fixture.hand_over(DEVICE + 8)?;
    fixture.ignores(Hook::ToPod, flow.later(Side::Backend))?;
    fixture.opens(&flow, &flow.first())?;
    fixture.goes_on(&flow)
}
