#!/usr/bin/env bash
# Installs what the tests need beyond Go, on Debian: as root with apt; otherwise
# it prints the command to run.
set -euo pipefail

missing=()
# type -P finds files only: tests cannot start a builtin of this shell.
need() { type -P "$1" >/dev/null || missing+=("$2"); }

need git git            # make lint
need curl curl          # the command that sema serve prints
need kill procps        # signals to sema top
need gcc gcc            # the race detector, and C programs of tests
need spin spin          # docs/model
need python3 python3    # a program that shares semaphores of host/posix, and programs of the documents
need node nodejs        # programs of the documents
need ipcs util-linux    # host/sysv
need protoc protobuf-compiler # scripts/generate.sh
need tmux tmux          # a real terminal for sema top
need chromium chromium  # a real browser for the dashboard
need sqlite3 sqlite3    # reads x/sqlitestore's tables
need prometheus prometheus # alert rules and dashboards: also promtool
need redis-server redis-server
need redis-cli redis-tools
need psql postgresql-client
need pgbouncer pgbouncer
need etcd etcd-server
need etcdctl etcd-client
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
[ -e /usr/include/stdlib.h ] || missing+=(libc6-dev)
[ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates) # Go downloads modules

if [ ${#missing[@]} -eq 0 ]; then
	exit 0
fi
line="apt-get install -y --no-install-recommends ${missing[*]}"
if ! command -v apt-get >/dev/null; then
	echo "setup: missing: ${missing[*]}; install them with your system's package manager" >&2
	exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "setup: missing packages; run: sudo $line" >&2
	exit 1
fi
echo "setup: $line"
# Tests start their own servers, so keep the packages from starting theirs.
if [ ! -e /usr/sbin/policy-rc.d ]; then
	printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
	chmod +x /usr/sbin/policy-rc.d
	trap 'rm -f /usr/sbin/policy-rc.d' EXIT
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive $line >/dev/null
