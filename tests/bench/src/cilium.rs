//! Cilium's socket load balancer as a contender: its own programs, compiled from the source of a pinned version, with
//! the same services in its maps. Nothing of it is part of this repository.

use std::ffi::OsString;

use aya::{
    maps::{HashMap, Map, MapData, MapInfo},
    programs::loaded_programs,
};
use mcs_tests::bpf::attached_to_cgroup;
use serde::Deserialize;

use crate::prelude::*;

const MODULE: &str = "github.com/cilium/cilium";
const VERSION: &str = "v1.20.2";
/// The module's line in a go.sum.
const SUM: &str = "h1:dqiEGIcXc+gqCLYG/l7VCFJ8GHyb4HUrwbZOpkX5dL8=";
/// Both families, all namespaces, getpeername too. Tracing is off.
const FEATURES: [&str; 5] = [
    "-D__NR_CPUS__=1024",
    "-DENABLE_IPV4=1",
    "-DENABLE_IPV6=1",
    "-DENABLE_SOCKET_LB_FULL=1",
    "-DENABLE_SOCKET_LB_PEER=1",
];
/// Room for 10,000 services with ten endpoints each.
const SIZES: &str = "#include_next <node_config.h>
#undef CILIUM_LB_SERVICE_MAP_MAX_ENTRIES
#define CILIUM_LB_SERVICE_MAP_MAX_ENTRIES 262144
#undef CILIUM_LB_BACKENDS_MAP_MAX_ENTRIES
#define CILIUM_LB_BACKENDS_MAP_MAX_ENTRIES 262144
";
/// Loads the programs and attaches them to a cgroup, which keeps them. bpftool pins maps by their names, in a BPF file
/// system that nobody else sees.
const ATTACH: &str = r#"
set -e
mount -t bpf bpf /sys/fs/bpf
bpftool prog loadall "$1" /sys/fs/bpf/programs
for version in 4 6; do
    for hook in connect sendmsg recvmsg getpeername; do
        program=/sys/fs/bpf/programs/cil_sock${version}_$hook
        bpftool cgroup attach "$2" "$hook$version" pinned "$program" multi
    done
done
bpftool cgroup attach "$2" sock_release pinned /sys/fs/bpf/programs/cil_sock_release multi
"#;

/// Where the source is and what it is, as `go mod download -json` says.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Module {
    dir: Option<PathBuf>,
    sum: Option<String>,
    error: Option<String>,
}

/// Compiles the programs in a directory of the cache. Returns the object.
pub(crate) fn compile(cache: &Path) -> Result<PathBuf> {
    let directory = cache.join(format!("cilium-{VERSION}"));
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let source = download(&directory)?.join("bpf");
    fs::write(directory.join("node_config.h"), SIZES)?;
    let object = directory.join("bpf_sock.o");
    let include = |path: &Path| [OsString::from("-I"), path.into()];
    let mut clang = Command::new(clang()?);
    clang.args(["-O2", "--target=bpf", "-std=gnu99", "-mcpu=v3", "-g", "-w", "-nostdinc"]);
    clang.args(include(&directory)).args(include(&source)).args(include(&source.join("include")));
    clang.args(FEATURES).arg("-c").arg(source.join("bpf_sock.c")).arg("-o").arg(&object);
    output(&mut clang)?;
    Ok(object)
}

/// Downloads the source by the Go module proxy, unless Go has it. Returns its directory.
fn download(directory: &Path) -> Result<PathBuf> {
    let mut go = Command::new("go");
    go.args(["mod", "download", "-json", &format!("{MODULE}@{VERSION}")]);
    // Its hash is compared here.
    go.env("GONOSUMDB", MODULE).env("GOFLAGS", "").current_dir(directory);
    let module: Module = serde_json::from_slice(&output(&mut go)?)?;
    if let Some(error) = module.error {
        bail!("go mod download {MODULE}@{VERSION}: {error}");
    }
    ensure!(module.sum.as_deref() == Some(SUM), "{MODULE}@{VERSION} has another hash than {SUM}");
    module.dir.context("go has not unpacked the module")
}

