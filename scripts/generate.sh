#!/usr/bin/env bash
# Regenerates the Go code of x/proto, into x or the given directory. It needs
# protoc (Debian's protobuf-compiler); its plugins come from the tools module.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
out=$(realpath "${1:-$root/x}")
plugins=$(mktemp -d)
trap 'rm -rf "$plugins"' EXIT
(cd "$root/tools" && GOWORK=off go build -o "$plugins/" \
	google.golang.org/protobuf/cmd/protoc-gen-go connectrpc.com/connect/cmd/protoc-gen-connect-go)
cd "$root/x/proto"
PATH=$plugins:$PATH protoc \
	--go_out="$out" --go_opt=module=github.com/sema-go/sema/x \
	--connect-go_out="$out" --connect-go_opt=module=github.com/sema-go/sema/x --connect-go_opt=simple \
	sema/v1/*.proto
