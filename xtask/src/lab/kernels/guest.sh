#!/bin/sh
# The first process of a machine: makes it ready, runs what the plan says, and turns it off. Lines
# that begin with @mcs are for xtask.
# xtask reads the outcomes of cases, without colours.
export PATH=/usr/sbin:/usr/bin HOME=/root LANG=C.UTF-8 NO_COLOR=1

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
# As systemd does: Debian's kernels begin with the interpreter.
echo 1 >/proc/sys/net/core/bpf_jit_enable
ip link set lo up
# Its device has no node before.
modprobe tun
# Before Linux 5.11 maps count as locked memory, and agents are started without the right to raise its limit.
# shellcheck disable=SC3045 # dash has it
ulimit -l unlimited
# Suites have thousands of sockets, and the first process of a machine may open 4096 files.
# shellcheck disable=SC3045 # dash has it
ulimit -n 65536

# Suites make what they find minutes older than it is, and nothing is older than the machine.
settle() {
    while read -r seconds _ </proc/uptime && [ "${seconds%.*}" -lt 180 ]; do sleep 5; done
}

begin() {
    name=$1
    status=0
    echo "@mcs begin $name"
}

part() {
    "$@" || status=$?
}

end() {
    echo "@mcs end $name $status"
}

# A static program waits until the kernel has entropy, by polling /dev/random, and nothing else happens in this machine.
# A read makes the kernel gather it at once (try_to_generate_entropy in drivers/char/random.c).
# shellcheck disable=SC2034 # only the read counts
read -r entropy </dev/random

echo "@mcs up $(cat /proc/sys/kernel/osrelease)"
# shellcheck source=/dev/null
. /mcs/plan
echo "@mcs down"
echo o >/proc/sysrq-trigger
sleep 60
