#!/usr/bin/env bash
# Debian packages of programs that tests run: Slurm, a network for servers over nodes, a
# browser for the report, ssh-keygen for signatures. No daemon is left running: the tests start their own.
set -euo pipefail
missing=()
for package in munge slurmctld slurmd slurm-client iproute2 chromium openssh-client; do
  dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "not installed: ${missing[*]}; only root can, on Debian or Ubuntu: the tests that need them are skipped"
  exit 0
fi
# A policy of its own keeps the packages from starting their daemons.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq -y --no-install-recommends "${missing[@]}"
