package kube

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Proxy is a connection to the API server that one test can cut without affecting
// others.
type Proxy struct {
	Kubeconfig string // leads over the proxy

	mu      sync.Mutex
	cut     bool
	refused chan struct{} // closed when someone was turned away
	open    []net.Conn
}

// Proxy returns a proxy that passes connections on.
func (n *Node) Proxy(t testing.TB) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	p := &Proxy{Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	text, err := os.ReadFile(n.Kubeconfig())
	if err == nil {
		err = os.WriteFile(p.Kubeconfig, []byte(strings.ReplaceAll(string(text), server, "https://"+ln.Addr().String())), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Cut)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			p.pass(c)
		}
	}()
	return p
}

// pass connects c to the API server, or refuses it.
func (p *Proxy) pass(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		_ = c.Close()
		if p.refused != nil {
			close(p.refused)
			p.refused = nil
		}
		return
	}
	s, err := net.Dial("tcp", strings.TrimPrefix(server, "https://"))
	if err != nil {
		_ = c.Close()
		return
	}
	p.open = append(p.open, c, s)
	for from, to := range map[net.Conn]net.Conn{c: s, s: c} {
		go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
	}
}

// Restore makes the proxy pass connections on again.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

// Cut ends every connection and refuses new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for _, c := range p.open {
		_ = c.Close()
	}
	p.open = nil
}

// Refused returns a channel that is closed when the next connection was refused.
func (p *Proxy) Refused() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := make(chan struct{})
	p.refused = c
	return c
}