fn clang() -> Result<&'static str> {
    let names = ["clang", "clang-22", "clang-21", "clang-20", "clang-19", "clang-18"];
    let mut there = names.into_iter().filter(|name| {
        Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success())
    });
    there.next().context("clang is missing")
}

/// Runs a command. Returns what it prints.
fn output(command: &mut Command) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {name}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} failed: {}", errors.trim());
    Ok(output.stdout)
}

/// `struct lb4_key` and `struct lb4_service` (bpf/lib/lb.h).
type ServiceMap = HashMap<MapData, [u8; 12], [u8; 12]>;

/// The maps of the programs at one cgroup.
pub(crate) struct Cilium {
    services: ServiceMap,
    /// `struct lb4_backend`, by id.
    backends: HashMap<MapData, u32, [u8; 12]>,
    last_backend: u32,
    last_frontend: u16,
}

impl Cilium {
    /// Attaches the programs of an object to a cgroup.
    pub(crate) fn attach(object: &Path, cgroup: &Path) -> Result<Self> {
        let mut attach = Command::new("unshare");
        attach.args(["--mount", "sh", "-c", ATTACH, "attach"]).arg(object).arg(cgroup);
        output(&mut attach)?;
        let maps = maps_at(cgroup, AttachType::BPF_CGROUP_INET4_CONNECT)?;
        Ok(Self {
            services: HashMap::try_from(map(&maps, "cilium_lb4_serv", 12)?)?,
            backends: HashMap::try_from(map(&maps, "cilium_lb4_back", 4)?)?,
            last_backend: 0,
            last_frontend: 0,
        })
    }

    /// Adds every port of a service, with all endpoints.
    pub(crate) fn add(&mut self, service: &Service) -> Result {
        for port in service.ports() {
            self.last_frontend = self.last_frontend.checked_add(1).context("too many frontends")?;
            let vip = service.vip.octets();
            let frontend = port.frontend.to_be_bytes();
            let protocol = if port.protocol == "TCP" { 6 } else { 17 };
            let key = |slot: u16| {
                let [low, high] = slot.to_ne_bytes();
                concat(&[&vip, &frontend, &[low, high, protocol, 0, 0, 0]])
            };
            let mut slots = 0_u16;
            for endpoint in service.endpoints() {
                self.last_backend += 1;
                slots += 1;
                let target = port.target.to_be_bytes();
                let backend = concat(&[&endpoint.octets(), &target, &[protocol]]);
                self.backends.insert(self.last_backend, backend, 0)?;
                let slot = concat(&[&self.last_backend.to_ne_bytes()]);
                self.services.insert(key(slots), slot, 0)?;
            }
            let counts = [slots, self.last_frontend].map(u16::to_ne_bytes);
            self.services.insert(key(0), concat(&[&[0; 4], &counts[0], &counts[1]]), 0)?;
        }
        Ok(())
    }
}

/// The ids of the maps of the program at a hook of a cgroup.
fn maps_at(cgroup: &Path, hook: AttachType) -> Result<Vec<u32>> {
    let ids = attached_to_cgroup(File::open(cgroup)?, hook as u32)?;
    let id = ids.first().context("no program is attached")?;
    let program = loaded_programs().find(|info| info.as_ref().is_ok_and(|info| info.id() == *id));
    program.context("the program is gone")??.map_ids()?.context("the program has no maps")
}

/// These bytes one after the other, and zeros behind them.
fn concat<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut all = [0; N];
    for (to, from) in all.iter_mut().zip(parts.iter().copied().flatten()) {
        *to = *from;
    }
    all
}

/// The hash among these maps with this name, of which the kernel keeps 15 bytes, and keys of this size.
fn map(ids: &[u32], name: &str, key: u32) -> Result<Map> {
    let infos = ids.iter().filter_map(|id| MapInfo::from_id(*id).ok());
    let mut meant = infos.filter(|info| info.name_as_str() == Some(name) && info.key_size() == key);
    let info = meant.next().with_context(|| format!("no map {name}"))?;
    Ok(Map::HashMap(MapData::from_id(info.id())?))
}
