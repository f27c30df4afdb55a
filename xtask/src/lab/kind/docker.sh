#!/bin/sh
# Runs a Docker of its own, with everything in directory $1. xtask gives it network and mount namespaces of its own: the
# machine's netfilter rules, devices and mounts stay as they are.
set -eu
ip link set lo up
mount -t tmpfs tmpfs /run
# An earlier one may have been killed.
rm -rf "$1/run"
mkdir "$1/run"
exec dockerd --host "unix://$1/docker.sock" --data-root "$1/data" --exec-root "$1/run" --pidfile "$1/docker.pid" \
  --add-runtime nodes="$(dirname "$0")/runc.sh" --default-runtime nodes
