//! tc filters and their qdiscs.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
};

use futures_util::StreamExt as _;
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use rtnetlink::packet_route::{
    RouteNetlinkMessage,
    tc::{
        TcAttribute, TcBpfFlags, TcFilterBpf, TcFilterBpfOption, TcHandle, TcHeader, TcMessage,
        TcOption,
    },
};
use serde::{Deserialize, Serialize};

use super::{Netlink, NetlinkError, into_io, list::list};

/// `ETH_P_ALL`, in network order as the kernel wants it in the low half of `tcm_info`.
const EVERY_PROTOCOL: u16 = 0x0003_u16.to_be();
const CLSACT: &str = "clsact";
const INGRESS: &str = "ingress";

/// The direction of packets through a device, as the host sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Packets come in.
    Ingress,
    /// Packets go out.
    Egress,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];

    /// As tc(8) names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }

    const fn parent(self) -> TcHandle {
        let minor = match self {
            Self::Ingress => TcHandle::MIN_INGRESS,
            Self::Egress => TcHandle::MIN_EGRESS,
        };
        TcHandle { major: u16::MAX, minor }
    }
}

/// A qdisc for filters on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Qdisc {
    /// clsact, which has both sides.
    Clsact,
    /// ingress, which is older and has one side.
    Ingress,
}

/// The place of a filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilterPlace {
    /// The index of the device.
    pub index: u32,
    /// The side of the device.
    pub direction: Direction,
    /// Lower ones run first.
    pub priority: u16,
    /// The number of the filter within its priority.
    pub handle: u32,
}

/// An existing filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcFilter {
    /// Its place.
    pub place: FilterPlace,
    /// Its chain; packets begin in chain 0.
    pub chain: u32,
    /// Whether it sees every protocol.
    pub every_protocol: bool,
    /// `bpf` or another.
    pub kind: String,
    /// Its name, if it is an eBPF filter.
    pub name: Option<String>,
    /// Its program's id, if it is an eBPF filter.
    pub program: Option<u32>,
}

impl TcFilter {
    /// Whether it is an eBPF (or BPF) filter.
    pub fn is_bpf(&self) -> bool {
        self.kind == TcFilterBpf::KIND
    }
}

/// A filter to add.
#[derive(Clone, Copy, Debug)]
pub struct NewFilter<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its program, which decides about the packet.
    pub program: BorrowedFd<'a>,
}

impl Netlink {
    /// The qdiscs for filters, by the index of their device. While devices come and go, the kernel may leave out qdiscs of
    /// other devices, and does not say so: only what is listed is certain.
    pub async fn qdiscs(&self) -> Result<BTreeMap<u32, Qdisc>, NetlinkError> {
        let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let qdiscs = list(&self.handle, request, |message| {
            let RouteNetlinkMessage::NewQueueDiscipline(message) = message else { return None };
            let kind = match kind(&message) {
                CLSACT => Qdisc::Clsact,
                INGRESS => Qdisc::Ingress,
                _ => return None,
            };
            Some((message.header.index.cast_unsigned(), kind))
        });
        let qdiscs = qdiscs.await.map_err(|error| NetlinkError::new("list the qdiscs", error))?;
        Ok(qdiscs.into_iter().collect())
    }

    /// Adds a clsact qdisc to a device. `false` if there is one already.
    pub async fn add_clsact(&self, index: u32) -> Result<bool, NetlinkError> {
        let mut message = qdisc(index);
        message.header.handle = TcHandle { major: u16::MAX, minor: 0 };
        let request = RouteNetlinkMessage::NewQueueDiscipline(message);
        match self.ask(request, NLM_F_CREATE | NLM_F_EXCL).await {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
            Err(error) => Err(NetlinkError::new("add a clsact qdisc", error)),
        }
    }

    /// Removes the clsact qdisc of a device, and all filters with it. An absent one counts as success.
    pub async fn remove_clsact(&self, index: u32) -> Result<(), NetlinkError> {
        let request = RouteNetlinkMessage::DelQueueDiscipline(qdisc(index));
        or_absent(self.ask(request, 0).await)
            .map_err(|error| NetlinkError::new("remove the clsact qdisc", error))
    }

    /// The filters of one side of a device, in the order in which they run.
    pub async fn filters(
        &self,
        index: u32,
        direction: Direction,
    ) -> Result<Vec<TcFilter>, NetlinkError> {
        let error =
            |error| NetlinkError::new(format!("list the {} filters", direction.name()), error);
        let header = TcHeader { parent: direction.parent(), ..header(index) };
        let request = RouteNetlinkMessage::GetTrafficFilter(TcMessage::from_parts(header, vec![]));
        let listed = list(&self.handle, request, |message| match message {
            RouteNetlinkMessage::NewTrafficFilter(message) => filter(&message, index, direction),
            _ => None,
        });
        listed.await.map_err(error)
    }

