// Package sdjournal tells systemd's journal what happens to applications, in entries with
// fields and a MESSAGE_ID, so that programs can find them. Where there is no journal, or
// it does not take an entry at once, nothing happens: an update does not wait for it.
package sdjournal

import (
	"bytes"
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
)

// The MESSAGE_IDs. packaging/systemd/mender-app.catalog explains them to journalctl -x.
const (
	IDPhase  = "9e1f6a3c0d4b4e6f8a52c7d1b0e3f465"
	IDDone   = "4c8a2f7e91d54b03a6e8d2f1c5b7904a"
	IDFailed = "b7d30e5a62f84c19915f4ad8e6c2037b"
)

// Socket is where the journal accepts entries. See systemd's "Native Journal Protocol".
const Socket = "/run/systemd/journal/socket"

const (
	patience = 200 * time.Millisecond
	maxField = 2 << 10 // bytes of a value
)

// Teller returns a function that reports events to the journal at a socket, or nil if
// this process does not run under systemd, which sets JOURNAL_STREAM for services and
// their children.
func Teller(socket string, getenv func(string) string) func(journal.Notice) {
	if getenv("JOURNAL_STREAM") == "" {
		return nil
	}
	return func(e journal.Notice) { send(socket, fields(e)) }
}

// fields are the fields of an entry.
func fields(e journal.Notice) [][2]string {
	id, priority, text := IDPhase, "6", e.Artifact+" is "+e.Phase
	switch e.Status {
	case "":
	case store.StatusInstalled, store.StatusRestored, store.StatusPurged, store.StatusReconciled:
		id, priority, text = IDDone, "5", e.Artifact+" is "+e.Status
	default:
		id, priority, text = IDFailed, "3", e.Artifact+" is "+e.Status
	}
	if e.Error != "" {
		text += ": " + e.Error
	}
	return [][2]string{
		{"MESSAGE", e.App + ": " + strings.TrimSpace(text)}, {"MESSAGE_ID", id}, {"PRIORITY", priority}, {"SYSLOG_IDENTIFIER", "mender-app"},
		{"MENDER_APP_APPLICATION", e.App}, {"MENDER_APP_ARTIFACT", e.Artifact}, {"MENDER_APP_RELEASE", e.Release}, {"MENDER_APP_STEP", e.Phase},
		{"MENDER_APP_STATUS", e.Status}, {"MENDER_APP_DEPLOYMENT", strconv.FormatInt(e.Number, 10)}, {"MENDER_APP_ERROR", e.Error},
	}
}

// send sends one entry, or drops it if the journal does not accept it at once. It makes
// the few calls itself: package net would be a twentieth of the update module, which
// needs no network.
func send(socket string, list [][2]string) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	wait := unix.NsecToTimeval(int64(patience))
	if unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait) != nil {
		return
	}
	to, entry := &unix.SockaddrUnix{Name: socket}, encode(list)
	for end := time.Now().Add(patience); ; {
		// A signal ends the wait, such as those Go's scheduler uses to interrupt threads.
		if err := unix.Sendto(fd, entry, unix.MSG_NOSIGNAL, to); err != unix.EINTR || time.Now().After(end) {
			return
		}
	}
}

// encode writes fields in the protocol's form, without empty ones.
func encode(list [][2]string) []byte {
	var out bytes.Buffer
	for _, f := range list {
		name, value := f[0], f[1][:min(len(f[1]), maxField)]
		switch {
		case value == "":
		case strings.Contains(value, "\n"):
			out.WriteString(name + "\n")
			out.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(value))))
			out.WriteString(value + "\n")
		default:
			out.WriteString(name + "=" + value + "\n")
		}
	}
	return out.Bytes()
}

// Tell returns a function that reports events to this machine's journal.
func Tell() func(journal.Notice) { return Teller(Socket, os.Getenv) }
