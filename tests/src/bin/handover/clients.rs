//! The processes of clients: one for each place of each node.

use std::{
    env,
    process::{ChildStdin, ChildStdout},
};

use crate::{client, prelude::*};

/// A process of clients. It ends when this is dropped.
pub(crate) struct Clients {
    place: Place,
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Clients {
    /// Starts one.
    pub(crate) fn start(
        node: &ProxiedNode,
        place: Place,
        service: &DerivedService,
    ) -> Result<Self> {
        let [v4, v6] = Family::ON_WIRE.map(|family| service.at(family, Protocol::Tcp).ip());
        let mut command = node.command(place, &env::current_exe()?);
        command.env(client::VARIABLE, format!("{v4},{v6}"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start clients")?;
        let stdin = child.stdin.take().context("no standard input")?;
        let stdout = BufReader::new(child.stdout.take().context("no standard output")?);
        Ok(Self { place, child, stdin, stdout })
    }

    /// Gives an order, without waiting for the answer.
    pub(crate) fn order(&mut self, order: &str) -> Result {
        writeln!(self.stdin, "{order}").context("clients have ended")
    }

    /// Waits for the answer to an order.
    pub(crate) fn answer(&mut self) -> Result<Tally> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        ensure!(!line.is_empty(), "clients have ended");
        Ok(serde_json::from_str(&line)?)
    }

    /// Where they are.
    pub(crate) const fn place(&self) -> Place {
        self.place
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // They may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
