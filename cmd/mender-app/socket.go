package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/cmd/internal/device"
)

// socketGroup is the group whose members may use the socket.
const socketGroup = "mender-app"

// activated returns the socket that systemd gave this process; nil without one. See
// sd_listen_fds(3).
func activated() (net.Listener, error) {
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	n := os.Getenv("LISTEN_FDS")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		_ = os.Unsetenv(name) // they are not for the sub-modules
	}
	if n != "1" {
		return nil, fmt.Errorf("systemd gave %s sockets, not one: see mender-app-serve.socket", n)
	}
	const first = 3
	unix.CloseOnExec(first)
	f := os.NewFile(first, "the socket of systemd")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("the socket of systemd: %w", err)
	}
	if _, ok := l.(*net.UnixListener); !ok {
		return nil, errors.Join(fmt.Errorf("the socket of systemd is %s, and asks for no token: use a unix socket, or --listen", l.Addr()), l.Close())
	}
	return l, nil
}

// listenUnix makes a socket that root and the group may use. One that nobody listens on
// is replaced.
func listenUnix(path string, log *slog.Logger) (net.Listener, error) {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case st.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%w: %s is not a socket: choose another path with --socket", device.ErrUsage, path)
	default:
		if c, err := net.Dial("unix", path); err == nil {
			return nil, errors.Join(fmt.Errorf("something listens on %s: choose another path with --socket", path), c.Close())
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	before := unix.Umask(0o777) // nobody may use it yet
	l, err := net.Listen("unix", path)
	unix.Umask(before)
	if err != nil {
		return nil, err
	}
	mode := fs.FileMode(0o660)
	if err := giveToGroup(path); err != nil {
		log.Warn("only this user may use the socket", "socket", path, "reason", err.Error())
		mode = 0o600
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func giveToGroup(path string) error {
	g, err := user.LookupGroup(socketGroup)
	if err != nil {
		return err
	}
	id, err := strconv.Atoi(g.Gid)
	if err != nil {
		return err
	}
	return os.Lchown(path, -1, id)
}

func readCertificate(cert, key string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}
