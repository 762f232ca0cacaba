package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCommand(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "sign it.sh")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nprintf '%s|' \"$@\"\ncat\n"), 0o755))
	s, err := commandSigner(t.Context(), `"`+script+`" --key 'two words' $HOME`)
	require.NoError(t, err)
	require.Nil(t, s.Public)
	got, err := s.Sign([]byte("digest"))
	require.NoError(t, err)
	require.Equal(t, "--key|two words|$HOME|digest", string(got), "words as a shell splits them, and no variables")

	for line, want := range map[string]string{
		"":             "names no program",
		"  ":           "names no program",
		"a | b":        "needs a shell",
		"a; b":         "needs a shell",
		"a 'b":         "the command line",
		"sign > file":  "needs a shell",
		"sign && echo": "needs a shell",
	} {
		_, err := commandSigner(t.Context(), line)
		require.ErrorContains(t, err, want, "%q", line)
	}
}

// A program that hangs ends with the context, also where its children hold its
// output open.
func TestCommandEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	s, err := commandSigner(ctx, `sh -c "sleep 5 & sleep 5"`)
	require.NoError(t, err)
	start := time.Now()
	_, err = s.Sign(nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(start), 4*time.Second)
}

func TestParseTokenURI(t *testing.T) {
	pin := filepath.Join(t.TempDir(), "pin")
	require.NoError(t, os.WriteFile(pin, []byte("1234\n"), 0o600))
	t.Setenv(pinVariable, "")
	t.Setenv("PKCS11_MODULE_PATH", "/m.so")
	for in, want := range map[string]tokenURI{
		"pkcs11:object=a": {object: "a", module: "/m.so"},
		"pkcs11:token=My%20token;object=a;type=private":    {token: "My token", object: "a", module: "/m.so"},
		"pkcs11:id=%01%ab?module-path=/x.so":               {id: "01ab", module: "/x.so"},
		"pkcs11:object=a?pin-value=99":                     {object: "a", module: "/m.so", pin: "env:" + pinVariable, env: []string{pinVariable + "=99"}},
		"pkcs11:object=a?pin-source=" + pin:                {object: "a", module: "/m.so", pin: "env:" + pinVariable, env: []string{pinVariable + "=1234"}},
		"pkcs11:object=a?pin-source=file:" + pin:           {object: "a", module: "/m.so", pin: "env:" + pinVariable, env: []string{pinVariable + "=1234"}},
		"pkcs11:object=a?module-path=/x.so&pin-value=a%26": {object: "a", module: "/x.so", pin: "env:" + pinVariable, env: []string{pinVariable + "=a&"}},
	} {
		got, err := parseTokenURI(in)
		require.NoError(t, err, in)
		require.Equal(t, want, *got, in)
	}
	for in, want := range map[string]string{
		"object=a":                      "does not begin",
		"pkcs11:":                       "names no key",
		"pkcs11:token=a":                "names no key",
		"pkcs11:object=a;slot-id=1":     `"slot-id" is not supported`,
		"pkcs11:object=a;type=cert":     "is not private",
		"pkcs11:object=%zz":             "object",
		"pkcs11:object=a?pin-source=/x": "pin-source",
	} {
		_, err := parseTokenURI(in)
		require.ErrorContains(t, err, want, in)
	}
	t.Setenv(pinVariable, "7")
	got, err := parseTokenURI("pkcs11:object=a")
	require.NoError(t, err)
	require.Equal(t, "env:"+pinVariable, got.pin)
}
