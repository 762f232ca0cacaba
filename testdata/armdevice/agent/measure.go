package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// meter measures what commands cost.
type meter struct {
	mu    sync.Mutex
	peaks map[uint64]int64 // largest resident set by the inode of the program
}

func newMeter() *meter {
	m := &meter{peaks: map[uint64]int64{}}
	go func() {
		if err := m.listen(); err != nil {
			say(fmt.Errorf("no peaks of processes: %w", err))
		}
	}()
	return m
}

// measure does work and tells its cost. One at a time is measured well.
func (m *meter) measure(work func() (string, int)) result {
	unix.Sync()
	m.mu.Lock()
	clear(m.peaks)
	m.mu.Unlock()
	r := result{Before: used(), Peaks: map[string]int64{}}
	written, rested := sectors(), idle()
	done, sampled := make(chan struct{}), make(chan struct{})
	r.Used = r.Before
	go func() {
		defer close(sampled)
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
				r.Used = max(r.Used, used())
			}
		}
	}()
	start := time.Now()
	r.Output, r.Code = work()
	r.Seconds = time.Since(start).Seconds()
	r.Idle = idle() - rested
	close(done)
	<-sampled
	unix.Sync()
	r.Written = (sectors() - written) * 512
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, dir := range []string{"/usr/bin", "/usr/sbin", "/usr/libexec/docker/cli-plugins", "/usr/share/mender"} {
		_ = filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return nil
			}
			if info, err := e.Info(); err == nil {
				if peak, ok := m.peaks[info.Sys().(*syscall.Stat_t).Ino]; ok {
					r.Peaks[name] = peak
				}
			}
			return nil
		})
	}
	return r
}

// used is the memory in use in KiB.
func used() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	var total, available int64
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		n, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "MemTotal:":
			total = n
		case "MemAvailable:":
			available = n
		}
	}
	return total - available
}

// idle is for how many seconds the device's one processor had nothing to do, or waited
// for the disk.
func idle() float64 {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data)) // cpu user nice system idle iowait …
	if len(fields) < 6 {
		return 0
	}
	none, _ := strconv.ParseFloat(fields[4], 64)
	disk, _ := strconv.ParseFloat(fields[5], 64)
	return (none + disk) / 100 // Linux counts for user programs in 1/100 s
}

// sectors counts what the disk was given to write, in units of 512 bytes.
func sectors() int64 {
	data, err := os.ReadFile("/sys/block/vda/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 7 {
		return 0
	}
	n, _ := strconv.ParseInt(fields[6], 10, 64)
	return n
}

// Of linux/taskstats.h: commands, attributes, and the places of two fields in
// struct taskstats, the same on 32-bit and 64-bit machines.
const (
	cmdGet          = 1 // TASKSTATS_CMD_GET
	attrCPUMask     = 3 // TASKSTATS_CMD_ATTR_REGISTER_CPUMASK
	typeStats       = 3 // TASKSTATS_TYPE_STATS
	typeAggrPID     = 4 // TASKSTATS_TYPE_AGGR_PID
	offHiwaterRSS   = 200
	offExeInode     = 392
	genericHeader   = unix.SizeofNlMsghdr + 4
	familyTaskstats = "TASKSTATS"
)

// listen keeps the peak of every process that ends, from the kernel's own
// account of it, so that none is too short-lived to be seen.
func (m *meter) listen() error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(s) }()
	if err := unix.Bind(s, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	_ = unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20)
	send := func(family uint16, cmd byte, attr uint16, text string) error {
		value := append([]byte(text), 0)
		msg := make([]byte, genericHeader+4+(len(value)+3)&^3)
		binary.NativeEndian.PutUint32(msg, uint32(len(msg)))
		binary.NativeEndian.PutUint16(msg[4:], family)
		binary.NativeEndian.PutUint16(msg[6:], unix.NLM_F_REQUEST)
		msg[unix.SizeofNlMsghdr], msg[unix.SizeofNlMsghdr+1] = cmd, 1
		binary.NativeEndian.PutUint16(msg[genericHeader:], uint16(4+len(value)))
		binary.NativeEndian.PutUint16(msg[genericHeader+2:], attr)
		copy(msg[genericHeader+4:], value)
		return unix.Sendto(s, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err := send(unix.GENL_ID_CTRL, unix.CTRL_CMD_GETFAMILY, unix.CTRL_ATTR_FAMILY_NAME, familyTaskstats); err != nil {
		return err
	}
	family := uint16(0)
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(s, buf, 0)
		switch {
		case err == unix.EINTR || err == unix.ENOBUFS:
			continue
		case err != nil:
			return err
		case n < genericHeader:
			continue
		}
		kind := binary.NativeEndian.Uint16(buf[4:])
		switch {
		case kind == unix.NLMSG_ERROR:
			return fmt.Errorf("taskstats: %w", syscall.Errno(-int32(binary.NativeEndian.Uint32(buf[unix.SizeofNlMsghdr:]))))
		case kind == unix.GENL_ID_CTRL && family == 0:
			attributes(buf[genericHeader:n], func(kind uint16, value []byte) {
				if kind == unix.CTRL_ATTR_FAMILY_ID && len(value) >= 2 {
					family = binary.NativeEndian.Uint16(value)
				}
			})
			if err := send(family, cmdGet, attrCPUMask, "0"); err != nil { // one processor
				return err
			}
		case kind == family:
			attributes(buf[genericHeader:n], func(kind uint16, value []byte) {
				if kind == typeAggrPID {
					attributes(value, m.ended)
				}
			})
		}
	}
}

// ended notes a task that ended.
func (m *meter) ended(kind uint16, value []byte) {
	if kind != typeStats || len(value) < offExeInode+8 {
		return
	}
	inode := binary.NativeEndian.Uint64(value[offExeInode:])
	peak := int64(binary.NativeEndian.Uint64(value[offHiwaterRSS:]))
	if inode == 0 {
		return // not the last thread of its process
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.peaks[inode] = max(m.peaks[inode], peak)
}

// attributes calls f for each netlink attribute.
func attributes(b []byte, f func(kind uint16, value []byte)) {
	for len(b) >= 4 {
		size := int(binary.NativeEndian.Uint16(b))
		if size < 4 || size > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[2:])&0x3fff, b[4:size])
		b = b[min(len(b), (size+3)&^3):]
	}
}
