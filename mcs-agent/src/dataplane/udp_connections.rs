use std::{io, path::Path};

use aya::maps::{HashMap, Map, MapData};
use mcs_common::{ConnectedValue, ReverseKey, maps};

use super::kernel::into_io;
use crate::bpf::for_each_entry;

/// A connection of a UDP socket to a VIP, as the programs made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpConnection {
    /// The socket, and the backend that the connection was given.
    pub key: ReverseKey,
    /// The VIP, and the network namespace.
    pub value: ConnectedValue,
}

/// The pinned list of connected UDP sockets. It has those too that are closed meanwhile, or connected
/// to another backend of their VIP.
#[derive(Debug)]
pub struct UdpConnections {
    map: HashMap<MapData, ReverseKey, ConnectedValue>,
}

impl UdpConnections {
    /// Opens the list that is pinned in the state directory.
    pub fn open(state: &Path) -> io::Result<Self> {
        let pin = state.join(maps::UDP_CONNECTED);
        let map = MapData::from_pin(pin).map_err(into_io)?;
        let map = HashMap::try_from(Map::LruHashMap(map)).map_err(into_io)?;
        Ok(Self { map })
    }

    /// Every connection.
    pub fn all(&self) -> io::Result<Vec<UdpConnection>> {
        let mut all = Vec::new();
        for_each_entry(&self.map, |key, value| all.push(UdpConnection { key, value }))?;
        Ok(all)
    }

    /// Whether a connection is still listed, and to the same VIP.
    pub fn has(&self, connection: &UdpConnection) -> io::Result<bool> {
        match self.map.get(&connection.key, 0).map_err(into_io) {
            Ok(value) => Ok(value == connection.value),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes a connection off the list. Absent is as good.
    pub fn remove(&mut self, key: &ReverseKey) -> io::Result<()> {
        match self.map.remove(key).map_err(into_io) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            result => result,
        }
    }
}
