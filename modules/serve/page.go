package serve

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for page.html
	"encoding/base64"
)

// page is a self-contained page for a browser. It reads its content from the other
// paths, so by itself it reveals nothing about the device.
//
//go:embed page.html
var page []byte

// servePage answers with the page. The browser runs only the script in it and
// contacts only this server.
func servePage(_ *Server, q *query) (any, error) {
	q.head["Content-Security-Policy"] = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; connect-src 'self'; img-src data:; style-src '" +
		hashOf("style") + "'; script-src '" + hashOf("script") + "'"
	return page, nil
}

// hashOf returns the hash by which a content security policy names the page's only
// element of a kind.
func hashOf(element string) string {
	_, rest, _ := bytes.Cut(page, []byte("<"+element+">"))
	text, _, _ := bytes.Cut(rest, []byte("</"+element+">"))
	sum := sha256.Sum256(text)
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
