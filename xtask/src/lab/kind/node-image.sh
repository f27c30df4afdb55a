#!/usr/bin/env bash
# Makes the image of kind's nodes from Debian's packages and from the cluster's programs, which are in the PATH. It uses no
# registry of images. debootstrap takes root.
#
#   node-image.sh IMAGE FILES
#
# IMAGE is the name to give it, and FILES the directory images/base/files of kind's source.
set -euo pipefail
image=$1 files=$2
version=$(kubeadm version --output short)

# systemd of later releases does not boot on cgroup v1.
readonly DEBIAN=bookworm
readonly PACKAGES=systemd,systemd-sysv,dbus,libseccomp2,pigz,runc,iptables,nftables,kmod,iproute2,conntrack,ethtool,socat,mount,\
ebtables,procps,ca-certificates,curl,jq,hostname,libpam-systemd,nfs-common,openssl,busybox-static

work=$(mktemp --directory --tmpdir="${TMPDIR:-/var/tmp}")
trap 'rm -rf "$work"' EXIT
root=$work/root

# Copies programs $2... of the PATH into directory $1.
programs() {
  local directory=$1 program
  shift
  mkdir -p "$directory"
  for program in "$@"; do
    cp --dereference "$(command -v "$program")" "$directory"
  done
}

# Writes an archive as `docker save` does: image $1, with the words $2 as its entrypoint, and directory $3 as its only layer.
archive() {
  local parts=$work/parts
  mkdir -p "$parts" "$root/kind/images"
  tar --create --file "$parts/layer.tar" --owner 0 --group 0 --directory "$3" .
  cat >"$parts/config.json" <<CONFIG
{
  "architecture": "$(dpkg --print-architecture)",
  "os": "linux",
  "config": { "Entrypoint": [$2] },
  "rootfs": { "type": "layers", "diff_ids": ["sha256:$(sha256sum "$parts/layer.tar" | cut --delimiter ' ' --fields 1)"] }
}
CONFIG
  echo "[{\"Config\": \"config.json\", \"RepoTags\": [\"$1\"], \"Layers\": [\"layer.tar\"]}]" >"$parts/manifest.json"
  tar --create --file "$root/kind/images/${1//[\/:]/-}.tar" --directory "$parts" .
  rm -r "$3"
}

echo "node-image: Debian $DEBIAN" >&2
debootstrap --variant=minbase --include="$PACKAGES" "$DEBIAN" "$root" >&2

echo "node-image: images of Kubernetes $version" >&2
for name in $(kubeadm config images list --kubernetes-version "$version"); do
  program=${name##*/}
  program=${program%%:*}
  case $program in
    # containerd has the name of another version.
    pause) continue ;;
    kube-proxy)
      # iptables loads its extensions, so their libraries are needed too.
      mkdir "$work/image"
      chroot "$root" bash <<'PROXY' | tar --extract --file - --directory "$work/image"
files=$(type -P sh nft conntrack iptables{,-save,-restore} ip6tables{,-save,-restore} && ls /usr/lib/*/xtables/*.so)
libraries=$(ldd $files | grep --only-matching "/[^ :]*" | sort --unique)
printf '%s\n' $files $libraries | sed s,/,, | tar --create --file - --dereference --directory / --files-from -
PROXY
      ;;
  esac
  programs "$work/image/usr/local/bin" "$program"
  archive "$name" "\"/usr/local/bin/$program\"" "$work/image"
done
sandbox=$(sed --quiet 's/.*sandbox_image = "\(.*\)"/\1/p' "$files/etc/containerd/config.toml")
for name in "$sandbox" docker.io/library/busybox:1.37; do
  mkdir -p "$work/image/bin" "$work/image/tmp"
  cp "$root/bin/busybox" "$work/image/bin"
  for applet in $(chroot "$root" busybox --list); do
    [[ $applet == busybox ]] || ln --symbolic busybox "$work/image/bin/$applet"
  done
  archive "$name" '"/bin/sleep", "2147483647"' "$work/image"
done

# What images/base/Dockerfile of kind does.
echo "node-image: programs and units" >&2
cp --recursive --no-preserve=mode "$files/etc" "$files/kind" "$root"
programs "$root/usr/local/bin" containerd containerd-shim-runc-v2 ctr
programs "$root/usr/bin" kubelet kubectl kubeadm
programs "$root/opt/cni/bin" host-local loopback ptp portmap
install "$files"/usr/local/bin/* "$root/usr/local/bin"
chmod 755 "$root"/kind/bin/*
find "$root/lib/systemd/system/sysinit.target.wants" -name systemd-tmpfiles-setup.service -delete
rm -f "$root"/lib/systemd/system/{multi-user,local-fs,basic}.target.wants/* "$root"/etc/systemd/system/*.wants/* \
  "$root"/lib/systemd/system/sockets.target.wants/*{udev,initctl}*
echo ReadKMsg=no >>"$root/etc/systemd/journald.conf"
mkdir -p "$root/etc/kubernetes/manifests" "$root/kind/manifests" "$root"/etc/systemd/system/{containerd,kubelet}.service.d
: >"$root/etc/machine-id"
printf %s "$version" >"$root/kind/version"
cat >"$root/kind/manifests/default-storage.yaml" <<'STORAGE'
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: standard}
provisioner: kubernetes.io/no-provisioner
STORAGE
# Docker may be without CAP_SYS_RESOURCE, which a lower OOM score takes.
sed --in-place 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$root/etc/containerd/config.toml"
# The kubelet starts once containerd has the images.
cat >"$root/etc/systemd/system/containerd.service.d/images.conf" <<'UNIT'
[Service]
ExecStartPost=/bin/sh -c 'for image in /kind/images/*.tar; do ctr --namespace k8s.io images import "$image" || exit; done'
UNIT
cat >"$root/etc/systemd/system/kubelet.service.d/images.conf" <<'UNIT'
[Unit]
After=containerd.service
UNIT
chroot "$root" bash -euo pipefail <<'UNITS'
systemctl --quiet enable kubelet containerd undo-mount-hacks
systemctl --quiet mask systemd-binfmt
hook='{path: "/kind/bin/mount-product-files.sh"}'
ctr oci spec | jq ".hooks.createContainer += [$hook] | del(.process.rlimits)" >/etc/containerd/cri-base.json
UNITS

echo "node-image: $image" >&2
tar --create --directory "$root" --exclude ./var/cache/apt/archives/*.deb . \
  | docker import --change 'ENV container=docker' --change 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]' - "$image" >&2
