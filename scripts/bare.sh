#!/usr/bin/env bash
# Runs the commands of README.md on a Debian that has only Go, make and git.
#
#	scripts/bare.sh            everything, with make test: half an hour or more
#	scripts/bare.sh vet race   these Makefile targets instead of test
#
# It creates a fresh Debian of this machine's release in a temporary directory,
# clones HEAD into it, and runs the commands of README's first shell block there,
# and make test.
# The apt sources, certificates, name servers and Go settings are this machine's.
# It needs root and debootstrap (apt-get install debootstrap).
#
# SEMA_BARE_LIMIT bounds the total time, in seconds (default 7200).
set -euo pipefail

limit=${SEMA_BARE_LIMIT:-7200}
stages=("$@")
[ ${#stages[@]} -gt 0 ] || stages=(test)
repository=$(cd "$(dirname "$0")/.." && pwd)

log() { printf 'bare: %s  %s\n' "$(date +%T)" "$*"; }
fail() {
	echo "bare: $*" >&2
	exit 1
}

# populate creates the Debian in $root: a minimal system, this machine's apt and
# resolver configuration, make and git, and a clone of HEAD.
populate() {
	local release mirror proxy= part
	release=$(. /etc/os-release && echo "$VERSION_CODENAME")
	mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
		awk -v release="$release" '$2 == release { print $1; exit }')
	[ -n "$mirror" ] || fail "apt has no source for $release"
	eval "$(apt-config shell proxy Acquire::http::Proxy)"
	log "debootstrap $release"
	http_proxy=${proxy:-${http_proxy:-}} debootstrap --variant=minbase "$release" "$root" "$mirror" >"$work/log" 2>&1 ||
		fail "debootstrap: $(tail -n 5 "$work/log")"
	mount_all
	for part in sources.list sources.list.d apt.conf.d preferences.d trusted.gpg.d keyrings auth.conf.d; do
		rm -rf "$root/etc/apt/$part"
		[ ! -e "/etc/apt/$part" ] || cp -aL "/etc/apt/$part" "$root/etc/apt/"
	done
	cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
	mkdir -p "$root/etc/ssl/certs" # Go downloads modules over TLS
	cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
	log "apt-get install make git"
	inside 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends make git' \
		>"$work/log" 2>&1 || fail "apt-get: $(tail -n 5 "$work/log")"
	git clone -q "$repository" "$root/root/sema"
	git -C "$root/root/sema" checkout -q --detach "$(git -C "$repository" rev-parse HEAD)"
}

# mount_all mounts what programs expect, and Go, read-only.
mount_all() {
	mount -t proc proc "$root/proc"
	mount -t sysfs sysfs "$root/sys"
	mount -t tmpfs -o mode=755 tmpfs "$root/dev"
	mkdir "$root/dev/pts" "$root/dev/shm"
	mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$root/dev/pts"
	mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
	ln -s pts/ptmx "$root/dev/ptmx"
	ln -s /proc/self/fd "$root/dev/fd"
	ln -s /proc/self/fd/0 "$root/dev/stdin"
	ln -s /proc/self/fd/1 "$root/dev/stdout"
	ln -s /proc/self/fd/2 "$root/dev/stderr"
	local device
	for device in null zero full random urandom tty; do
		touch "$root/dev/$device"
		mount --bind "/dev/$device" "$root/dev/$device"
	done
	mkdir -p "$root/usr/local/go"
	mount --bind "$(go env GOROOT)" "$root/usr/local/go"
	mount -o remount,bind,ro "$root/usr/local/go"
}

# inside runs a command in the Debian, in the clone, with this machine's Go
# settings and nothing else of its environment.
inside() {
	local settings=() name
	for name in GOPROXY GOSUMDB GONOSUMDB GONOPROXY GOPRIVATE GOINSECURE GOFLAGS GOTOOLCHAIN; do
		settings+=("$name=$(go env "$name")")
	done
	chroot "$root" /usr/bin/env -i "${settings[@]}" HOME=/root LANG=C.UTF-8 \
		PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		bash -c 'cd /root/sema 2>/dev/null || cd; eval "$1"' bash "$1"
}

# serve starts the server of a README command on a free port, acquires a permit
# from it, and sends SIGINT to its process group, as a terminal does, because go
# run starts the server as a child.
serve() {
	inside "set -m; SEMA_LISTEN=127.0.0.1:0 $1 >/tmp/serve.log 2>&1 & server=\$!"'
		until grep -q "^  try" /tmp/serve.log; do
			kill -0 "$server" 2>/dev/null || { echo "the server does not start: $(cat /tmp/serve.log)" >&2; exit 1; }
			sleep 0.2
		done
		cat /tmp/serve.log
		port=$(sed -n "s|^  API .*:\([0-9]*\)/.*|\1|p" /tmp/serve.log)
		exec 3<>"/dev/tcp/127.0.0.1/$port"
		printf "POST /v1/semaphores/demo/leases?capacity=3 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n" >&3
		reply=$(cat <&3)
		kill -INT -- "-$server"
		wait "$server" || true
		case $reply in "HTTP/1.1 201"*) ;; *) echo "unexpected reply: $reply" >&2; exit 1 ;; esac'
}

# try runs README's commands, and then the given Makefile targets, or make test.
try() {
	local command stage
	while read -r command; do
		case $command in
		*' serve' | *' serve --demo')
			log "$command"
			serve "$command"
			;;
		*)
			log "$command"
			inside "$command"
			;;
		esac
	done < <(awk '/^```sh$/ { block = 1; next } block && /^```$/ { exit } block' "$root/root/sema/README.md" | sed 's/ *#.*//')
	for stage in "${stages[@]}"; do
		log "make $stage"
		inside "SEMA_TEST_REQUIRE=1 make $stage"
	done
}

if [ "${SEMA_BARE_WORK:-}" ]; then
	work=$SEMA_BARE_WORK root=$SEMA_BARE_WORK/root
	populate
	try
	exit
fi

[ "$(id -u)" -eq 0 ] || fail "needs root to create namespaces and mounts"
for program in debootstrap unshare git go; do
	type -P "$program" >/dev/null || fail "needs $program (apt-get install -y debootstrap util-linux git; Go in PATH)"
done

# The rest runs in its own mount, process and IPC namespaces. However it ends,
# its mounts and processes end with it. The directory has no mounts outside of
# the namespace, so rm removes only the copy.
work=$(mktemp -d)
child=
cleanup() {
	set +e
	# unshare waits for the first process of the namespace, whose end ends all
	# others.
	if [ -n "$child" ]; then
		kill -KILL $(cat "/proc/$child/task/$child/children")
		wait "$child"
	fi
	rm -rf --one-file-system "$work"
}
trap 'cleanup 2>/dev/null' EXIT
for signal in INT TERM HUP; do
	trap "fail 'ended by SIG$signal'" "$signal"
done
SEMA_BARE_WORK=$work unshare --mount --pid --fork --kill-child --mount-proc --ipc "$0" "${stages[@]}" &
child=$!
until ! kill -0 "$child" 2>/dev/null; do
	[ "$SECONDS" -lt "$limit" ] || fail "not done after $limit s"
	sleep 1
done
status=0
wait "$child" || status=$?
child=
[ "$status" -eq 0 ] || fail "failed: exit status $status"
log "all passed"
