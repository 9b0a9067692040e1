# make test is what a newcomer runs and what CI runs.

MODULES  := . x cmd/sema cmd/semavet bench site
PACKAGES := ./... ./x/... ./cmd/sema/... ./cmd/semavet/... ./bench/... ./site/...
BIN      := .bin

.DEFAULT_GOAL := test

.PHONY: install test setup bare play screenshots vet lint race conformance portable alloc model stress chaos fuzz bench readme generate clean

# Where make install puts programs: where go install puts them.
BINDIR ?= $(or $(shell go env GOBIN),$(shell go env GOPATH)/bin)

# The two programs of the command line: sema starts fast and runs commands on this machine,
# sema-full does everything else for it.
install:
	@mkdir -p $(BINDIR)
	CGO_ENABLED=0 go build -trimpath -ldflags=-s -o $(BINDIR)/sema ./cmd/sema/quick
	CGO_ENABLED=0 go build -trimpath -ldflags=-s -o $(BINDIR)/sema-full ./cmd/sema
	@echo "installed sema and sema-full in $(BINDIR)"

# Tests that need a program fail without it, instead of being skipped.
test: export SEMA_TEST_REQUIRE = 1
test: setup vet lint race conformance portable alloc model
	@echo "make test: all passed"

# What the tests need beyond Go: apt packages; and the modules of semavet, whose tests
# load packages with GOPROXY=off and without the workspace.
setup:
	@scripts/setup.sh
	@go mod download
	@cd cmd/semavet && GOWORK=off go mod download

# README's commands on a fresh Debian with only Go, make and git: needs root and
# debootstrap. make bare STAGES="vet race" runs these in place of make test.
bare:
	scripts/bare.sh $(STAGES)

# The playground that the next build of sema embeds. make play SITE=DIR writes a static site instead.
play:
	go run ./x/play/build $(if $(SITE),-site -to $(SITE))

# The pictures of README, from sema serve --demo: needs chromium and tmux.
screenshots: play
	mkdir -p docs/images
	SEMA_IMAGES=$(CURDIR)/docs/images go test ./x/server -run TestDashboard_WritesScreenshots -count=1 -timeout 10m

# On the systems it builds for, and both word sizes.
vet:
	go vet $(PACKAGES)
	@for os in darwin windows freebsd; do echo "GOOS=$$os go vet"; GOOS=$$os go vet $(PACKAGES) || exit 1; done
	GOARCH=386 go vet ./...
	GOOS=js GOARCH=wasm go vet ./x/play/wasm

# gofmt, tidy go.mod files, staticcheck with everything on (staticcheck.conf), semavet,
# which go vet runs since it caches results, and plainwords, which checks the language of
# comments, messages, documents and names.
lint: $(BIN)/staticcheck
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not gofmt'd:" $$unformatted; exit 1; fi
	@for m in $(MODULES); do (cd $$m && GOWORK=off go mod tidy -diff) || exit 1; done
	$(BIN)/staticcheck $(PACKAGES)
	go build -o $(BIN)/ ./cmd/semavet
	go vet -vettool=$(CURDIR)/$(BIN)/semavet $(PACKAGES)
	cd tools && GOWORK=off go test ./plainwords && GOWORK=off go build -o ../$(BIN)/ ./plainwords
	$(BIN)/plainwords

# Tools have a go.mod of their own, so that no library's go.mod names them.
$(BIN)/staticcheck: tools/go.mod tools/go.sum
	cd tools && GOWORK=off go build -o ../$(BIN)/ honnef.co/go/tools/cmd/staticcheck

# Timeouts end what is stuck, also on a machine that is slow and busy: CI ends a run
# after 90 minutes. One package more than processors at a time, since many tests wait for
# servers and browsers.
race:
	go test -race -p $$(($$(getconf _NPROCESSORS_ONLN) + 1)) -timeout 30m $(PACKAGES)

# Every store through thousands of histories, and ten thousand clients that wait:
# too much for the race detector.
conformance:
	go test -run 'Conforms' -timeout 20m ./fleet/memstore ./x/...
	go test -run 'TenThousand' -timeout 20m ./cmd/sema/internal/serve

# The way package host works on macOS and the BSDs, run on Linux.
portable:
	go test -tags sema_portable -timeout 15m ./host

# sync.Pool drops puts under the race detector, so allocations are counted in a
# pass without it, as is the memory of a day of history. Nor can faults in mapped
# files be caught under it.
alloc:
	go test -run 'Allocates|Sizes' -timeout 10m . ./classic ./wfq
	go test -run 'Damaged|Fuzz' -timeout 10m ./host
	go test -run 'Budget' -timeout 15m ./x/server/internal/history

# The hand-off protocol, checked by spin; and that spin finds it when broken.
model:
	docs/model/check.sh
	docs/model/check.sh --mutants

# Five million racing operations and more, the model on a hundred thousand
# random histories, and a thousand processes killed at each kind of semaphore
# that must survive it.
stress:
	go test -timeout 30m -run 'Conserved|Lost|Storm|Asleep' . -args -stress.ops=6000000
	go test -race -timeout 30m -run 'Conserved|Lost|Storm|Asleep' . -args -stress.ops=500000
	go test -timeout 30m -run 'BehavesLikeItsModel' . -args -rapid.checks=40000
	go test -timeout 30m -run 'BehavesLikeItsModel' ./host -args -rapid.checks=3000
	go test -timeout 30m -run 'Crashes|Kill' ./host ./host/sysv -args -stress.rounds=1000
	go test -timeout 30m -tags sema_portable -run 'Crashes' ./host -args -stress.rounds=1000
	go test -timeout 30m -run 'Worlds' ./fleet/protocol -args -sim.seeds=5000
	go test -timeout 30m -run 'Killed' ./x/sqlitestore -args -stress.rounds=1000

# Faults are injected into real stores, a minute each: make chaos FOR=10m for longer.
FOR ?= 1m
chaos: setup
	go -C bench run ./chaos -for $(FOR)

fuzz:
	go test -run '^$$' -fuzz FuzzOperations -fuzztime 2m .
	go test -run '^$$' -fuzz FuzzRecord_IsCheckedWhenRead -fuzztime 1m ./host
	go test -run '^$$' -fuzz FuzzFile_SurvivesAnyContent -fuzztime 1m ./host
	go test -run '^$$' -fuzz FuzzAPI -fuzztime 2m ./x/server
	go test -run '^$$' -fuzz FuzzBatches -fuzztime 2m ./x/internal/storerpc

bench:
	go -C bench run . core
	go -C bench run . host
	go -C bench run . fleet
	go -C bench run . service
	go -C bench run . patterns
	go -C bench run . admit
	go -C bench run . metrics

# Writes the tables and plots of docs/benchmarks.md anew, and docs/scale.md.
readme:
	go -C bench run . core --readme ../docs/benchmarks.md
	go -C bench run . host --readme ../docs/benchmarks.md
	go -C bench run . fleet --readme ../docs/benchmarks.md
	go -C bench run . service --readme ../docs/benchmarks.md
	go -C bench run . patterns --readme ../docs/benchmarks.md
	go -C bench run . admit --readme ../docs/benchmarks.md
	go -C bench run . metrics --readme ../docs/benchmarks.md
	go -C bench run . growth
	go -C bench run ./scale

# Writes the Go code of x/proto and the site's list of Go symbols anew. Tests of x/semav1
# and site/reference fail where they are old.
generate: setup
	scripts/generate.sh
	go generate ./site

clean:
	rm -rf $(BIN)
