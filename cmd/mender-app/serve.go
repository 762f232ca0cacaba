package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/artifact/output"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/cmd/internal/memory"
	"github.com/mender-app/mender-app/cmd/internal/version"
	"github.com/mender-app/mender-app/modules/hold"
	"github.com/mender-app/mender-app/modules/serve"
	"github.com/mender-app/mender-app/modules/view"
)

// defaultSocket is where serve listens if nothing is said.
const defaultSocket = "/run/mender-app.sock"

func (p *program) server() *serve.Server {
	memory.Spare()
	c := p.config
	s := &serve.Server{
		Store: c.OpenStore(), Viewer: p.viewer(), Clock: func() hold.Clock { return p.engine().HoldClock() }, AppLocks: c.Hooks.AppLocks, Version: version.String(), Log: p.log,
		Disks: map[string]string{"store": c.Store},
		Checkup: func(ctx context.Context) view.Checkup {
			checks := &checkup{ctx: ctx, config: c, readOnly: true}
			checks.all(nil)
			return view.Checkup{Findings: checks.findings, Engines: checks.engines}
		},
	}
	if c.DataRoot != "" {
		s.Disks["engine"] = c.DataRoot
	}
	return s
}

// serveOptions are those of serve.
type serveOptions struct {
	socket, listen, tokenFile, cert, key string
	idle                                 time.Duration
	actions                              bool
}

func (p *program) serveCommand() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer programs over HTTP on a socket",
		Long: `Answers HTTP requests with what status, releases, history, logs, events and hold print
with --json, and with metrics for Prometheus; /openapi.json describes it all, and / is a
page for a browser. It delays no update.

It listens on the socket that systemd gives it (mender-app-serve.socket), or else makes
one for root and the group mender-app. Its users see everything that the commands show,
also output of services.

It changes nothing, unless --allow-actions is given: then root and members of the group
may POST to /v1/stage, /v1/check, /v1/hold, /v1/unhold and /v1/apps/APP/ stop, start and
rollback, which do what the commands of these names do.

With --listen it listens on a TCP port instead. Clients must then know the token: send
the content of the token file in a header "Authorization: Bearer TOKEN", or as the password of any
user, as a browser does. An address
other than the loopback's needs TLS as well.`,
		Example: "  mender-app serve --socket /run/shop.sock\n  mender-app serve --listen 127.0.0.1:8099 --token-file /etc/mender/serve.token",
		RunE: func(cmd *cobra.Command, _ []string) error {
			listener, err := o.open(p.log)
			if err != nil {
				return err
			}
			s := p.server()
			if o.actions {
				if s.Actions, err = serveActions(p.log); err != nil {
					return errors.Join(err, listener.Close())
				}
			}
			if o.listen != "" {
				if s.Token, err = readToken(o.tokenFile); err != nil {
					return errors.Join(err, listener.Close())
				}
			}
			p.log.Info("listening", "address", listener.Addr().String())
			err = s.Serve(cmd.Context(), o.idle, listener)
			if cmd.Context().Err() != nil {
				return nil // a signal is how it ends
			}
			return err
		},
	}
	cmd.Flags().StringVar(&o.socket, "socket", defaultSocket, "make this socket, if systemd gives none")
	cmd.Flags().StringVar(&o.listen, "listen", "", "listen on this `ADDRESS`:PORT instead")
	cmd.Flags().StringVar(&o.tokenFile, "token-file", "", "with --listen: the file that has the token")
	cmd.Flags().StringVar(&o.cert, "tls-cert", "", "with --listen: the file of the TLS certificate (PEM)")
	cmd.Flags().StringVar(&o.key, "tls-key", "", "with --listen: the file of its private key (PEM)")
	cmd.Flags().BoolVar(&o.actions, "allow-actions", false, "let root and the group mender-app change things over the unix socket")
	cmd.Flags().DurationVar(&o.idle, "idle", 0, "end after this time without a request; 0: never")
	return cmd
}

func (p *program) metricsCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "Print metrics of the applications for Prometheus",
		Long: `Prints in Prometheus' text format: the state and health of each application and service,
deployments by outcome; the time of the last one and of the last success, its duration,
and its bytes received, and those that all programs wrote; open and held work; and free
space. "mender-app serve" has the same at /metrics.

With -o it replaces a file in one step, for the textfile collector of node_exporter. A
pipe or a device is written to instead.`,
		Example: "  mender-app metrics\n  mender-app metrics -o /var/lib/prometheus/node-exporter/mender-app.prom",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := p.server()
			s.Handler(cmd.Context())
			defer s.Close()
			text, err := s.Metrics(cmd.Context())
			if err != nil {
				return err
			}
			if file == "" {
				_, err = p.stdout.Write(text)
				return err
			}
			return output.Write(cmd.Context(), file, 0o644, func(w io.Writer) error {
				_, err := w.Write(text)
				return err
			})
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "write to this `FILE` instead of printing")
	return cmd
}

// Bounds of a token.
const (
	minToken = 16
	maxToken = 4096
)

// readToken reads the token that clients must know.
func readToken(file string) (string, error) {
	f, err := input.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	if st.Mode().Perm()&0o007 != 0 {
		return "", fmt.Errorf("%w: everybody can read or write the token in %s: run chmod 600 on it", device.ErrUsage, file)
	}
	text, err := input.Bounded(f, file, maxToken)
	if err != nil {
		return "", fmt.Errorf("%w: %w, and no token", device.ErrUsage, err)
	}
	token := string(bytes.TrimSpace(text))
	if len(token) < minToken || bytes.ContainsAny([]byte(token), " \t\r\n") {
		return "", fmt.Errorf("%w: the token in %s is not one word of at least %d characters: openssl rand -hex 32 makes one", device.ErrUsage, file, minToken)
	}
	return token, nil
}

// loopback reports whether only programs of this device reach an address.
func loopback(address string) (bool, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false, fmt.Errorf("%w: --listen: %w", device.ErrUsage, err)
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback(), nil
}

// check refuses options that do not go together, or that would let strangers in.
func (o serveOptions) check() error {
	wrong := func(text string) error { return fmt.Errorf("%w: %s", device.ErrUsage, text) }
	switch {
	case o.actions && o.listen != "":
		return wrong("--allow-actions goes with the unix socket, not with --listen")
	case o.idle < 0:
		return wrong("--idle is not negative")
	case o.listen == "" && (o.tokenFile != "" || o.cert != "" || o.key != ""):
		return wrong("--token-file, --tls-cert and --tls-key go with --listen")
	case o.listen == "":
		return nil
	case o.tokenFile == "":
		return wrong("--listen needs --token-file: every program of the device reaches the port")
	case (o.cert == "") != (o.key == ""):
		return wrong("--tls-cert and --tls-key go together")
	}
	local, err := loopback(o.listen)
	if err == nil && !local && o.cert == "" {
		err = wrong("--listen on an address other than 127.0.0.1 needs --tls-cert and --tls-key: others could read along")
	}
	return err
}

// open opens what the options name.
func (o serveOptions) open(log *slog.Logger) (l serve.Listener, err error) {
	if err := o.check(); err != nil {
		return l, err
	}
	if o.listen == "" {
		l.Listener, err = activated()
		if l.Listener == nil && err == nil {
			l.Listener, err = listenUnix(o.socket, log)
		}
		return l, err
	}
	if o.cert != "" {
		if l.TLS, err = readCertificate(o.cert, o.key); err != nil {
			return l, err
		}
	}
	l.Listener, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", o.listen)
	return l, err
}
