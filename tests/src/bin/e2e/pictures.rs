//! Pictures of the pages of both programs, as `mcs ui` leads a browser to them, and of the dashboard. Documents show them.

use mcs_tests::{
    browser::{Browser, directory_of_pictures},
    dashboard::{self, Prometheus},
};

use crate::{ask::Shown, prelude::*};

/// Services of both clusters. Clients ask the first ones more often.
const SERVICES: [&str; 3] = ["cart", "checkout", "search"];
/// The dashboard of the chart, of agents.
const DASHBOARD: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/helm/mcs-agent/monitoring/dashboard.json");
/// How long clients ask: the plots show the last minutes.
const TRAFFIC: Duration = Duration::from_mins(2);

/// Takes them, into `directory` unless another one is asked for. The client is in the first cluster.
pub(crate) fn take(
    mcs: impl Fn(&str) -> Result<Command>,
    browser: &Browser,
    members: &[Member; 2],
    client: &Client<'_>,
    directory: &Path,
) -> Result {
    for member in members {
        for name in SERVICES {
            member.service(name)?;
            member.export(name)?;
        }
    }
    let pod = members[0].get(&["pod", ask::POD])?;
    let node = pod["spec"]["nodeName"].as_str().context("the client is on no node")?;
    let mut nodes = members[0].nodes().into_iter();
    let of_client = nodes.find(|one| one.to_string() == node).context("another machine's node")?;
    let netns = Namespace::open(&of_client.netns())?;
    let prometheus = Prometheus::start(&netns, directory)?;
    let begin = Instant::now();
    while begin.elapsed() < TRAFFIC {
        let wave = 12.0 + 10.0 * (begin.elapsed().as_secs_f64() / 9.0).sin();
        for (name, share) in SERVICES.iter().zip([1.0, 0.5, 0.2]) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a small number"
            )]
            let times = (wave * share) as u32 + 1;
            let to = format!("{name}.{NAMESPACE}.svc.clusterset.local:{TCP}");
            // Names of services that have just begun are not there yet.
            if let Err(error) = client.ask_often("tcp", &to, times)
                && begin.elapsed() > TRAFFIC / 2
            {
                return Err(error);
            }
        }
    }
    let page = |ui: &mut Command, name: &str| {
        let shown = Shown::begin(ui)?;
        browser.picture(&shown.url, (1000, 1000), directory, name)
    };
    page(mcs("ui")?.args(["--node", node]), "page-agent.png")?;
    page(mcs("ui")?.arg("--controller"), "page-controller.png")?;
    let title = format!("mcs-agent on node {node}");
    let drawn = dashboard::draw(Path::new(DASHBOARD), &title, &prometheus)?;
    let file = directory_of_pictures(directory).join("dashboard.svg");
    fs::write(&file, drawn).with_context(|| file.display().to_string())?;
    for member in members {
        member.run(&["delete", "serviceexport,service", SERVICES[0], SERVICES[1], SERVICES[2]])?;
    }
    Ok(())
}