    /// Adds a filter.
    pub async fn add_filter(
        &self,
        place: FilterPlace,
        new: NewFilter<'_>,
    ) -> Result<(), NetlinkError> {
        let request = RouteNetlinkMessage::NewTrafficFilter(filter_message(place, Some(new)));
        self.ask(request, NLM_F_CREATE | NLM_F_EXCL)
            .await
            .map_err(|error| NetlinkError::new("add a filter", error))
    }

    /// Makes a filter run another program. The kernel replaces one by the other at once.
    pub async fn replace_filter(
        &self,
        place: FilterPlace,
        new: NewFilter<'_>,
    ) -> Result<(), NetlinkError> {
        let request = RouteNetlinkMessage::NewTrafficFilter(filter_message(place, Some(new)));
        self.ask(request, NLM_F_REPLACE)
            .await
            .map_err(|error| NetlinkError::new("replace a filter", error))
    }

    /// Removes a filter. An absent one counts as success.
    pub async fn remove_filter(&self, place: FilterPlace) -> Result<(), NetlinkError> {
        let request = RouteNetlinkMessage::DelTrafficFilter(filter_message(place, None));
        or_absent(self.ask(request, 0).await)
            .map_err(|error| NetlinkError::new("remove a filter", error))
    }

    async fn ask(&self, request: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut message = NetlinkMessage::from(request);
        message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let mut answers = self.handle.clone().request(message).map_err(into_io)?;
        while let Some(answer) = answers.next().await {
            if let NetlinkPayload::Error(error) = answer.payload {
                return if error.code.is_none() { Ok(()) } else { Err(error.to_io()) };
            }
        }
        Err(io::ErrorKind::ConnectionReset.into())
    }
}

/// An absent filter, qdisc or device counts as success.
fn or_absent(result: io::Result<()>) -> io::Result<()> {
    match result.as_ref().map_err(io::Error::raw_os_error) {
        Err(Some(libc::ENOENT | libc::ENODEV | libc::EINVAL)) => Ok(()),
        _ => result,
    }
}

fn header(index: u32) -> TcHeader {
    TcHeader { index: index.cast_signed(), ..TcHeader::default() }
}

fn qdisc(index: u32) -> TcMessage {
    let header = TcHeader { parent: TcHandle::CLSACT, ..header(index) };
    TcMessage::from_parts(header, vec![TcAttribute::Kind(CLSACT.to_owned())])
}

fn filter_message(place: FilterPlace, new: Option<NewFilter<'_>>) -> TcMessage {
    let header = TcHeader {
        handle: place.handle.into(),
        parent: place.direction.parent(),
        info: TcHandle { major: place.priority, minor: EVERY_PROTOCOL }.into(),
        ..header(place.index)
    };
    let mut attributes = vec![TcAttribute::Kind(TcFilterBpf::KIND.to_owned())];
    if let Some(new) = new {
        let options = [
            TcFilterBpfOption::ProgFd(new.program.as_raw_fd().cast_unsigned()),
            TcFilterBpfOption::ProgName(new.name.to_owned()),
            TcFilterBpfOption::Flags(TcBpfFlags::DirectAction),
        ];
        attributes.push(TcAttribute::Options(options.map(TcOption::Bpf).into()));
    }
    TcMessage::from_parts(header, attributes)
}

/// `None` for a message about a priority instead of a filter.
fn filter(message: &TcMessage, index: u32, direction: Direction) -> Option<TcFilter> {
    let TcHandle { major: priority, minor: protocol } = message.header.info.into();
    let handle = message.header.handle.into();
    if handle == 0 {
        return None;
    }
    let place = FilterPlace { index, direction, priority, handle };
    let mut filter = TcFilter {
        place,
        chain: 0,
        every_protocol: protocol == EVERY_PROTOCOL,
        kind: kind(message).to_owned(),
        name: None,
        program: None,
    };
    for attribute in &message.attributes {
        match attribute {
            TcAttribute::Chain(chain) => filter.chain = *chain,
            TcAttribute::Options(options) => options.iter().for_each(|option| match option {
                TcOption::Bpf(TcFilterBpfOption::ProgName(name)) => {
                    filter.name = Some(name.clone());
                }
                TcOption::Bpf(TcFilterBpfOption::ProgId(id)) => filter.program = Some(*id),
                _ => {}
            }),
            _ => {}
        }
    }
    Some(filter)
}

fn kind(message: &TcMessage) -> &str {
    let kind = message.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Kind(kind) => Some(kind.as_str()),
        _ => None,
    });
    kind.unwrap_or_default()
}
