// Command demo shows the product at work with real parts. It makes seven releases of
// the shop (examples/shop) on this machine, which are then installed, updated, rolled
// back automatically, undone and refused, through the Mender client if there is one
// and otherwise through `mender-app`. All of it happens in a private device inside
// this machine (testdata/bed), which is removed afterwards.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/mender-app/mender-app/generator/machine"
	"github.com/mender-app/mender-app/testdata/bed"
)

func main() {
	programs := flag.String("programs", "", "`directory` of the built programs; built into build/ if not given")
	own := flag.Bool("without-mender", false, "install with mender-app, as on a device without a Mender client")
	verbose := flag.Bool("v", false, "show the whole output of every command")
	flag.Parse()
	if err := run(*programs, *own, *verbose, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(programs string, own, verbose bool, out io.Writer) (err error) {
	if missing := machine.Missing(); missing != "" {
		return fmt.Errorf("this machine has no %s, which the demo's device needs: on Debian, run `make demo` as root", missing)
	}
	if programs == "" {
		if programs, err = bed.Released(); err != nil {
			return err
		}
	}
	if programs, err = filepath.Abs(programs); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mender-app-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	fmt.Fprintln(out, "Seven releases of the shop are made: two services, web and stock.")
	releases, err := makeReleases(dir, programs, out)
	if err != nil {
		return err
	}

	device, err := bed.New(dir + "/device")
	if err != nil {
		return err
	}
	closed := false
	closeDevice := func() error {
		if closed {
			return nil
		}
		closed = true
		return device.Close()
	}
	defer func() { err = errors.Join(err, closeDevice()) }()
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		_ = closeDevice()
		_ = os.RemoveAll(dir)
		os.Exit(130)
	}()

	if own {
		if err := device.WithoutMender(); err != nil {
			return err
		}
	}
	s, err := newStory(device, programs, verbose, out)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.tell(releases); err != nil {
		return err
	}
	s.summary()
	if err := closeDevice(); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nThe device and all it held are gone.")
	return nil
}

// size writes bytes for people: 41 KB, 3.9 MB.
func size(n int64) string {
	switch {
	case n >= 10_000_000:
		return fmt.Sprintf("%.0f MB", float64(n)/1e6)
	case n >= 1_000_000:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 1000:
		return fmt.Sprintf("%.0f KB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d B", n)
}

func seconds(d time.Duration) string {
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
}
