#!/usr/bin/env bash
# @title@
# @engine@
#
# @usage@
set -euo pipefail
cd "$(dirname "$0")"
machine=${1:-0}
read -r -a hosts <<<"${HOSTS:-127.0.0.1}"
if [ "${#hosts[@]}" -ne @machines@ ]; then
  echo "HOSTS must be the addresses of @machines@ machines, in quotes" >&2
  exit 2
fi
mkdir -p logs
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

start() { # NAME [VARIABLE=VALUE...] COMMAND...
  local name=$1
  shift
  echo "$name: logs/$name.log"
  env "$@" >"logs/$name.log" 2>&1 &
}

case $machine in
@cases@
*)
  echo "machines are 0 to @last@" >&2
  exit 2
  ;;
esac
wait -n || true
echo "A server or the router ended: see logs/. The others are stopped." >&2
exit 1
