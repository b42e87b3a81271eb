# Everpost's build. `make help` lists what there is.
#
# Three modules live here: the root, standalone/ and the tests in deploy/helm/ (docs/adr/0001, Go modules). Go decides what has to be rebuilt, so no
# target lists sources; only the tools, which have versions of their own, are files with rules.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Two cores are busy with one step already, and the order of the steps is part of what `make ci` says.
.NOTPARALLEL:

GO ?= go

# Without a home directory that can be written to, Go's caches live in the tree (ignored by git and by ./...).
go-dir = $(shell dir="$$($(GO) env $(1) 2>/dev/null)"; \
	if [[ "$$dir" == /* ]] && mkdir -p "$$dir" 2>/dev/null && [[ -w "$$dir" ]]; then echo "$$dir"; else echo "$(CURDIR)/.cache/$(2)"; fi)
export GOCACHE := $(call go-dir,GOCACHE,go-build)
export GOMODCACHE := $(call go-dir,GOMODCACHE,go-mod)
export GOPATH := $(call go-dir,GOPATH,go)
export GOLANGCI_LINT_CACHE ?= $(CURDIR)/.cache/golangci-lint

# The version comes from git here, not from Go's own stamping, which fails in a checkout that belongs to someone else.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
BUILD := $(GO) build -buildvcs=false -ldflags '-X main.version=$(VERSION)'

# Tools: changing a version, or Go's, builds the tool again, in a directory of its own.
GOLANGCI_LINT_VERSION := v2.15.0
WORKFLOWCHECK_VERSION := v0.6.0
GOVULNCHECK_VERSION := v1.8.0
ACTIONLINT_VERSION := v1.7.12
# Newer ones need a newer Go.
GORELEASER_VERSION := v2.13.0
TOOLS := $(CURDIR)/.tools/$(shell $(GO) env GOVERSION)
GOLANGCI_LINT := $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION)/golangci-lint
WORKFLOWCHECK := $(TOOLS)/workflowcheck-$(WORKFLOWCHECK_VERSION)/workflowcheck
GOVULNCHECK := $(TOOLS)/govulncheck-$(GOVULNCHECK_VERSION)/govulncheck
ACTIONLINT := $(TOOLS)/actionlint-$(ACTIONLINT_VERSION)/actionlint
GORELEASER := $(TOOLS)/goreleaser-$(GORELEASER_VERSION)/goreleaser

# The race detector watches the root module, where the concurrency of our own is; it needs a C compiler.
# `make test RACE=` runs without.
RACE ?= $(shell [[ "$$($(GO) env CGO_ENABLED)" == 1 ]] && command -v "$$($(GO) env CC)" >/dev/null && echo -race)
TEST_TIMEOUT ?= 20m
TEST_FLAGS ?=
FUZZ_TIME ?= 10m

# Tests find a PostgreSQL by themselves; this starts one for all packages together, and stops it.
WITH_POSTGRES := bin/withpg --
# Not spelled $(MAKE) where it is used: make runs such lines even when it is asked to print them only.
SUBMAKE = $(MAKE) --no-print-directory

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## build bin/everpost (everything in one binary) and bin/everpost-cluster
	cd standalone && $(BUILD) -o ../bin/everpost .
	$(BUILD) -o bin/everpost-cluster ./cmd/everpost

.PHONY: run
run: build ## build if needed, then run a whole installation here: PostgreSQL, Temporal, Web UI, API, worker
	exec bin/everpost standalone

.PHONY: test
test: bin/withpg ## run the tests of all modules, PostgreSQL and Temporal included
	$(WITH_POSTGRES) $(SUBMAKE) test-modules

.PHONY: test-long
test-long: bin/withpg ## the same with the long tests (large data, isolation, many seeds, other shapes), after fuzzing
	$(WITH_POSTGRES) tools/fuzz $(FUZZ_TIME)
	EVERPOST_TEST_LONG=1 $(WITH_POSTGRES) $(SUBMAKE) test-modules TEST_TIMEOUT=60m TEST_FLAGS=-count=1
	$(SUBMAKE) test-shapes

.PHONY: test-shapes
test-shapes: ## the end-to-end tests against two serve processes, then against two APIs and three workers
	cd standalone && EVERPOST_TEST_SHAPE=serve $(GO) test -count=1 -timeout 20m ./e2e
	cd standalone && EVERPOST_TEST_SHAPE=split $(GO) test -count=1 -timeout 20m ./e2e

.PHONY: contract
contract: build ## let a tool from npm make requests from openapi.yaml, for 10 minutes; needs npm and Java
	tools/contract bin/everpost

# For example BENCH_FLAGS='-only throughput -runs 1'; bin/bench -help lists them.
BENCH_FLAGS ?=

.PHONY: bench
bench: build bin/bench ## measure what Everpost does on this machine: most of an hour, BENCH_FLAGS=-quick for minutes
	exec bin/bench $(BENCH_FLAGS)

.PHONY: bench-compare
bench-compare: bin/bench ## compare the CPU per delivery of the last two runs of bench; fail if it grew by more than 20 %
	exec bin/bench compare

# The kept run that CI compares with. Another machine has other figures: the plain loop, which both show, says how much faster it is.
BENCH_REFERENCE := bench/results/2026-11-29-reference.json

.PHONY: bench-print
bench-print: build bin/bench ## measure two closed loops for a minute, and print them beside the kept run, whatever the figures
	rm -rf .cache/bench
	bin/bench -only throughput,fan-out -runs 1 -results .cache/bench
	bin/bench compare -print $(BENCH_REFERENCE) .cache/bench/*.json

.PHONY: bin/bench
bin/bench:
	$(GO) build -buildvcs=false -o $@ ./bench

# For example ISOLATION_FLAGS='-only hang -quick'; bin/isolation -help lists them.
ISOLATION_FLAGS ?= -pictures docs/isolation

.PHONY: isolation
isolation: build bin/isolation ## measure that an unhealthy receiver does not delay other endpoints: half an hour (docs/isolation.md)
	exec bin/isolation $(ISOLATION_FLAGS)

.PHONY: bin/isolation
bin/isolation:
	$(GO) build -buildvcs=false -o $@ ./bench/isolation

# For example FAULTS_FLAGS='-classes kill-all -shapes split -seed 7'; bin/faults -help lists them.
FAULTS_FLAGS ?= -seeds 3 -budget 1h
# The runs, planted bugs and soak that docs/reliability.md shows.
FAULTS_RESULTS := standalone/faults/results

.PHONY: faults
faults: bin/faults ## let installations fail in every way under load, and check that nothing is lost (docs/reliability.md)
	exec bin/faults $(FAULTS_FLAGS)

SOAK_TIME ?= 60m

.PHONY: soak
soak: bin/faults ## keep an installation under load for an hour, with a fault a minute, and check that nothing it uses grows
	exec bin/faults -soak $(SOAK_TIME) -shapes split -results $(FAULTS_RESULTS)

.PHONY: planted-bugs
planted-bugs: bin/faults ## plant one bug after the other, and check that the faults find them: half an hour
	exec bin/faults -planted all -results $(FAULTS_RESULTS)

.PHONY: faults-report
faults-report: bin/faults ## regenerate the tables of docs/reliability.md from the kept results
	exec bin/faults -report docs/reliability.md -results $(FAULTS_RESULTS)

.PHONY: bin/faults
bin/faults:
	cd standalone && $(GO) build -buildvcs=false -o ../$@ ./faults

# Not for the command line: what `make test` runs once it has a PostgreSQL.
.PHONY: test-modules
test-modules:
	# Without vet, which reads all that the modules depend on: lint has it. With the race detector, collecting garbage is much of the work.
	GOGC=400 $(GO) test $(RACE) -vet=off -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) ./...
	# One package at a time: each starts whole Temporals, which bind their ports by number.
	cd standalone && $(GO) test -p 1 -vet=off -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) ./...
	cd deploy/helm && $(GO) test -vet=off -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) ./...

.PHONY: bin/withpg
bin/withpg:
	$(GO) build -buildvcs=false -o $@ ./internal/postgrestest/withpg

# The tests come last, so that the run ends with go test's own lines.
.PHONY: ci
ci: fmt-check lint workflowcheck vulncheck bench-print test ## what .ci/run runs: format, lint, determinism, vulnerabilities, builds, figures, tests

.PHONY: lint
lint: $(GOLANGCI_LINT) ## lint all modules
	$(GOLANGCI_LINT) run ./...
	cd standalone && $(GOLANGCI_LINT) run --config ../.golangci.yaml ./...
	cd deploy/helm && $(GOLANGCI_LINT) run --config ../../.golangci.yaml ./...

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## format all modules
	$(GOLANGCI_LINT) fmt

.PHONY: fmt-check
fmt-check: $(GOLANGCI_LINT) ## fail if something is not formatted, and show what
	$(GOLANGCI_LINT) fmt --diff

.PHONY: workflowcheck
workflowcheck: $(WORKFLOWCHECK) ## fail if workflow code is not deterministic
	$(WORKFLOWCHECK) -test=false ./workflows/... ./worker/...

.PHONY: vulncheck
vulncheck: $(GOVULNCHECK) ## fail if something is called that is known to be vulnerable; skipped where the database of that is out of reach
	tools/vulncheck $(GOVULNCHECK)

# The tools take minutes to build, so neither `make test` nor `make ci` runs this; the workflow in .github does.
.PHONY: check-release
check-release: $(ACTIONLINT) $(GORELEASER) ## check the workflows in .github and .goreleaser.yaml
	$(ACTIONLINT) -shellcheck= -pyflakes=
	tools/check-goreleaser $(GORELEASER)

.PHONY: docs
docs: ## regenerate parts of docs/: the tables of settings, the tables and pictures of retry presets
	$(GO) generate ./tools/retryplot
	$(GO) test -count=1 -run '^TestConfigurationShowsEverySetting$$' ./docs -update

.PHONY: pictures
pictures: build ## take the pictures of the console in docs/console again; needs Chromium, which root on Debian gets by itself
	cd standalone && EVERPOST_TEST_BINARY=$(CURDIR)/bin/everpost EVERPOST_PICTURES=$(CURDIR)/docs/console \
		$(GO) test -count=1 -run '^TestPictures$$' ./e2e

.PHONY: clean
clean: ## remove what was built (not the data of an installation)
	rm -rf bin .tools
	if [[ -d .cache ]]; then chmod -R u+w .cache; rm -rf .cache; fi

$(GOLANGCI_LINT):
	GOBIN=$(@D) GOFLAGS= $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

$(WORKFLOWCHECK):
	GOBIN=$(@D) GOFLAGS= $(GO) install go.temporal.io/sdk/contrib/tools/workflowcheck@$(WORKFLOWCHECK_VERSION)

$(ACTIONLINT):
	GOBIN=$(@D) GOFLAGS= $(GO) install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION)

$(GORELEASER):
	GOBIN=$(@D) GOFLAGS= $(GO) install github.com/goreleaser/goreleaser/v2@$(GORELEASER_VERSION)

$(GOVULNCHECK):
	GOBIN=$(@D) GOFLAGS= $(GO) install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)
