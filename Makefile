# mender-app: build, install and test. `make help` lists the targets that everybody
# needs, which ## describes. The others, which # describes, are for work on one part.

prefix     ?= /usr
sysconfdir ?= /etc
DESTDIR    ?=
ARCHES     := arm-v7 arm64 amd64 riscv64
FORMATS    := deb rpm apk ipk archlinux

GO       ?= go
BUILD    := build
PROGRAMS := $(filter-out internal,$(notdir $(patsubst %/main.go,%,$(wildcard cmd/*/main.go))))
# k8s is 60 MB and useless without Kubernetes: it is installed only on request.
INSTALLED := $(if $(filter command environment,$(firstword $(origin PROGRAMS))),$(PROGRAMS),$(filter-out k8s,$(PROGRAMS)))
# ./... does not include directories named testdata: name the test support library
# and the end-to-end tests here.
TESTDATA := ./testdata/bed/... ./testdata/e2e/... ./testdata/flash/... ./testdata/powercut/... ./testdata/engines/... ./testdata/corpus/... ./testdata/fleet ./testdata/armdevice/... ./testdata/peers ./testdata/server ./testdata/publicfiles/...
CORPUS   := ./testdata/corpus/...
ARMS     := $(or $(ARM),armhf arm64)
DEVICE_ROOMS := artifact delta modules store submodules
SCRIPTS  := .ci/run packaging/install.sh packaging/ci/release packaging/packages packaging/release packaging/site/stage packaging/vendored packaging/mender-convert/mender_app_config packaging/buildroot/package/mender-app/S70mender-app $(wildcard packaging/nfpm/scripts/*) testdata/bed/setup testdata/bed/device.sh generator/machine/machine.sh testdata/bed/engine.sh testdata/engines/setup testdata/powercut/faults testdata/bench testdata/fuzz testdata/qemu-user testdata/stage testdata/test32 testdata/retry testdata/npmfile packaging/inventory/mender-inventory-app examples/deb/deb examples/systemd/systemd examples/executable/executable $(wildcard packaging/state-scripts/*) $(wildcard testdata/k8snode/*.sh) \
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

# Somebody else may own the tree, as that of a container: who runs make trusts it already.
# The functions of make 4.3 do not see what it exports.
GIT := git -c safe.directory='$(CURDIR)'
export GIT_CONFIG_COUNT   := 1
export GIT_CONFIG_KEY_0   := safe.directory
export GIT_CONFIG_VALUE_0 := $(CURDIR)

# -trimpath and no build time: two builds of one commit give the same bytes.
# The version is the commit that the Go tool stamps in. TAGS=faults builds programs for
# tests that kill them (store/durable/faults): in build/faults, for the tests alone.
VCS     := $(shell $(GIT) status --porcelain >/dev/null 2>&1 && echo auto || echo false)
GOBUILD  = CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=$(VCS) -ldflags='-s -w' $(if $(TAGS),-tags=$(TAGS))

# For devices, where flash is small: nothing is inlined but what reads, decodes, decrypts and
# digests content, RSA's arithmetic, and the runtime. That makes the programs of arm/v7 7 to
# 9 % smaller and the decoder at most 3 % slower; checking a signature takes up to twice as
# long, which is milliseconds. The last pattern that fits a package counts.
FIPS  := crypto/internal/fips140
HOT   := runtime/... internal/runtime/... internal/bytealg internal/abi bytes encoding/binary math/bits hash/... \
	crypto/sha256 $(FIPS)deps/... $(addprefix $(FIPS)/,sha256 sha512 aes/... subtle bigmod) compress/bzip2 \
	github.com/klauspost/compress/... github.com/ulikunitz/xz/... github.com/mender-app/mender-app/delta/...
SMALL := -gcflags=all=-l $(patsubst %,-gcflags=%=,$(HOT))

.DEFAULT_GOAL := help

.PHONY: help
help: # list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build every program for this machine into build/
	@mkdir -p $(BUILD)
	$(if $(PROGRAMS),$(GOBUILD) -o $(BUILD)/ $(addprefix ./cmd/,$(PROGRAMS)))

.PHONY: cross
cross: $(addprefix cross-,$(ARCHES)) # build for linux/arm/v7, arm64, amd64 and riscv64 into build/linux-ARCH/

cross-arm-v7: export GOARCH = arm
cross-arm-v7: export GOARM  = 7
cross-arm64:  export GOARCH = arm64
cross-amd64:  export GOARCH = amd64
cross-amd64:  export GOAMD64 = v1
cross-riscv64: export GOARCH = riscv64
.PHONY: $(addprefix cross-,$(ARCHES))
$(addprefix cross-,$(ARCHES)): cross-%:
	@mkdir -p $(BUILD)/linux-$*
	$(if $(PROGRAMS),GOOS=linux $(GOBUILD) $(SMALL) -o $(BUILD)/linux-$*/ $(addprefix ./cmd/,$(PROGRAMS)))

.PHONY: install
install: $(if $(FROM),,build) ## install all programs but k8s (DESTDIR, prefix; PROGRAMS='app k8s mender-app' chooses; SUBMODULES='deb systemd python executable' adds; FROM=build/linux-arm-v7 for a device; COMPOSE_MODULE=yes, ORCHESTRATOR=yes)
	completions_from='$(COMPLETIONS)' compose_module='$(COMPOSE_MODULE)' orchestrator='$(ORCHESTRATOR)' more='$(SUBMODULES)' programs='$(INSTALLED)' bindir='$(prefix)/bin' packaging/install.sh '$(if $(FROM),$(FROM),$(BUILD))' '$(modulesdir)' '$(submodulesdir)' '$(bindir)' '$(confdir)' '$(mandir)' '$(bashcompdir)' '$(unitdir)' '$(zshcompdir)' '$(fishcompdir)'

.PHONY: install-device install-host
install-device: # install what a device with Docker Compose needs: app, docker-compose, mender-app
	$(MAKE) --no-print-directory install PROGRAMS='app docker-compose mender-app'
install-host: # install what a build host needs: app-gen, app-conformance
	$(MAKE) --no-print-directory install PROGRAMS='app-gen app-conformance'

# The version is the tree's, and the commit's time where the commit is no release: such
# packages are newer than those of the release, and older than those of the next one.
TREE_VERSION := $(shell sed -n 's/^const Number = "\(.*\)"$$/\1/p' cmd/internal/version/version.go)
COMMIT_TIME  := $(or $(SOURCE_DATE_EPOCH),$(shell $(GIT) log -1 --format=%ct 2>/dev/null))
PACKAGE_VERSION = $(TREE_VERSION)$(if $(shell $(GIT) tag --points-at HEAD v$(TREE_VERSION) 2>/dev/null),,+$(shell date -u -d '@$(COMMIT_TIME)' +%Y%m%d%H%M%S))

# The machine's own name among ARCHES. Its programs run here, and print their completions.
HOST := $(patsubst arm,arm-v7,$(shell $(GO) env GOHOSTARCH 2>/dev/null))

.PHONY: packages
packages: tools cross cross-$(HOST) ## make packages of every program in build/packages: FORMATS='deb rpm apk ipk archlinux', for all of ARCHES
	@[ -n '$(COMMIT_TIME)' ] || { echo "packages: this is no clone: set SOURCE_DATE_EPOCH to the time of the release" >&2; exit 1; }
	packaging/packages $(BUILD)/packages '$(PACKAGE_VERSION)' '$(COMMIT_TIME)' $(BUILD)/tools $(BUILD) $(HOST) '$(FORMATS)' $(ARCHES)

.PHONY: release
release: # make a release of this commit in build/release (VERSION=1.0.0; KEY=key.pem signs it)
	@packaging/release '$(VERSION)' $(BUILD)/release '$(KEY)' $(HOST) '$(FORMATS)' $(ARCHES)

# A warning is an error, as are a link or an anchor that leads nowhere and a page without a
# place in the navigation.
.PHONY: docs
docs: ## make the site of the documents in build/site/VERSION (needs Debian's mkdocs-material, mandoc and npm)
	packaging/site/stage $(BUILD)/site-source
	mkdocs build --config-file packaging/site/mkdocs.yml --site-dir '$(CURDIR)/$(BUILD)/site/$(TREE_VERSION)'

# What makes packages and bills of materials is a module of its own, to keep its
# dependencies out of go.mod.
.PHONY: tools
tools:
	@mkdir -p $(BUILD)/tools
	$(GO) build -C packaging/tools -trimpath -o '$(CURDIR)/$(BUILD)/tools/' tool

.PHONY: uninstall
uninstall: # remove what install put there; configuration files stay
	packaging/install.sh --remove '$(modulesdir)' '$(submodulesdir)' '$(bindir)' '$(confdir)' '$(mandir)' '$(bashcompdir)' '$(unitdir)' '$(zshcompdir)' '$(fishcompdir)'

# Packages that start goroutines outside their tests, and the others. modules/deploy
# starts one, to watch for an abort: its tests of aborts run with the race detector. The
# others would run out of the memory that a process for deltas may have.
GOROUTINE  := ^[[:space:]]*go [a-zA-Z_.]+[(]|[.]Go[(]|errgroup
PACKAGES    = $(shell $(GO) list ./... | sed 's|^[^/]*/[^/]*/[^/]*|.|')
ROOMS       = $(filter-out ./cmd ./cmd/%,$(PACKAGES))
CONCURRENT  = $(filter-out ./modules/deploy,$(filter $(ROOMS),$(patsubst %/,./%,$(sort $(dir $(shell $(GIT) grep -lE '$(GOROUTINE)' -- '*.go' ':!*_test.go'))))))
SEQUENTIAL  = $(filter-out ./modules/deploy $(CONCURRENT),$(ROOMS))

.PHONY: check
check: ## gofmt, vet, staticcheck, errcheck, misspell, shellcheck and the short tests with the race detector
	@unformatted=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "gofmt these: $$unformatted" >&2; exit 1; fi
	$(GO) vet ./... $(TESTDATA)
	$(GO) tool staticcheck ./... $(TESTDATA)
	$(GO) tool errcheck -ignoretests -exclude .errcheck ./... $(TESTDATA)
	$(GO) tool misspell -error -i rela,mosquitto $$(git ls-files '*.go' '*.md' Makefile packaging ':!packaging/THIRD-PARTY-NOTICES')
	@if command -v shellcheck >/dev/null; then shellcheck $(SCRIPTS); \
	  elif [ "$$CI" = true ]; then echo "shellcheck is missing" >&2; exit 1; fi
# The race detector makes tests up to ten times as slow: it is for packages that start
# goroutines. delta starts none, but what it calls does: its tests that encode run with it,
# but for two that take minutes and whose goroutines are those of the others.
# A run takes several packages where it can: one package alone leaves a processor idle.
# Without GORACE each program that a test starts waits for a second at its end.
	GORACE=atexit_sleep_ms=0 $(GO) test -vet=off -race -short -timeout 10m $(CONCURRENT)
	testdata/test32 -vet=off -short -timeout 10m -run 'GoldenDecode|GoldenVCDIFF' ./delta & \
	  $(GO) test -vet=off -race -short -timeout 10m -run 'GoldenEncode|Cancel|WaitsLonger|Abort' -skip 'GoldenEncode/(far|bulk-go)$$' ./delta ./modules/deploy; race=$$?; \
	  wait $$! && exit $$race
	$(GO) test -vet=off -short -timeout 10m $(filter-out $(LATER),./modules/deploy $(filter ./cmd ./cmd/%,$(PACKAGES)) $(SEQUENTIAL))
# The disk of the power-cut tests and the plots of the documents are modules of their own,
# to keep their dependencies out of go.mod.
	@for module in testdata/powercut/disk docs/pictures; do \
	  $(GO) vet -C $$module ./... && $(GO) test -C $$module ./... || exit 1; done
	@$(MAKE) --no-print-directory sizes

.PHONY: sizes
sizes: cross-arm-v7 # hold the sizes of the device's programs
	testdata/sizes $(BUILD)/linux-arm-v7

.PHONY: notices
notices: # write packaging/THIRD-PARTY-NOTICES, the licences of the modules that are linked
	$(GO) run ./packaging/notices >packaging/THIRD-PARTY-NOTICES.new
	mv packaging/THIRD-PARTY-NOTICES.new packaging/THIRD-PARTY-NOTICES

.PHONY: setup
setup: # install what tests and demo need (Debian, as root; SETUP=no leaves the machine alone)
	@if [ "$(SETUP)" != no ]; then testdata/bed/setup; fi

.PHONY: engines
engines: setup # unpack the other Docker engines of the test matrix: 45 s and 650 MB each
	@testdata/engines/setup $(ENGINES)

# make check has run all tests of the packages but those that ask for more than -short. They
# say so themselves (testing.Short, [short] in a script), and these are their packages,
# except those with a target of their own below. Those that take longest begin first, so
# that no processor is idle at the end. They often wait: three packages at once, and four
# tests of each, keep two processors busy.
OWN_TARGET := ./delta% ./submodules/k8s ./cmd/k8s
SLOW       := ./submodules/compose ./cmd/mender-app ./submodules/conformance ./submodules/imagestore/docker
LONGER      = $(addprefix ./,$(sort $(shell $(GIT) grep -lE 'testing[.]Short|^[[]short[]]' -- '*_test.go' '*.txtar' ':!testdata' | sed 's|/testdata/.*||; t; s|/[^/]*$$||')))
# make test runs all of their tests, so its make check leaves them out: but for
# modules/deploy, whose kills are a sample in the short tests and otherwise make test-kills.
WHOLLY      = $(filter $(LONGER),$(SLOW)) $(filter-out $(SLOW) $(OWN_TARGET),$(LONGER))
LATER      :=

# End-to-end tests choose their stage by their directory below testdata/e2e, whose package
# comment says what belongs there. Go's test cache does not know the programs that they
# run: -count=1 does not use it. `make stages` lists the stages with their minutes.
WHOLE := $(GO) test -vet=off -count=1 -timeout 45m

.PHONY: test
test: setup ## check, then the tests of all packages and what a device does each day, on real parts: 27 min on two cores
	@testdata/stage 'format, linters and short tests (make check)' 5 $(MAKE) --no-print-directory check LATER='$(filter-out ./modules/deploy,$(WHOLLY))'
	@testdata/stage 'long tests of the packages' 12 $(GO) test -vet=off -timeout 40m -p 3 -parallel 4 $(WHOLLY)
	@testdata/stage 'a device, with the real client and engine' 9 $(WHOLE) -parallel 4 ./testdata/e2e/daily ./testdata/e2e/components ./testdata/bed ./testdata/bed/mutants ./testdata/peers ./testdata/publicfiles

.PHONY: test-ci test-rest
test-ci: test test-rest # what CI runs
test-rest: setup # what CI runs after make test: migration, faults, Kubernetes
	@testdata/stage 'other update modules, and each Mender client' 3 $(WHOLE) -parallel 4 ./testdata/e2e/migration
	@testdata/stage 'kills, power cuts, disks that fail' 6 $(WHOLE) -parallel 4 ./testdata/e2e/faults ./testdata/flash/... ./testdata/powercut/...
	@testdata/stage 'a Kubernetes node (make test-k8s)' 9 $(MAKE) --no-print-directory test-k8s

.PHONY: test-all
test-all: stages test-ci ## all tests that need neither an ARM machine nor hours; it lists them first
	@testdata/stage 'what is slow and rarely breaks' 5 $(WHOLE) -parallel 4 ./testdata/e2e/slow
	@testdata/stage 'packages, as they are installed, and two releases (make test-packages)' 7 $(MAKE) --no-print-directory test-packages
	@testdata/stage 'hostile artifacts (make test-hostile COUNT=100)' 4 $(MAKE) --no-print-directory test-hostile COUNT=100
	@testdata/stage 'commands by hand (make test-sequences COUNT=30)' 5 $(MAKE) --no-print-directory test-sequences COUNT=30
	@testdata/stage 'the newest engine (make test-newest)' 15 $(MAKE) --no-print-directory test-newest
	@testdata/stage 'random kills of commands (make test-random-kills COUNT=200)' 2 $(MAKE) --no-print-directory test-random-kills COUNT=200
	@testdata/stage 'kills at every point of the model (make test-kills)' 10 $(MAKE) --no-print-directory test-kills
	@testdata/stage 'long tests of the delta (make test-delta)' 5 $(MAKE) --no-print-directory test-delta
	@testdata/stage 'programs for arm/v7 and arm64 (make test-qemu-user)' 5 $(MAKE) --no-print-directory test-qemu-user

.PHONY: stages
stages: # list the stages of test-all, with the minutes that each takes on two cores
	@awk -F "'" '/^\t@testdata\/stage /{split($$3, m, " "); printf "%4d min  %s\n", m[1], $$2; sum += m[1]} END {printf "%4d min in all\n", sum}' Makefile

.PHONY: test-packages
test-packages: setup # install, upgrade, downgrade and purge the packages in trees of Debian
	@if [ "$(SETUP)" != no ]; then testdata/engines/setup bookworm-engine trixie sid; fi
	$(GO) test -vet=off -count=1 -timeout 4h -v ./testdata/e2e/packages # releases are built from nothing: hours on a busy machine

.PHONY: test-kills
test-kills: # the deployment in a world in memory, killed or failing at every point: in a process for each processor
	@mkdir -p $(BUILD) && rm -f $(BUILD)/kills-*.log
	$(GO) test -c -vet=off -o $(BUILD)/deploy.test ./modules/deploy
	cd modules/deploy && seq $$(nproc) | xargs -P 0 -I PART sh -c \
		'MENDER_APP_PART=PART/$$(nproc) exec ../../$(BUILD)/deploy.test -test.timeout 60m -test.v -test.run Anywhere >../../$(BUILD)/kills-PART.log || { tail -n 100 ../../$(BUILD)/kills-PART.log; exit 1; }'
	grep -h 'figures:' $(BUILD)/kills-*.log

.PHONY: test-random-kills
test-random-kills: export MENDER_APP_KILLS = $(or $(COUNT),2000)
test-random-kills: export MENDER_APP_SEED = $(SEED)
test-random-kills: # 2000 kills of the operator's commands at random instants (COUNT=, SEED=)
	$(GO) test -count=1 -v -timeout 120m -run TestRandomKills ./cmd/mender-app

.PHONY: golden
golden: # write golden deltas that are missing, as that of a new feature
	$(GO) test ./delta -run Golden -update

.PHONY: test-delta
test-delta: # the delta's long tests, and the pairs of the corpus that are there
	$(GO) test -timeout 20m ./delta/... $(CORPUS)
	$(MAKE) --no-print-directory test-mutants COUNT=4000

.PHONY: test-mutants
test-mutants: export MENDER_APP_MUTANTS = $(or $(COUNT),20000)
test-mutants: export MENDER_APP_SEED = $(or $(SEED),1)
test-mutants: # decode 20000 damaged deltas and as many VCDIFF files in 32 bits (COUNT=, SEED=)
	testdata/test32 -count=1 -v -timeout 60m -run TestMutants ./delta

.PHONY: test-newest
test-newest: setup # the newest engine beside this machine's
	$(GO) test -count=1 -timeout 45m -parallel 4 ./testdata/engines/...

# The database and the store of the service are a module of their own, which no other
# target builds.
.PHONY: test-server
test-server: # what the Mender server takes and sends (DEPLOYMENTS=program of its deployments service)
	$(GO) vet -C testdata/server/backing ./...
	MENDER_APP_DEPLOYMENTS='$(DEPLOYMENTS)' $(GO) test -count=1 -v -timeout 20m ./testdata/server

# COUNT is how many, SEED which. ENGINE is another engine than this machine's:
# 28-containerd, podman (testdata/engines/setup). On a Kubernetes node, cmd/k8s does the
# same.
.PHONY: test-hostile
test-hostile: export MENDER_APP_HOSTILE = $(or $(COUNT),500)
test-hostile: export MENDER_APP_SEED = $(or $(SEED),1)
test-hostile: export MENDER_APP_ENGINE = $(ENGINE)
test-hostile: setup # install 500 hostile artifacts through the Mender client and mender-app install (COUNT=, SEED=, ENGINE=)
	$(GO) test -count=1 -v -timeout 60m ./testdata/e2e/hostile

.PHONY: test-sequences
test-sequences: export MENDER_APP_SEQUENCES = $(or $(COUNT),500)
test-sequences: export MENDER_APP_SEED = $(SEED)
test-sequences: setup # 500 sequences of docker commands by hand in any state of a deployment (COUNT=, SEED=)
	$(GO) test -count=1 -v -timeout 300m ./testdata/e2e/sequences

# 32-bit, so that a size in an int shows, and the other alignment.
.PHONY: test-qemu-user
test-qemu-user: setup # run the short tests of the device's rooms as arm/v7 and arm64 programs (needs qemu-user)
	testdata/qemu-user arm $(addprefix ./,$(addsuffix /...,$(wildcard $(DEVICE_ROOMS))))
	testdata/qemu-user arm64 $(addprefix ./,$(addsuffix /...,$(wildcard $(DEVICE_ROOMS))))
	$(GO) test -count=1 -timeout 20m ./testdata/e2e/emulated

# ARM=armhf or ARM=arm64 is one of them. SHORT=-short only installs, updates and
# takes back. STEP=cuts goes on from where an earlier run began that step.
.PHONY: test-arm
test-arm: export MENDER_APP_ARM_DEVICES = $(ARMS)
test-arm: export MENDER_APP_ARM_FROM = $(STEP)
test-arm: # install, update, fail, roll back, cut the power on emulated ARM devices, and measure
	@if [ "$(SETUP)" != no ]; then testdata/armdevice/setup; fi
	$(GO) test -count=1 -v -timeout 6h $(SHORT) ./testdata/armdevice

.PHONY: bench-arm
bench-arm: export MENDER_APP_BENCH = 1
bench-arm: test-arm # test-arm, and its figures into docs/BENCHMARKS.md

# MENDER_APP_ENGINES chooses some of bed.Engines.
.PHONY: test-engines
test-engines: export MENDER_APP_ENGINES ?= all
test-engines: engines # test on every Docker engine and image store, from 20.10 to the newest
	$(GO) test -count=1 -v -timeout 60m -parallel 2 -run TestEngines ./testdata/bed
	$(GO) test -count=1 -v -timeout 60m -parallel 2 ./testdata/engines
	$(GO) test -count=1 -v -timeout 60m -parallel 2 -run TestInstallUpdateFailAndRollBack ./testdata/e2e/daily

# MENDER_APP_ENGINES chooses engines, MENDER_APP_COMPOSE one of bed.ComposeVersions.
.PHONY: test-edges
test-edges: export MENDER_APP_EDGES = 1
test-edges: export MENDER_APP_ENGINES ?= all
test-edges: setup # what engines lose and people do, on every engine and store with each Docker Compose: an hour
	@if [ "$(SETUP)" != no ]; then testdata/engines/setup trixie sid compose-5; fi
	$(GO) test -count=1 -v -timeout 180m -run TestEdges ./testdata/engines

.PHONY: faults
faults: setup # kill at every step and cut the power 120 times an engine: takes an hour or two
	testdata/powercut/faults $(ENGINES)

.PHONY: demo
demo: setup build ## install, update, fail, roll back: the product at work in a private room of this machine
	@$(GO) run ./examples/demo -programs $(BUILD)

.PHONY: corpus
corpus: # build the corpus of image pairs (network; kept in ~/.cache/mender-app) and rebuild each from its delta
	$(GO) run ./testdata/corpus/build
	MENDER_APP_CORPUS_ALL=1 $(GO) test -count=1 -timeout 60m -v -run TestRoundTrip $(CORPUS)

# PAIRS="go-armv7 moved" chooses pairs of the corpus, PAIRS=all takes all: hours.
.PHONY: bench
bench: setup cross build k8snode ## measure beside the peers and write docs/BENCHMARKS.md and its tables: an hour
	PAIRS='$(PAIRS)' testdata/bench >$(BUILD)/BENCHMARKS.md
	mv $(BUILD)/BENCHMARKS.md $(BUILD)/deltas.csv $(BUILD)/installations.csv docs/
	$(GO) run -C docs/pictures .

# PAIRS="go-mqtt-armv7" chooses pairs, TOOL=xdelta3 one tool. What was measured is kept:
# it goes on where it was stopped.
.PHONY: bench-public
bench-public: build # measure delta tools on public image pairs: docs/benchmark.csv and its plots, hours
	$(GO) run ./testdata/corpus/compare $(if $(TOOL),-tool $(TOOL)) $(PAIRS)
	$(GO) run -C docs/pictures .

.PHONY: fleet-sim
fleet-sim: # compute what a release costs a large fleet, and write the tables of docs/FLEET.md
	$(GO) run ./testdata/fleet

# FUZZ=delta/vcdiff picks some, by a regular expression over PACKAGE/TARGET.
.PHONY: fuzz
fuzz: ## fuzz every target for FUZZTIME (1h) each, one after the other, until the first finding
	@FUZZ='$(FUZZ)' FUZZTIME='$(FUZZTIME)' testdata/fuzz

.PHONY: clean
clean: # remove build/
	rm -rf $(BUILD)

# make k8snode, make test-k8s
include testdata/k8snode/k8s.mk
