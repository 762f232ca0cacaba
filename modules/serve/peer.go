package serve

import (
	"context"
	"net"
	"net/http"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Peer is the process at the other end of a unix socket, as the kernel knows it.
type Peer struct {
	UID    uint32
	Groups []uint32 // the first is its own, the others are supplementary
}

// In reports whether the process is root's, or in a group.
func (p *Peer) In(group uint32) bool { return p.UID == 0 || slices.Contains(p.Groups, group) }

type peerKey struct{}

// withPeer adds the peer of a connection to the context of its requests.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if counted, ok := c.(*connection); ok {
		c = counted.Conn
	}
	if peer := peerOn(c); peer != nil {
		return context.WithValue(ctx, peerKey{}, peer)
	}
	return ctx
}

// peerOn is the peer of a connection; nil if it is none of a unix socket.
func peerOn(c net.Conn) *Peer {
	socket, ok := c.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	var peer *Peer
	if raw.Control(func(fd uintptr) { peer = peerOf(int(fd)) }) != nil {
		return nil
	}
	return peer
}

// peerOf asks the kernel who made the connection; nil if unknown.
func peerOf(fd int) *Peer {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil
	}
	var groups [64]uint32 // a process in more counts as being in none
	size := uint32(len(groups) * 4)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
		uintptr(unsafe.Pointer(&groups)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		size = 0
	}
	return &Peer{UID: cred.Uid, Groups: append([]uint32{cred.Gid}, groups[:size/4]...)}
}

// peer returns the process that sent the request; nil over TCP.
func peer(req *http.Request) *Peer {
	p, _ := req.Context().Value(peerKey{}).(*Peer)
	return p
}
