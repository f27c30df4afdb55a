use mcs_tests::cluster::*;
struct O(std::time::Instant);
impl Observer for O {
    fn progress(&self, w: &str) {
        println!("{:.1} {w}", self.0.elapsed().as_secs_f64());
    }
    fn check(&self) -> anyhow::Result<()> {
        Ok(())
    }
}
fn main() -> anyhow::Result<()> {
    let mut a = std::env::args().skip(1);
    if a.next().as_deref() == Some("down") {
        return remove(ClusterSet::DEVELOPMENT);
    }
    let n = a.next().unwrap().parse().unwrap();
    start(
        ClusterSet::DEVELOPMENT,
        Plan { clusters: 1, nodes: n, cni: Cni::Ptp, proxy: ProxyMode::Nftables },
        &Programs::from_env(),
        &O(std::time::Instant::now()),
    )
}
