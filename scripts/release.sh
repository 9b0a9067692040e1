#!/usr/bin/env bash
# Makes the commit and the tags of a release in a clone, and installs the programs from these
# tags, as `go install PROGRAM@VERSION` does for users. It pushes nothing.
#
#   scripts/release.sh v1.2.3 DIRECTORY    # a directory that does not exist yet
#
# In the repository the modules name each other by `replace` lines, and `go install` rejects
# a program whose go.mod has one. So the commit of a release requires the other modules by
# their versions. It is no commit of a branch: only the tags lead to it.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1:-} clone=${2:-}
if ! [[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[a-z0-9.]+)?$ && -n $clone && ! -e $clone ]]; then
	echo "usage: scripts/release.sh v1.2.3 DIRECTORY (which must not exist)" >&2
	exit 64
fi
git clone --quiet . "$clone"
clone=$(cd "$clone" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$clone"
git checkout --quiet --detach
git config user.email >/dev/null || git config user.email release@localhost
git config user.name >/dev/null || git config user.name release
go generate ./site # the list of symbols that sema serve embeds

# The modules of this repository come from the tags of the clone, all others from the cache
# or the proxy. A cache of its own: the usual one may contain an earlier try of this version.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$clone.insteadOf" GIT_CONFIG_VALUE_0=https://github.com/sema-go/sema
GOPROXY="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"
export GOPROXY GOPRIVATE='github.com/sema-go/*' GOWORK=off GOFLAGS='-mod=mod -modcacherw'
fresh() { export GOMODCACHE="$work/cache$((++caches))"; } # tags that moved are read anew
caches=0
fresh

# require DIRECTORY MODULE... lets a module require others by their version.
require() {
	local directory=$1 module
	shift
	for module in "$@"; do
		go -C "$directory" mod edit -dropreplace="$module" -require="$module@$version"
	done
	go -C "$directory" mod tidy
}

# tag MODULE... lets the tags of modules name the latest commit. What a tag contains does not
# change when it moves: only files of other modules differ.
tag() {
	git commit --quiet --all --allow-empty --message "Release $version"
	for module in "$@"; do git tag --force "${module:+$module/}$version" >/dev/null; done
}

root=github.com/sema-go/sema
tag ''
require x $root
require site $root
require cmd/semavet $root
tag x site cmd/semavet
require cmd/sema $root $root/site $root/x
go -C bench mod tidy # stays in the repository, and requires what x does
tag '' x site cmd/semavet cmd/sema
for module in . x site cmd/sema cmd/semavet bench; do go -C $module mod tidy -diff; done # as make lint does

fresh
export GOBIN="$work/bin"
(cd "$work" && go install -trimpath $root/cmd/sema@"$version" $root/cmd/sema/quick@"$version" && go install -trimpath $root/cmd/semavet@"$version")
installed=$("$GOBIN/sema" version)
if [[ $installed != "sema $version "* ]]; then
	echo "release: the installed program states: $installed" >&2
	exit 1
fi
echo "$installed"
echo "The tags are in $clone. Push those of the modules first, and $version last:"
echo "  git -C $clone push REMOTE x/$version site/$version cmd/semavet/$version cmd/sema/$version && git -C $clone push REMOTE $version"
