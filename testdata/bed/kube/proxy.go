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

// Proxy is a way to the API server that a test can cut, for itself alone.
type Proxy struct {
	Kubeconfig string // leads over the proxy

	t       testing.TB
	address string
	mu      sync.Mutex
	ln      net.Listener
	open    []net.Conn
}

// Proxy returns a proxy that is passable.
func (n *Node) Proxy(t testing.TB) *Proxy {
	t.Helper()
	p := &Proxy{t: t, address: "127.0.0.1:0", Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	p.Restore()
	p.address = p.ln.Addr().String()
	text, err := os.ReadFile(n.Kubeconfig())
	if err == nil {
		err = os.WriteFile(p.Kubeconfig, []byte(strings.ReplaceAll(string(text), server, "https://"+p.address)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Cut)
	return p
}

// Restore makes the proxy passable again.
func (p *Proxy) Restore() {
	p.t.Helper()
	ln, err := net.Listen("tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	p.ln = ln
	p.mu.Unlock()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", strings.TrimPrefix(server, "https://"))
			if err != nil {
				_ = c.Close()
				continue
			}
			p.mu.Lock()
			p.open = append(p.open, c, s)
			p.mu.Unlock()
			for from, to := range map[net.Conn]net.Conn{c: s, s: c} {
				go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
			}
		}
	}()
}

// Cut ends every connection; new ones are refused.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.ln.Close()
	for _, c := range p.open {
		_ = c.Close()
	}
	p.open = nil
}
