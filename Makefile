# Names for what a contributor does. Nothing is decided here: see .ci/run and CONTRIBUTING.md.

PKG  ?= ./... ./examples/...
TIME ?= 1m
HEAD ?= HEAD

.DEFAULT_GOAL := help
.PHONY: help fmt lint test short race bench bench-compare fuzz fast ci nightly

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 16
fmt: ## format the Go files
	gofmt -w $$(git ls-files '*.go')
lint: ## go vet; .ci/run fast adds golangci-lint
	go vet $(PKG)
test: ## test PKG, by default all packages
	go test $(PKG)
short: ## the short tests of PKG
	go test -short $(PKG)
race: ## test PKG with the race detector
	go test -race $(PKG)
bench: ## measure PKG, for example: make bench PKG=./internal
	go test -run '^$$' -bench . -benchmem $(PKG)
bench-compare: ## compare two commits: make bench-compare BASE=main PKG=./internal
	.ci/bench-compare "$(BASE)" "$(HEAD)" "$(PKG)"
fuzz: ## fuzz one target: make fuzz PKG=./internal FUZZ=FuzzOpen TIME=1m
	go test -run '^$$' -fuzz '^$(FUZZ)$$' -fuzztime $(TIME) $(PKG)
fast: ## while you work
	.ci/run fast
ci: ## before a change lands
	.ci/run
nightly: ## the long forms of the tests
	.ci/run nightly
