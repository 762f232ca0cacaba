// Package updatemodule is the program "app", the Mender update module. The client
// starts it once for each state of an update. The package handles arguments, output
// and exit codes; modules/deploy defines what a state means. It is a package so that
// the tests of mender-app can run the program too.
package updatemodule

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/cmd/internal/memory"
	"github.com/mender-app/mender-app/cmd/internal/version"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/modules/filedelta"
	"github.com/mender-app/mender-app/modules/imagedelta"
	"github.com/mender-app/mender-app/store"
)

const usage = `Usage: app STATE TREE [COMPONENT-TYPE [APPLICATION]]
       app --help | --version

The Mender update module for installable applications, protocol version 3. The
Mender client calls it for each STATE of an update with the directory TREE that
holds the update's files. By hand, use mender-app instead.

With a COMPONENT-TYPE it is an interface of Mender Orchestrator, protocol version 1,
for the APPLICATION (experimental).

States:
`

const settings = `
An unknown STATE does nothing and exits 0, as the protocol requires.

Configuration: /etc/mender/mender-app.conf, or the file that MENDER_APP_CONFIG
names. TOML (persistent_store = "/data/mender-app") or shell assignments
(PERSISTENT_STORE=/data/mender-app):
  persistent_store   directory of the applications [/data/mender-app]
  allow_hooks        run hooks that applications ship [true]
  app_modules_dir    the sub-modules [/usr/share/mender/app-modules/v1]
  commit_on_install  with "mender install", commit at once [false]
  keep               older releases kept after a commit [1]
  require_statement  refuse an artifact without a signed statement [false]
  require_unexpired  refuse an artifact whose statement has expired [false]
  refuse_older       refuse an older version than the installed one [false]
  platform           the machine's platforms, if the kernel's are wrong; or "any"
  data_root          the engine's data, for the check of free space, if the
                     sub-module does not say [/var/lib/docker]
  load_timeout       of one image [3h]
  rollout_timeout    until an application is healthy [15m]
  log_level          debug, info, warn or error [info]

`

// Run runs the program with its arguments and returns the exit code.
func Run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		switch args[0] {
		case "--help", "-h", "help":
			help(stdout)
			return device.ExitDone
		case "--version":
			fmt.Fprintln(stdout, "app", version.String())
			return device.ExitDone
		case filedelta.Verb:
			return filedelta.Main(args[1:], stderr)
		case imagedelta.Verb:
			memory.DropProgram()
			memory.Fit(decoder.MemoryLimit, decoder.MemoryLimit)
			return imagedelta.Main(os.Stdin, stderr)
		}
	}
	if len(args) == 0 {
		device.Fail(stderr, fmt.Errorf("no state was given; see app --help"))
		return device.ExitUsage
	}
	part, orchestrated := componentOf(args)
	if orchestrated {
		if asks, err := part.query(args[0], stdout); asks {
			if err != nil {
				device.Fail(stderr, err)
			}
			return device.ExitCode(err)
		}
		args = args[:2]
	}
	state := modules.State(args[0])
	if !state.Known() {
		return device.ExitDone
	}
	if _, asks := modules.Reply(state); asks {
		var tree *modules.Tree
		if len(args) == 2 {
			tree, _ = modules.OpenTree(args[1]) // without a tree the answer is the default
		}
		answer, _ := deploy.Reply(state, tree)
		if state == modules.SupportsRollback && tree != nil && !orchestrated {
			if c, err := device.Load(); err == nil && (deploy.StaysFailed(c.OpenStore(), tree) || commitsAtOnce(c, tree, os.Getppid())) {
				answer = modules.No
			}
		}
		if _, err := io.WriteString(stdout, answer+"\n"); err != nil {
			return device.ExitFailed
		}
		return device.ExitDone
	}
	if len(args) != 2 {
		device.Fail(stderr, fmt.Errorf("%s needs one directory; see app --help", state))
		return device.ExitUsage
	}
	tree, err := modules.OpenTree(args[1])
	if err != nil {
		device.Fail(stderr, err)
		return device.ExitCode(err)
	}
	code := device.ExitUsage
	c, err := device.Load()
	if err == nil {
		if err = accepts(part, state, tree); err == nil {
			err = work(c, state, tree, orchestrated, stderr)
		}
		code = device.ExitCode(err)
	}
	if err != nil {
		device.Fail(stderr, err)
		switch {
		case state == modules.Download:
			tree.Leave(patience(err))
		case state == modules.Cleanup && c == nil:
			// The configuration is broken, and so the download has failed. The
			// next installation cleans up. After an error the client would call
			// the device inconsistent.
			return device.ExitDone
		}
	}
	return code
}

// accepts returns an error if the tree's artifact is not for the component of an
// orchestrated system. Metadata that cannot be read is refused later.
func accepts(part component, state modules.State, tree *modules.Tree) error {
	raw, err := tree.MetaData()
	if err != nil {
		return err
	}
	meta, _, err := artifact.ParseMetadata(raw)
	if err != nil {
		return nil
	}
	return part.accepts(state, meta.ApplicationName)
}

func work(c *device.Config, state modules.State, tree *modules.Tree, orchestrated bool, stderr io.Writer) error {
	log := device.NewLog(stderr, c.LogLevel)
	for _, w := range c.Warnings {
		log.Warn(w)
	}
	return device.Run(device.Module, func(ctx context.Context) error {
		e := c.Engine(log, driver(tree))
		byMender := e.Driver == menderDriver
		if orchestrated {
			e.Driver = orchestratorDriver
		}
		if byMender {
			e.EndLockTimeout = endLockTimeout
			if !byHand(os.Getppid()) {
				e.Asked = store.Asked{How: store.AskedByClient}
			}
		}
		e.Force = tree.Forced()
		var err error
		if e.Reuse, err = tree.Reuse(); err != nil {
			return err
		}
		event, automatic, err := tree.Automatic()
		if err != nil {
			return err
		}
		if automatic {
			e.Automatic, e.Asked = true, store.Asked{How: store.AskedByUnit, Event: event}
		}
		signer, err := tree.Signer()
		if err != nil {
			return err
		}
		e.Trust = c.Signatures.TrustWithin(signer, device.ReachSeen(tree.Header()))
		err = e.Handle(ctx, state, tree)
		if err == nil && state == modules.ArtifactInstall && byMender && !orchestrated && !commitsAtOnce(c, tree, os.Getppid()) {
			// With the shell reference, an installation was final.
			log.Info("installed; until its commit, a rollback or the next installation goes back to the previous release")
		}
		return err
	})
}

// patience is how long a failed Download waits until the client can receive the
// failure (see Tree.Leave): as long as a slow network may take between two files,
// but only briefly if the call was stopped.
func patience(err error) time.Duration {
	if errors.Is(err, context.Canceled) {
		return time.Second / 2
	}
	return time.Minute
}

// endLockTimeout is how long the end of an update by the Mender client waits for
// another call, such as an operator's rollback, which may take the 15 minutes of
// the default rollout_timeout. mender-app does not need it: it tries again.
const endLockTimeout = 20 * time.Minute

// menderDriver is the driver if the tree does not name one.
const menderDriver = "mender"

// driver returns who makes the call: mender-app leaves its name in the tree.
func driver(tree *modules.Tree) string {
	if name, err := tree.Driver(); err == nil && name != "" {
		return name
	}
	return menderDriver
}

func help(w io.Writer) {
	fmt.Fprint(w, usage)
	for _, s := range modules.States() {
		fmt.Fprintf(w, "  %s\n", s)
	}
	fmt.Fprint(w, settings, device.ExitHelp)
}
