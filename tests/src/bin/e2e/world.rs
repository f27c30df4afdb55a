//! What the cases share: two clusters with clients and servers, and the agent on their nodes.

use std::cell::Cell;

use mcs_tests::deployed::Release;

use crate::{Args, clusters::Clusters, prelude::*};

// They have to be removed in this order.
pub(crate) struct World {
    pub(crate) members: [Member; 2],
    pub(crate) release: Release,
    numbers: Cell<u8>,
    keep: bool,
    pub(crate) clusters: Clusters,
}

impl World {
    /// Creates everything. Returns the directory of the logs too.
    pub(crate) fn begin(args: &Args) -> Result<(Self, PathBuf)> {
        let begin = Instant::now();
        let clusters = Clusters::begin(&args.kubeconfig, args.keep)?;
        let member = |kubeconfig: &Path| {
            let (image, traffic) = (&args.traffic_image, clusters.traffic.as_deref());
            Member::begin(&clusters.programs, kubeconfig, &clusters.directory, image, traffic)
                .with_context(|| kubeconfig.display().to_string())
        };
        let [a, b] = &clusters.kubeconfigs;
        let members = [member(a)?, member(b)?];
        for member in &members {
            member.wait()?;
        }
        let release = Release::new(&clusters.programs, &args.values)?;
        tell(format!("{:.1} s  clients and servers are ready", begin.elapsed().as_secs_f64()));
        let logs = clusters.directory.clone();
        let (numbers, keep) = (Cell::new(1), args.keep);
        let world = Self { members, release, numbers, keep, clusters };
        Ok((world, logs))
    }

    /// Each cluster as the importer, with the other one as the exporter.
    pub(crate) fn directions(&self) -> [(&Member, &Member); 2] {
        let [a, b] = &self.members;
        [(a, b), (b, a)]
    }

    /// A service with addresses that no other has, in the families that the importer's pods have.
    pub(crate) fn fresh(&self, name: &str, importer: &Member) -> Result<Target> {
        let number = self.numbers.replace(self.numbers.get() + 1);
        let vips = [
            IpAddr::from([10, 253, 77, number]),
            IpAddr::from([0xfdfd, 0x77, 0, 0, 0, 0, 0, u16::from(number)]),
        ];
        let servers = importer.servers()?;
        let usable = |vip: &IpAddr| servers.iter().any(|ip| ip.is_ipv4() == vip.is_ipv4());
        Ok(Target { name: name.to_owned(), vips: vips.into_iter().filter(usable).collect() })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.keep || self.clusters.are_own() {
            return;
        }
        for member in &self.members {
            let namespace = ["delete", "namespace", NAMESPACE, "--ignore-not-found"];
            let removed = self.release.remove(member);
            if let Err(error) = removed.and_then(|()| member.kubectl.run(&namespace)) {
                eprintln!("{}: cannot tidy up: {error:#}", member.name);
            }
        }
    }
}
