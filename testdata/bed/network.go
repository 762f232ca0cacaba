package bed

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Cable joins the networks of two devices: a new interface with a name and an address, such
// as "10.1.0.1/24", on each side. Without an address an interface is up and has none.
func Cable(a *Device, nameA, addressA string, b *Device, nameB, addressB string) error {
	err := done(run(exec.Command("ip", "link", "add", nameA, "netns", a.network(), "type", "veth", "peer", "name", nameB, "netns", b.network())))
	const up = `ip link set "$1" up; [ -z "$2" ] || ip address add "$2" dev "$1"`
	if err == nil {
		err = done(a.Run("bash", "-ec", up, "cable", nameA, addressA))
	}
	if err == nil {
		err = done(b.Run("bash", "-ec", up, "cable", nameB, addressB))
	}
	if err != nil {
		return fmt.Errorf("lay a cable: %w", err)
	}
	return nil
}

// network is the file of the device's network namespace.
func (d *Device) network() string { return d.Path("/proc/1/ns/net") }

// done is the error of a command that must succeed.
func done(r Result, err error) error {
	if err == nil && r.Code != 0 {
		return errors.New(r.Output())
	}
	return err
}

// SlowLine makes the device send no more than a rate through an interface, as tc names it
// ("1mbit"), and lose a share of the packets that arrive through it.
func (d *Device) SlowLine(name, rate string, loss float64) error {
	// A packet is what the line carries, not a train of them that the kernel hands over at
	// once: the share is lost of these.
	return done(d.Run("bash", "-ec", `
		ip link set dev "$1" gso_max_segs 1
		tc qdisc add dev "$1" root tbf rate "$2" burst 4kb latency 200ms
		iptables --wait -A INPUT -i "$1" -m statistic --mode random --probability "$3" -j DROP`,
		"line", name, rate, fmt.Sprint(loss)))
}

// Sent is how many bytes the device has sent through an interface, with all headers.
func (d *Device) Sent(name string) (int64, error) {
	r, err := d.Run("cat", "/proc/net/dev")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(r.Stdout) {
		if of, counts, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && of == name {
			return strconv.ParseInt(strings.Fields(counts)[8], 10, 64) // after eight of what arrived
		}
	}
	return 0, fmt.Errorf("no interface %s", name)
}

// Listen listens on an address in the device's network for a server in this process.
func (d *Device) Listen(address string) (net.Listener, error) {
	type result struct {
		l   net.Listener
		err error
	}
	made := make(chan result)
	go func() {
		// A socket stays in the network in which it was made. If the way back fails, the
		// thread ends with the goroutine.
		runtime.LockOSThread()
		l, err := d.listenInside(address)
		made <- result{l, err}
	}()
	r := <-made
	return r.l, r.err
}

func (d *Device) listenInside(address string) (l net.Listener, err error) {
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer own.Close()
	its, err := os.Open(d.network())
	if err != nil {
		return nil, err
	}
	defer its.Close()
	if err := unix.Setns(int(its.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	l, err = net.Listen("tcp", address)
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		return l, errors.Join(err, back)
	}
	runtime.UnlockOSThread()
	return l, err
}
