# mender-app: build, install and test. `make help` lists the targets.

prefix     ?= /usr
sysconfdir ?= /etc
DESTDIR    ?=
ARCHES     := arm-v7 arm64 amd64

GO       ?= go
BUILD    := build
PROGRAMS := $(filter-out internal,$(notdir $(patsubst %/main.go,%,$(wildcard cmd/*/main.go))))
# k8s is 60 MB and useless without Kubernetes: it is installed only on request.
INSTALLED := $(if $(filter command environment,$(firstword $(origin PROGRAMS))),$(PROGRAMS),$(filter-out k8s,$(PROGRAMS)))
# ./... does not include directories named testdata: name the test support library
# and the end-to-end tests here.
E2E      := ./testdata/bed ./testdata/bed/mutants ./testdata/e2e/...
FAULTS   := ./testdata/flash/... ./testdata/powercut/...
TESTDATA := $(E2E) $(FAULTS) ./testdata/engines/... ./testdata/bed/kube ./testdata/corpus/... ./testdata/armdevice/... ./testdata/server
CORPUS   := ./testdata/corpus/...
ARMS     := $(or $(ARM),armhf arm64)
DEVICE_ROOMS := artifact delta modules store submodules
SCRIPTS  := .ci/run packaging/install.sh packaging/ci/release testdata/bed/setup testdata/bed/device.sh testdata/bed/engine.sh testdata/engines/setup testdata/powercut/faults testdata/bench testdata/fuzz testdata/qemu-user testdata/stage testdata/test32 testdata/retry packaging/inventory/mender-inventory-app $(wildcard testdata/k8snode/*.sh) \
	testdata/sizes testdata/corpus/compare/peers testdata/armdevice/build testdata/armdevice/setup $(wildcard testdata/corpus/compare/tools/*)

bindir        = $(DESTDIR)$(prefix)/bin
modulesdir    = $(DESTDIR)$(prefix)/share/mender/modules/v3
submodulesdir = $(DESTDIR)$(prefix)/share/mender/app-modules/v1
confdir       = $(DESTDIR)$(sysconfdir)/mender
mandir        = $(DESTDIR)$(prefix)/share/man
bashcompdir   = $(DESTDIR)$(prefix)/share/bash-completion/completions
zshcompdir    = $(DESTDIR)$(prefix)/share/zsh/site-functions
fishcompdir   = $(DESTDIR)$(prefix)/share/fish/vendor_completions.d
unitdir       = $(DESTDIR)$(prefix)/lib/systemd/system

# -trimpath and no build time: two builds of one commit give the same bytes.
# The version is the commit that the Go tool stamps in.
VCS     := $(shell git status --porcelain >/dev/null 2>&1 && echo auto || echo false)
GOBUILD  = CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=$(VCS) -ldflags='-s -w'

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build every program for this machine into build/
	@mkdir -p $(BUILD)
	$(if $(PROGRAMS),$(GOBUILD) -o $(BUILD)/ $(addprefix ./cmd/,$(PROGRAMS)))

.PHONY: cross
cross: $(addprefix cross-,$(ARCHES)) ## build for linux/arm/v7, arm64 and amd64 into build/linux-ARCH/

cross-arm-v7: export GOARCH = arm
cross-arm-v7: export GOARM  = 7
cross-arm64:  export GOARCH = arm64
cross-amd64:  export GOARCH = amd64
cross-amd64:  export GOAMD64 = v1
.PHONY: $(addprefix cross-,$(ARCHES))
$(addprefix cross-,$(ARCHES)): cross-%:
	@mkdir -p $(BUILD)/linux-$*
	$(if $(PROGRAMS),GOOS=linux $(GOBUILD) -o $(BUILD)/linux-$*/ $(addprefix ./cmd/,$(PROGRAMS)))

.PHONY: install
install: $(if $(FROM),,build) ## install all programs but k8s (DESTDIR, prefix; PROGRAMS='app k8s mender-app' chooses; FROM=build/linux-arm-v7 for a device; COMPOSE_MODULE=yes, ORCHESTRATOR=yes)
	compose_module='$(COMPOSE_MODULE)' orchestrator='$(ORCHESTRATOR)' programs='$(INSTALLED)' bindir='$(prefix)/bin' packaging/install.sh '$(if $(FROM),$(FROM),$(BUILD))' '$(modulesdir)' '$(submodulesdir)' '$(bindir)' '$(confdir)' '$(mandir)' '$(bashcompdir)' '$(unitdir)' '$(zshcompdir)' '$(fishcompdir)'

.PHONY: install-device install-host
install-device: ## install what a device with Docker Compose needs: app, docker-compose, mender-app
	$(MAKE) --no-print-directory install PROGRAMS='app docker-compose mender-app'
install-host: ## install what a build host needs: app-gen
	$(MAKE) --no-print-directory install PROGRAMS=app-gen

.PHONY: uninstall
uninstall: ## remove what install put there; configuration files stay
	packaging/install.sh --remove '$(modulesdir)' '$(submodulesdir)' '$(bindir)' '$(confdir)' '$(mandir)' '$(bashcompdir)' '$(unitdir)' '$(zshcompdir)' '$(fishcompdir)'

# The model of kills in modules/deploy, and no test of another package.
KILLS := ^Test(Killed|StepFails|RepairKilled|PurgeKilled)Anywhere$$

# Packages that start goroutines outside their tests, and the others.
GOROUTINE  := ^[[:space:]]*go [a-zA-Z_.]+[(]|[.]Go[(]|errgroup
ROOMS       = $(shell $(GO) list ./... | sed 's|^[^/]*/[^/]*/[^/]*|.|' | grep -vE '^[.]/cmd(/|$$)')
CONCURRENT  = $(filter $(ROOMS),$(patsubst %/,./%,$(sort $(dir $(shell git grep -lE '$(GOROUTINE)' -- '*.go' ':!*_test.go')))))
SEQUENTIAL  = $(filter-out $(CONCURRENT),$(ROOMS))

.PHONY: check
check: ## gofmt, vet, staticcheck, errcheck, misspell, shellcheck and the short tests with the race detector
	@unformatted=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "gofmt these: $$unformatted" >&2; exit 1; fi
	$(GO) vet ./... $(TESTDATA)
	$(GO) tool staticcheck ./... $(TESTDATA)
	$(GO) tool errcheck -ignoretests -exclude .errcheck ./... $(TESTDATA)
	$(GO) tool misspell -error -i rela,mosquitto $$(git ls-files '*.go' '*.md' Makefile packaging)
	@if command -v shellcheck >/dev/null; then shellcheck $(SCRIPTS); \
	  elif [ "$$CI" = true ]; then echo "shellcheck is missing" >&2; exit 1; fi
# The race detector makes tests up to ten times as slow: it is for packages that start
# goroutines. delta and modules/deploy start none, but what they call does: the tests of
# delta that encode with every feature run with it, and one of modules/deploy.
# A run takes several packages where it can: one package alone leaves a processor idle.
	$(GO) test -vet=off -race -short -timeout 10m $(CONCURRENT)
	testdata/test32 -vet=off -short -timeout 10m -run 'GoldenDecode|GoldenVCDIFF' ./delta & \
	  $(GO) test -vet=off -race -short -timeout 10m -run 'GoldenEncode|Cancel|WaitsLonger' ./delta ./modules/deploy; race=$$?; \
	  wait $$! && exit $$race
	$(GO) test -vet=off -short -timeout 10m ./modules/deploy ./cmd/... $(filter-out ./modules/deploy,$(SEQUENTIAL))
# The disk of the power-cut tests is a module of its own, to keep its dependencies
# out of go.mod.
	$(GO) vet -C testdata/powercut/disk ./...
	$(GO) test -C testdata/powercut/disk ./...
	@$(MAKE) --no-print-directory sizes

.PHONY: sizes
sizes: cross-arm-v7 ## hold the sizes of the device's programs
	testdata/sizes $(BUILD)/linux-arm-v7

.PHONY: setup
setup: ## install what tests and demo need (Debian, as root; SETUP=no leaves the machine alone)
	@if [ "$(SETUP)" != no ]; then testdata/bed/setup; fi

.PHONY: engines
engines: setup ## unpack the other Docker engines of the test matrix: 45 s and 650 MB each
	@testdata/engines/setup $(ENGINES)

# End-to-end tests that make test leaves to other targets. FAILURES are killed or fail
# (make test-faults), EMULATED runs ARM programs (make test-qemu-user), MIGRATION comes
# from another update module or has another client (make test-migration), HOSTILE
# installs hostile artifacts (make test-hostile), and EXTENDED is slow and rarely breaks
# (make test-extended).
FAILURES := ^Test(DisksAreFull|StoreTurnsReadOnly|EngineGoesAway|EngineKilledInLoad|KilledInTheMiddle|CppClientKilled|ArtifactsOfContainerModulesKilled|PowerLoss.*)$$
EMULATED := ^TestArmPrograms$$
MIGRATION := ^Test(Adopts.*|ArtifactsOfContainerModules|Reference.*|FullArtifactServesTheReference|CallsOfTheClients|CommitOnInstall|StateScripts|DeltaAfterAnOSUpdate|ChangedByMenderArtifact|WithoutMenderClient|InstallsWithoutMenderClient)$$
# The examples, and sub-modules in shell and Python: make test-components runs them alone.
COMPONENTS := ^Test(Example.*|PlainSubmodule|ConformanceOf.*|Submodule.*)$$
HOSTILE := ^TestHostileArtifacts$$
EXTENDED := ^Test(StoreGoesWithTheOS|WhatFailedBefore|BadInputChangesNothing|Compressions|SeveralBases.*|BaseThatDoesNotServe|OneImageUnderTwoNames|TwoImagesOfOneName|NothingStaysBetweenCalls|ContentOfOtherImages|EncryptedSecrets|StopStartPurge|ApplicationsDoNotDisturbEachOther|DataFullOrReadOnly|SlowServiceIsWaitedFor|OtherUserCannotBlock)$$

# Long tests of sub-modules, which make test-submodules runs alone: each sub-module
# against PROTOCOL.md, broken ones, releases that fail, and kills of real processes.
SUBMODULES := ^Test(Conformance|BrokenSubmodules|SubmodulesDocument|FailingReleases|RolloutKilled|KilledProcesses)$$

# The tests of the packages, except those with a target of their own below. Those that
# take longest begin first, so that no processor is idle at the end. They often wait:
# three packages at once keep two processors busy.
OWN_TARGET := /delta(/|$$)|/submodules/k8s$$|/cmd/k8s$$
SLOW       := ./submodules/compose ./cmd/mender-app ./submodules/conformance ./submodules/imagestore/docker

.PHONY: test
test: setup ## check, then the tests of the rooms and of the whole, on real parts: under 20 min on two cores, from its stages
	@testdata/stage 'format, vet, staticcheck and short tests (make check)' 4 18 $(MAKE) --no-print-directory check
	@testdata/stage 'tests of the rooms' 7 14 $(GO) test -vet=off -timeout 40m -p 3 -skip '$(KILLS)' $$($(GO) list $(SLOW) ./... | grep -Ev '$(OWN_TARGET)')
# Go's test cache does not know the programs that these tests run: do not use it.
	@testdata/stage 'the whole, with the real client and engine' 7 7 $(GO) test -vet=off -count=1 -timeout 45m -parallel 4 -skip '$(FAILURES)|$(EMULATED)|$(MIGRATION)|$(HOSTILE)|$(EXTENDED)' $(E2E)

.PHONY: test-rest
test-rest: setup ## what CI runs after make test: migration, faults, Kubernetes; 20 min
	@testdata/stage 'from other update modules, and each client (make test-migration)' 4 16 $(MAKE) --no-print-directory test-migration
	@testdata/stage 'kills, power cuts, disks that fail (make test-faults)' 6 12 $(MAKE) --no-print-directory test-faults
	@testdata/stage 'a Kubernetes node (make test-k8s)' 6 6 $(MAKE) --no-print-directory test-k8s

.PHONY: test-night
test-night: setup ## what is slow and rarely breaks, each with a target of its own: about 50 min
	@testdata/stage 'slow end-to-end tests (make test-extended)' 5 50 $(MAKE) --no-print-directory test-extended
	@testdata/stage 'a fifth of the hostile artifacts (make test-hostile)' 4 45 $(MAKE) --no-print-directory test-hostile COUNT=100
	@testdata/stage 'the newest engine (make test-newest)' 15 41 $(MAKE) --no-print-directory test-newest
	@testdata/stage 'kills at every point of the model (make test-kills)' 10 25 $(MAKE) --no-print-directory test-kills
	@testdata/stage 'long tests of the delta (make test-delta)' 5 15 $(MAKE) --no-print-directory test-delta
	@testdata/stage 'as arm/v7 and arm64 programs (make test-qemu-user)' 5 10 $(MAKE) --no-print-directory test-qemu-user
	@testdata/stage 'an emulated ARM device (make test-arm ARM=armhf)' 5 5 $(MAKE) --no-print-directory test-arm ARM=armhf SHORT='-short -timeout 25m'

.PHONY: test-migration test-components test-extended
test-migration: setup ## artifacts and stores of other update modules, each Mender client, none
	$(GO) test -vet=off -count=1 -timeout 30m -parallel 4 -run '$(MIGRATION)' ./testdata/e2e
test-components: setup ## the examples, and sub-modules in shell and Python, through the Mender client
	$(GO) test -vet=off -count=1 -timeout 30m -parallel 4 -run '$(COMPONENTS)' ./testdata/e2e
test-extended: setup ## slow end-to-end tests: bad input, several bases
	$(GO) test -vet=off -count=1 -timeout 45m -parallel 4 -run '$(EXTENDED)' ./testdata/e2e

.PHONY: test-submodules
test-submodules: setup ## the sub-modules against their protocol, broken ones, releases that fail, killed processes
	$(GO) test -vet=off -timeout 25m -p 3 -run '$(SUBMODULES)' $(SLOW)

.PHONY: test-kills
test-kills: ## the deployment in a world in memory, killed or failing at every point: in a process for each processor
	@mkdir -p $(BUILD) && rm -f $(BUILD)/kills-*.log
	$(GO) test -c -vet=off -o $(BUILD)/deploy.test ./modules/deploy
	cd modules/deploy && seq $$(nproc) | KILLS='$(KILLS)' xargs -P 0 -I PART sh -c \
		'MENDER_APP_PART=PART/$$(nproc) exec ../../$(BUILD)/deploy.test -test.timeout 60m -test.v -test.run "$$KILLS" >../../$(BUILD)/kills-PART.log || { tail -n 100 ../../$(BUILD)/kills-PART.log; exit 1; }'
	grep -h 'figures:' $(BUILD)/kills-*.log

.PHONY: golden
golden: ## write golden deltas that are missing, as that of a new feature
	$(GO) test ./delta -run Golden -update

.PHONY: test-delta
test-delta: ## the delta's long tests, and the pairs of the corpus that are there
	$(GO) test -timeout 20m ./delta/... $(CORPUS)
	$(MAKE) --no-print-directory test-mutants COUNT=4000

.PHONY: test-mutants
test-mutants: export MENDER_APP_MUTANTS = $(or $(COUNT),20000)
test-mutants: export MENDER_APP_SEED = $(or $(SEED),1)
test-mutants: ## decode 20000 damaged deltas and as many VCDIFF files in 32 bits (COUNT=, SEED=)
	testdata/test32 -count=1 -v -timeout 60m -run TestMutants ./delta

.PHONY: test-newest
test-newest: setup ## the newest engine beside this machine's
	$(GO) test -count=1 -timeout 45m -parallel 4 -skip '$(SUBMODULES)' ./testdata/engines/...

.PHONY: test-faults
test-faults: setup ## kills, power cuts, disks that fill and fail
	$(GO) test -count=1 -timeout 30m -parallel 4 $(FAULTS)
	$(GO) test -count=1 -timeout 30m -parallel 4 -run '$(FAILURES)' ./testdata/e2e

# The database and the store of the service are a module of their own, which no other
# target builds.
.PHONY: test-server
test-server: ## what the Mender server takes and sends (DEPLOYMENTS=program of its deployments service)
	$(GO) vet -C testdata/server/backing ./...
	MENDER_APP_DEPLOYMENTS='$(DEPLOYMENTS)' $(GO) test -count=1 -v -timeout 20m ./testdata/server

# COUNT is how many, SEED which. ENGINE is another engine than this machine's:
# 28-containerd, podman (testdata/engines/setup). On a Kubernetes node, cmd/k8s does the
# same.
.PHONY: test-hostile
test-hostile: export MENDER_APP_HOSTILE = $(or $(COUNT),500)
test-hostile: export MENDER_APP_SEED = $(or $(SEED),1)
test-hostile: export MENDER_APP_ENGINE = $(ENGINE)
test-hostile: setup ## install 500 hostile artifacts through the Mender client and mender-app install (COUNT=, SEED=, ENGINE=)
	$(GO) test -count=1 -v -timeout 60m -run '$(HOSTILE)' ./testdata/e2e

# 32-bit, so that a size in an int shows, and the other alignment.
.PHONY: test-qemu-user
test-qemu-user: setup ## run the short tests of the device's rooms as arm/v7 and arm64 programs (needs qemu-user)
	testdata/qemu-user arm $(addprefix ./,$(addsuffix /...,$(wildcard $(DEVICE_ROOMS))))
	testdata/qemu-user arm64 $(addprefix ./,$(addsuffix /...,$(wildcard $(DEVICE_ROOMS))))
	$(GO) test -count=1 -timeout 20m -run '$(EMULATED)' ./testdata/e2e

# ARM=armhf or ARM=arm64 is one of them. SHORT=-short only installs, updates and
# takes back. STEP=cuts goes on from where an earlier run began that step.
.PHONY: test-arm
test-arm: export MENDER_APP_ARM_DEVICES = $(ARMS)
test-arm: export MENDER_APP_ARM_FROM = $(STEP)
test-arm: $(if $(filter armhf,$(ARMS)),cross-arm-v7) $(if $(filter arm64,$(ARMS)),cross-arm64) ## install, update, fail, roll back, cut the power on emulated ARM devices, and measure
	@if [ "$(SETUP)" != no ]; then testdata/armdevice/setup; fi
	$(GO) test -count=1 -v -timeout 6h $(SHORT) ./testdata/armdevice

.PHONY: bench-arm
bench-arm: export MENDER_APP_BENCH = 1
bench-arm: test-arm ## test-arm, and its figures into docs/BENCHMARKS.md

# MENDER_APP_ENGINES chooses some of bed.Engines.
.PHONY: test-engines
test-engines: export MENDER_APP_ENGINES ?= all
test-engines: engines ## test on every Docker engine and image store, from 20.10 to the newest
	$(GO) test -count=1 -v -timeout 60m -parallel 2 -run TestEngines ./testdata/bed
	$(GO) test -count=1 -v -timeout 60m -parallel 2 ./testdata/engines
	$(GO) test -count=1 -v -timeout 60m -parallel 2 -run TestInstallUpdateFailAndRollBack ./testdata/e2e

.PHONY: faults
faults: setup ## kill at every step and cut the power 120 times an engine: takes an hour or two
	testdata/powercut/faults $(ENGINES)

.PHONY: demo
demo: setup build ## install, update, fail, roll back: the product at work in a private room of this machine
	@$(GO) run ./examples/demo -programs $(BUILD)

.PHONY: corpus
corpus: ## build the corpus of image pairs (network; kept in ~/.cache/mender-app) and rebuild each from its delta
	$(GO) run ./testdata/corpus/build
	MENDER_APP_CORPUS_ALL=1 $(GO) test -count=1 -timeout 60m -v -run TestRoundTrip $(CORPUS)

# PAIRS="go-armv7 moved" chooses pairs of the corpus, PAIRS=all takes all: hours.
.PHONY: bench
bench: setup cross build k8snode ## measure beside the peers and write docs/BENCHMARKS.md: an hour
	PAIRS='$(PAIRS)' testdata/bench >$(BUILD)/BENCHMARKS.md
	mv $(BUILD)/BENCHMARKS.md docs/BENCHMARKS.md
	$(GO) run ./docs/pictures

# PAIRS="go-mqtt-armv7" chooses pairs, TOOL=xdelta3 one tool. What was measured is kept:
# it goes on where it was stopped.
.PHONY: bench-public
bench-public: build ## measure delta tools on public image pairs: docs/benchmark.csv and its plots, hours
	$(GO) run ./testdata/corpus/compare $(if $(TOOL),-tool $(TOOL)) $(PAIRS)
	$(GO) run ./docs/pictures

# FUZZ=delta/vcdiff picks some, by a regular expression over PACKAGE/TARGET.
.PHONY: fuzz
fuzz: ## fuzz every target for FUZZTIME (1h) each, one after the other, until the first finding
	@FUZZ='$(FUZZ)' FUZZTIME='$(FUZZTIME)' testdata/fuzz

.PHONY: clean
clean: ## remove build/
	rm -rf $(BUILD)

# make k8snode, make test-k8s
include testdata/k8snode/k8s.mk
