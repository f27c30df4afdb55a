#!/usr/bin/env bash
# Two kind clusters whose pods reach each other, IPv4 and IPv6, with the types of the Multi-Cluster Services API.
#
#   deploy/kind/clusters.sh up          # takes docker, kind and kubectl, and cargo for the image
#   deploy/kind/clusters.sh mcs         # after `up`: `mcs up`, which takes helm; then both answer the last request
#   deploy/kind/clusters.sh kubeconfig N
#   deploy/kind/clusters.sh down
#
# The image of both programs is built, unless $IMAGES names archives for the nodes, or is empty: then nodes pull what charts name.
# $NODE_IMAGE is the image of the nodes, instead of kind's own. $KIND_CONFIG is appended to the configuration of each cluster.
# $MCS_API is a directory with the types of the Multi-Cluster Services API, instead of a URL.
# $MCS is the program `mcs`, instead of the one that `cargo xtask image` writes. $MCS_CHART is its chart, instead of deploy/helm/mcs.
set -euo pipefail

readonly CLUSTERS=(1 2)
readonly MCS_API=${MCS_API:-https://raw.githubusercontent.com/kubernetes-sigs/mcs-api/v0.5.2/config/crd}
# What ClusterSetIPs are taken from, in both clusters.
readonly VIP_RANGES='{241.0.0.0/8,fd00:241::/96}'

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mcs=${MCS:-$repository/target/container/mcs}
state=${XDG_STATE_HOME:-$HOME/.local/state}/mcs-agent-kind

name() { echo "mcs-c$1"; }
kubeconfig() { echo "$state/$(name "$1").kubeconfig"; }
nodes() { kind get nodes --name "$(name "$1")"; }
say() { printf '\n== %s\n' "$*" >&2; }

# kubectl for cluster $1.
kube() {
  local cluster=$1
  shift
  kubectl --kubeconfig "$(kubeconfig "$cluster")" "$@"
}

# kind's own network plugin masquerades what leaves a cluster's pod range, so the nodes get another one below.
create() {
  local kubelet=""
  if [[ $(docker info --format '{{ .CgroupVersion }}') == 1 ]]; then
    kubelet='kubeadmConfigPatches: ["{kind: KubeletConfiguration, failCgroupV1: false}"]'
  fi
  if kind get clusters | grep --quiet --line-regexp "$(name "$1")"; then
    kind export kubeconfig --name "$(name "$1")" --kubeconfig "$(kubeconfig "$1")"
    return
  fi
  kind create cluster --name "$(name "$1")" --kubeconfig "$(kubeconfig "$1")" \
    ${NODE_IMAGE:+--image "$NODE_IMAGE"} --config - <<CONFIG
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
networking:
  ipFamily: dual
  disableDefaultCNI: true
  podSubnet: 10.24$1.0.0/16,fd00:10:24$1::/56
  serviceSubnet: 10.10$1.0.0/16,fd00:10:10$1::/112
nodes:
  - role: control-plane
    $kubelet
  - role: worker
${KIND_CONFIG:-}
CONFIG
}

# The pod ranges of node $2 of cluster $1, one a line, IPv4 first.
pod_ranges() {
  kube "$1" get node "$2" --ignore-not-found --output jsonpath='{range .spec.podCIDRs[*]}{@}{"\n"}{end}' | sort
}

# The address of node $1 of family $2, on the network that all kind nodes share.
address() {
  local field=IPAddress
  [[ $2 == 6 ]] && field=GlobalIPv6Address
  docker inspect --format "{{ .NetworkSettings.Networks.kind.$field }}" "$1"
}

# Waits until node $2 of cluster $1 has ranges of both families.
wait_for_pod_ranges() {
  local tries=60
  until [[ $(pod_ranges "$1" "$2" | wc --lines) == 2 ]]; do
    if ((tries-- == 0)); then
      echo "node $2 has no pod ranges" >&2
      return 1
    fi
    sleep 1
  done
}

# Docker before 23 keeps CAP_BPF and CAP_PERFMON from privileged containers, so the agent cannot start on its nodes.
check_capabilities() {
  local bounding
  bounding=$(docker exec "$1" sed -n 's/^CapBnd:[[:space:]]*//p' /proc/1/status)
  if ((((16#$bounding >> 38) & 3) != 3)); then
    echo "this Docker is too old: node $1 has no CAP_BPF and no CAP_PERFMON. Install Docker 23 or later" >&2
    return 1
  fi
}

# Pods of node $2 of cluster $1 get a veth each, and addresses of the node's ranges.
install_network() {
  local v4 v6
  check_capabilities "$2"
  wait_for_pod_ranges "$1" "$2"
  { read -r v4 && read -r v6; } < <(pod_ranges "$1" "$2")
  docker exec --interactive "$2" sh -c 'mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/10-mcs.conflist' <<CONFIG
{
  "cniVersion": "0.4.0",
  "name": "mcs",
  "plugins": [
    {
      "type": "ptp",
      "ipam": {
        "type": "host-local",
        "ranges": [[{ "subnet": "$v4" }], [{ "subnet": "$v6" }]],
        "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }]
      }
    },
    { "type": "portmap", "capabilities": { "portMappings": true } }
  ]
}
CONFIG
  # systemd mounts no BPF file system in a container. Beside cgroup v1, kind makes the mount of cgroups private, which a
  # volume with mount propagation cannot be.
  docker exec "$2" sh -c '
    echo 1 >/proc/sys/net/ipv4/ip_forward
    echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
    [ -f /sys/fs/cgroup/cgroup.controllers ] || mount --make-rshared /sys/fs/cgroup
    mountpoint --quiet /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf'
}

# Every node of every cluster gets a route to the pods of every other one.
connect() {
  local cluster other node range family
  for cluster in "${CLUSTERS[@]}"; do
    for node in $(nodes "$cluster"); do
      for range in $(pod_ranges "$cluster" "$node"); do
        family=4
        [[ $range == *:* ]] && family=6
        for other in $(for each in "${CLUSTERS[@]}"; do nodes "$each"; done); do
          if [[ $other != "$node" ]]; then
            docker exec "$other" ip "-$family" route replace "$range" via "$(address "$node" "$family")"
          fi
        done
      done
    done
  done
}

install_types() {
  local type
  for type in serviceimports serviceexports; do
    kube "$1" apply --filename "$MCS_API/multicluster.x-k8s.io_$type.yaml"
  done
  kube "$1" apply --filename "$repository/tests/src/cluster/manifests/clusterproperties.yaml"
  kube "$1" wait --for condition=Established --timeout 60s crd/clusterproperties.about.k8s.io
  kube "$1" apply --filename - <<PROPERTIES
apiVersion: about.k8s.io/v1beta1
kind: ClusterProperty
metadata:
  name: cluster.clusterset.k8s.io
spec:
  value: c$1
---
apiVersion: about.k8s.io/v1beta1
kind: ClusterProperty
metadata:
  name: clusterset.k8s.io
spec:
  value: mcs
PROPERTIES
}

up() {
  local cluster node image images
  images=${IMAGES-$(cd "$repository" && cargo xtask image | tail --lines 1)}
  mkdir -p "$state"
  for cluster in "${CLUSTERS[@]}"; do
    say "Cluster $cluster"
    create "$cluster"
    for node in $(nodes "$cluster"); do
      install_network "$cluster" "$node"
    done
  done
  say "Routes"
  connect
  for cluster in "${CLUSTERS[@]}"; do
    say "Types and images of cluster $cluster"
    kube "$cluster" wait --for condition=Ready --timeout 180s nodes --all
    install_types "$cluster"
    for image in $images; do
      kind load image-archive "$image" --name "$(name "$cluster")"
    done
    kube "$cluster" rollout status --namespace kube-system --timeout 180s deployment/coredns
  done
  say "Ready. To make them a clusterset: deploy/kind/clusters.sh mcs"
}

# Asks cluster $1 by name until both clusters have answered.
ask() {
  local end=$((SECONDS + 120)) name=hello.demo.svc.clusterset.local answers=""
  until [[ $answers == *"cluster c1,"* && $answers == *"cluster c2,"* ]]; do
    if ((SECONDS > end)); then
      echo "cluster $1 gets no answers of both clusters: $answers" >&2
      kube "$1" exec --namespace demo client -- nslookup "$name" >&2 || true
      kube "$1" get serviceimports,clusterpeers --all-namespaces >&2
      return 1
    fi
    sleep 1
    # A name that DNS does not know yet fails.
    answers=$(kube "$1" exec --namespace demo client -- sh -c \
      "for i in 1 2 3 4 5 6 7 8; do timeout 3 wget -q -O - http://$name || exit; done") || true
  done
  say "In cluster $1, http://hello.demo.svc.clusterset.local"
  echo "$answers"
}

mcs() {
  local cluster kubeconfigs=()
  if [[ ! -x $mcs ]]; then
    echo "$mcs is missing: cargo xtask image builds it" >&2
    return 1
  fi
  for cluster in "${CLUSTERS[@]}"; do
    kubeconfigs+=("$(kubeconfig "$cluster")")
  done
  say "A clusterset"
  "$mcs" up "${kubeconfigs[@]}" --yes --chart "${MCS_CHART:-$repository/deploy/helm/mcs}" \
    --set "global.vipCidrs=$VIP_RANGES"
  for cluster in "${CLUSTERS[@]}"; do
    sed "s/\$IMAGE/busybox:1.37/; s/\$CLUSTER/c$cluster/" "$repository/xtask/src/clusters/clusterset.yaml" \
      | kube "$cluster" apply --filename -
    kube "$cluster" wait --namespace demo --for condition=Available --timeout 180s deployment/hello
    kube "$cluster" wait --namespace demo --for condition=Ready --timeout 180s pod/client
  done
  for cluster in "${CLUSTERS[@]}"; do
    ask "$cluster"
  done
}

down() {
  local cluster
  for cluster in "${CLUSTERS[@]}"; do
    kind delete cluster --name "$(name "$cluster")" --kubeconfig "$(kubeconfig "$cluster")"
  done
  rm -rf "$state"
}

case ${1:-} in
  up) up ;;
  mcs) mcs ;;
  down) down ;;
  kubeconfig) kubeconfig "${2:?the number of a cluster}" ;;
  *)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
