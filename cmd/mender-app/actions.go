package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/serve"
	"github.com/mender-app/mender-app/submodules"
)

// Bounds of a command that an action runs.
const (
	maxOutput = 1 << 20          // bytes of what it prints
	maxErrors = 64 << 10         // bytes of its standard error
	killAfter = 60 * time.Second // it has so long to end itself
)

// serveActions lets root and the group change what serve shows.
func serveActions(log *slog.Logger) (*serve.Actions, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	x := &serve.Actions{UserName: userName, Group: math.MaxUint32} // nobody is in it
	x.Run = func(ctx context.Context, c serve.Command) (serve.Ran, error) { return runCommand(ctx, program, c, log) }
	g, err := user.LookupGroup(socketGroup)
	if err != nil {
		log.Warn("only root may ask for actions", "reason", err.Error())
		return x, nil
	}
	id, err := strconv.ParseUint(g.Gid, 10, 32)
	x.Group = uint32(id)
	return x, err
}

// userName is the name of a user, or the number of one without.
func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

// runCommand runs a command of this program for an action. What it says goes to log.
func runCommand(ctx context.Context, program string, c serve.Command, log *slog.Logger) (ran serve.Ran, err error) {
	log.Info("action", "command", strings.Join(c.Args(), " "), "source", c.Source, "user", c.User)
	cmd := exec.Command(program, c.Args()...)
	if c.Source != "" {
		cmd.Stdin = strings.NewReader(c.Source.Reveal() + "\n")
	}
	for _, kv := range os.Environ() {
		// What systemd gives to this service is not for the command, and with
		// INVOCATION_ID the history would say that a unit asked.
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "INVOCATION_ID", "NOTIFY_SOCKET", "SUDO_USER":
		default:
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "SUDO_USER="+c.User)
	out, said := &submodules.Capped{Max: maxOutput}, &submodules.Capped{Max: maxErrors}
	cmd.Stdout, cmd.Stderr = out, said
	err = submodules.RunGroup(ctx, cmd, killAfter)
	lines := strings.Split(strings.TrimSpace(string(said.Bytes())), "\n")
	var exit *exec.ExitError
	switch {
	case err == nil:
	case !errors.As(err, &exit):
		return serve.Ran{Code: device.ExitFailed}, err
	case exit.ExitCode() < 0:
		return serve.Ran{Code: device.ExitFailed}, fmt.Errorf("the command ended: %w", err)
	default:
		ran.Code, ran.Error = exit.ExitCode(), lastProblem(lines[len(lines)-1])
		lines = lines[:len(lines)-1]
	}
	for _, line := range lines {
		if line != "" {
			log.Info(device.OneLine(line))
		}
	}
	if !out.Over {
		ran.Out = bytes.TrimSpace(out.Bytes())
	}
	return ran, nil
}

// lastProblem is the error that a command printed as JSON, with the next step.
func lastProblem(line string) string {
	var p struct{ Error, Hint string }
	if json.Unmarshal([]byte(line), &p) != nil || p.Error == "" {
		return device.OneLine(line)
	}
	if p.Hint != "" {
		p.Error += "; " + p.Hint
	}
	return p.Error
}
