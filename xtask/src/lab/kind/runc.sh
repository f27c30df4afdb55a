#!/bin/sh
# runc for nodes of kind: a privileged container gets the capabilities that root has here. runc refuses one that root lacks, and
# Docker before 23 leaves out CAP_PERFMON, CAP_BPF and CAP_CHECKPOINT_RESTORE. runc gets their lists as files: config.json in the
# directory after --bundle for a container, and the file after --process for `docker exec`.
set -eu
capabilities=$(capsh --decode="$(sed -n 's/^CapBnd:[[:space:]]*//p' /proc/self/status)" | sed 's/.*=//')
previous=""
for argument; do
  case $previous in
  --bundle) lists=$argument/config.json ;;
  --process) lists=$argument ;;
  *) lists="" ;;
  esac
  previous=$argument
  [ -f "$lists" ] || continue
  # Only privileged containers have CAP_SYS_MODULE.
  jq --arg names "$capabilities" '
    ($names | ascii_upcase | split(",")) as $all
    | (.. | objects | .capabilities? | objects) |= map_values(if index("CAP_SYS_MODULE") then $all else . end)
  ' "$lists" >"$lists.new"
  mv "$lists.new" "$lists"
done
exec runc "$@"
