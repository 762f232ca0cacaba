// Mender-app is the operator's program on the device: it shows what is installed,
// goes back to a kept release, and installs artifacts on devices without a Mender
// client. This package has the flags, the output and the exit codes;
// modules/deploy does the work, and modules/client drives the update module.
package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/cmd/internal/memory"
	"github.com/mender-app/mender-app/cmd/internal/usage"
	"github.com/mender-app/mender-app/cmd/internal/version"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/modules/imagedelta"
)

func main() {
	// A repair calls this program so.
	if len(os.Args) > 1 && os.Args[1] == imagedelta.Verb {
		memory.DropProgram()
		memory.Fit(decoder.MemoryLimit, decoder.MemoryLimit)
		os.Exit(imagedelta.Main(os.Stdin, os.Stderr))
	}
	memory.Fit(16<<20, 8<<20) // as app does
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run runs the program and returns its exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &program{stdin: stdin, stdout: stdout, stderr: stderr}
	root := p.root()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := device.Run(device.Person, root.ExecuteContext)
	if errors.Is(err, syscall.EPIPE) && readerGone(stdout) {
		err = nil // a pager or head that has seen enough is not an error
	}
	if err != nil {
		p.fail(err, p.json || usage.AsksJSON(args))
	}
	return device.ExitCode(err)
}

// readerGone reports whether a writer is a pipe that nobody reads any more.
func readerGone(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(f.Fd())}}
	_, err := unix.Poll(fds, 0)
	return err == nil && fds[0].Revents&unix.POLLERR != 0
}

// program is one run of mender-app.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	json   bool
	config *device.Config
	broken error // of the configuration; only doctor goes on with it
	log    *slog.Logger
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "mender-app",
		Short: "Show, install and roll back container applications on this device",
		Long: `mender-app shows the applications of this device, rolls them back, and, on a device
without a Mender client, installs artifacts through the update module like the client.

` + device.ExitHelp + device.InterruptHelp,
		Args:              knownCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return p.configure(cmd) },
	}
	usage.PrintVersion(root, version.String())
	root.SetFlagErrorFunc(flagError)
	usage.FoldHelp(root)
	root.PersistentFlags().BoolVar(&p.json, "json", false, "print JSON, errors too")
	root.AddCommand(
		p.checkCommand(), p.installCommand(), p.commitCommand(), p.rollbackCommand(), p.resumeCommand(),
		p.statusCommand(), p.logsCommand(), p.eventsCommand(), p.releasesCommand(), p.historyCommand(), p.verifyCommand(),
		p.stopCommand(), p.startCommand(), p.restartCommand(), p.purgeCommand(),
		p.secretsCommand(), p.doctorCommand(), p.reportCommand(), p.inventoryCommand(), conformanceCommand(), p.probeCommand(), p.versionCommand(),
	)
	root.AddCommand(p.formerCommands()...)
	root.AddCommand(
		p.serviceCommand(), p.stageCommand(), p.reconcileCommand(), p.triggerCommand(), p.queueCommand(),
		p.abortCommand(), p.backupCommand(), p.restoreCommand(), p.holdCommand(), p.windowsCommand(), p.fetchCommand(), p.engineCheckCommand(),
		p.serveCommand(), p.metricsCommand(), p.valuesCommand(), p.overridesCommand(),
	)
	group(root)
	addCompletions(root)
	usage.RefuseUnknown(root, func(c *cobra.Command, text, hint string) error { return wrongUsage(c, errors.New(text), hint) })
	usage.CheckArguments(root, checkArguments)
	return root
}

// configure reads the configuration for the commands that work on the device.
func (p *program) configure(cmd *cobra.Command) error {
	for c := cmd; c != nil; c = c.Parent() {
		if c == cmd && !c.HasParent() {
			return nil
		}
		switch c.Name() {
		case "version", "conformance", probeCommand, "completion", "help", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd:
			return nil
		}
	}
	c, err := device.Load()
	if err != nil && cmd.Name() == "doctor" {
		p.broken = err
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", device.ErrUsage, err)
	}
	p.config, p.log = c, device.NewLog(p.stderr, c.LogLevel)
	for _, w := range c.Warnings {
		p.log.Warn(w)
	}
	return nil
}

func (p *program) engine() *deploy.Engine { return p.config.Engine(p.log, driverName) }

// driverName is the driver that the history names for deployments by this program.
const driverName = "mender-app"

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  mender-app version --json",
		RunE: func(*cobra.Command, []string) error {
			if p.json {
				return p.printJSON(map[string]string{"version": version.String()})
			}
			_, err := fmt.Fprintln(p.stdout, "mender-app", version.String())
			return err
		},
	}
}
