package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/cmd/internal/devicetest"
)

// keyPair writes a key into NAME.key and NAME.pub in dir.
func keyPair(t *testing.T, dir, name string) {
	t.Helper()
	var signer crypto.Signer
	var block pem.Block
	if strings.HasPrefix(name, "rsa") {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		require.NoError(t, err)
		// The only form of an RSA key that mender-artifact 3.9.0 takes.
		signer, block = key, pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	} else {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		der, err := x509.MarshalECPrivateKey(key)
		require.NoError(t, err)
		signer, block = key, pem.Block{Type: "EC PRIVATE KEY", Bytes: der}
	}
	der, err := x509.MarshalPKIXPublicKey(signer.Public())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, name+".key"), pem.EncodeToMemory(&block), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, name+".pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o644))
}

// signedDevice is a device with the keys rsa, ec, ec-2 and ed, and for each of
// the applications shop and ci-web an artifact that is not signed, APP.mender,
// and one that each key has signed, APP-KEY.mender: with the real
// mender-artifact, but for the Ed25519 key, which it does not take.
func signedDevice(t *testing.T) *devicetest.Device {
	t.Helper()
	if _, err := exec.LookPath("mender-artifact"); err != nil {
		t.Skip("needs mender-artifact")
	}
	d, err := devicetest.NewDevice(t.TempDir())
	require.NoError(t, err)
	for _, name := range []string{"rsa", "ec", "ec-2"} {
		keyPair(t, d.Dir, name)
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(public)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(d.Dir, "ed.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o644))
	for _, app := range []string{"shop", "ci-web"} {
		plain := filepath.Join(d.Dir, app+".mender")
		a := devicetest.Artifact{Name: app + "-1", App: app, Compose: app, Images: []string{"web:1=web-" + app}}
		require.NoError(t, a.Write(plain))
		a.Key = private
		require.NoError(t, a.Write(filepath.Join(d.Dir, app+"-ed.mender")))
		for _, key := range []string{"rsa", "ec", "ec-2"} {
			out, err := exec.Command("mender-artifact", "sign", plain, "-k", filepath.Join(d.Dir, key+".key"),
				"-o", filepath.Join(d.Dir, app+"-"+key+".mender")).CombinedOutput()
			require.NoError(t, err, "%s", out)
		}
	}
	return d
}

// configure replaces what app.conf says of signatures. @ stands for the device's
// directory.
func configure(t *testing.T, d *devicetest.Device, text string) {
	t.Helper()
	path := filepath.Join(d.Dir, "app.conf")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	base, _, _ := strings.Cut(string(data), "allow_unsigned")
	require.NoError(t, os.WriteFile(path, []byte(base+"allow_unsigned = false\n"+strings.ReplaceAll(text, "@", d.Dir)), 0o644))
	if strings.Contains(text, "allow_unsigned") {
		require.NoError(t, os.WriteFile(path, []byte(base+strings.ReplaceAll(text, "@", d.Dir)), 0o644))
	}
}

// TestSignatures: what each configuration lets in and keeps out. Nothing of an
// artifact that is kept out reaches the sub-module.
func TestSignatures(t *testing.T) {
	if testing.Short() {
		t.Skip("calls many programs; left out of -short")
	}
	d := signedDevice(t)
	bound := "[[keys]]\nfile = \"@/ec.pub\"\napplications = [\"shop\"]\n[[keys]]\nfile = \"@/rsa.pub\"\napplications = [\"ci-*\", \"*-till\"]\n"
	for name, c := range map[string]struct {
		conf   string // of mender-app.conf
		mender string // mender.conf
		args   []string
		files  []string
		refuse string // what the error says; "" if the artifact is installed
		usage  bool   // it is an error of usage
		warns  string
	}{
		"no key":             {files: []string{"shop", "shop-ec"}, refuse: "refused: there is no public key to check the artifact's signature with: set artifact_verify_key in "},
		"no key, --unsigned": {args: []string{"--unsigned"}, files: []string{"shop", "shop-ec"}, warns: "warning: the artifact's signature is not checked"},
		"unsigned allowed":   {conf: "allow_unsigned = true", files: []string{"shop"}, warns: "warning: the artifact's signature is not checked"},
		"one key":            {conf: "artifact_verify_key = \"@/ec.pub\"", files: []string{"shop-ec", "ci-web-ec"}},
		"RSA":                {conf: "artifact_verify_key = \"@/rsa.pub\"", files: []string{"shop-rsa"}},
		"Ed25519":            {conf: "artifact_verify_keys = [\"@/rsa.pub\", \"@/ed.pub\"]", files: []string{"shop-ed", "shop-rsa"}},
		"another, Ed25519":   {conf: "artifact_verify_key = \"@/ed.pub\"", files: []string{"shop-ec", "shop-rsa"}, refuse: "not by a key that is trusted"},
		"Ed25519, another":   {conf: "artifact_verify_keys = [\"@/ec.pub\", \"@/rsa.pub\"]", files: []string{"shop-ed"}, refuse: "not by a key that is trusted"},
		"bound, Ed25519":     {conf: "[[keys]]\nfile = \"@/ed.pub\"\napplications = [\"ci-*\"]", files: []string{"ci-web-ed"}},
		"another key":        {conf: "artifact_verify_key = \"@/ec.pub\"", files: []string{"shop-rsa", "shop-ec-2"}, refuse: "not by a key that is trusted"},
		"a key, not signed":  {conf: "allow_unsigned = true\nartifact_verify_key = \"@/ec.pub\"", files: []string{"shop"}, refuse: "it is not signed"},
		"a key, --unsigned":  {conf: "artifact_verify_key = \"@/ec.pub\"", args: []string{"--unsigned"}, files: []string{"shop"}, refuse: "--unsigned is for devices without a key", usage: true},
		"rotation":           {conf: "artifact_verify_keys = [\"@/rsa.pub\", \"@/ec.pub\"]", files: []string{"shop-rsa", "shop-ec"}},
		"rotation, another":  {conf: "artifact_verify_keys = [\"@/rsa.pub\", \"@/ec.pub\"]", files: []string{"shop-ec-2"}, refuse: "not by a key that is trusted"},
		"both settings":      {conf: "artifact_verify_key = \"@/ec.pub\"\nartifact_verify_keys = [\"@/rsa.pub\"]", files: []string{"shop-rsa", "shop-ec"}},
		"--key":              {conf: "artifact_verify_key = \"@/ec.pub\"", args: []string{"--key", "@/rsa.pub", "--key", "@/ec-2.pub"}, files: []string{"shop-rsa", "shop-ec-2"}},
		"--key, another":     {conf: "artifact_verify_key = \"@/ec.pub\"", args: []string{"--key", "@/rsa.pub"}, files: []string{"shop-ec"}, refuse: "not by a key that is trusted"},

		"a key that is missing":    {conf: "artifact_verify_keys = [\"@/rsa.pub\", \"@/gone.pub\"]", files: []string{"shop-rsa"}, refuse: "gone.pub: no such file"},
		"a key that is none":       {conf: "artifact_verify_key = \"@/device_type\"", files: []string{"shop-rsa"}, refuse: "no public key in PEM form"},
		"a misspelt setting":       {conf: "allow_unsigned = true\nartifact_verify_kye = \"@/ec.pub\"", files: []string{"shop", "shop-ec"}, refuse: "unknown setting \"artifact_verify_kye\"", usage: true},
		"a misspelt one, --key":    {conf: "artifact_verify_kye = \"@/ec.pub\"", args: []string{"--key", "@/ec.pub"}, files: []string{"shop-ec"}, refuse: "unknown setting", usage: true},
		"misspelt otherwise":       {conf: "allow_unsigned = true\nArtifactVerifyKey = \"@/ec.pub\"", files: []string{"shop"}, refuse: "unknown setting", usage: true},
		"a table that is misspelt": {conf: "[[keys]]\nfile = \"@/ec.pub\"\napplication = \"shop\"\napplications = [\"shop\"]", files: []string{"shop-ec"}, refuse: "unknown setting \"application\"", usage: true},
		"a key bound to nothing":   {conf: "[[keys]]\nfile = \"@/ec.pub\"", files: []string{"shop-ec"}, refuse: "applications is not set", usage: true},
		"a pattern that is none":   {conf: "[[keys]]\nfile = \"@/ec.pub\"\napplications = [\"[\"]", files: []string{"shop-ec"}, refuse: "is not a pattern", usage: true},

		"mender.conf":               {mender: `{"ArtifactVerifyKey": "@/ec.pub"}`, files: []string{"shop-ec"}},
		"mender.conf, several":      {mender: `{"ServerURL": "x", "ArtifactVerifyKeys": ["@/ec.pub", "@/rsa.pub"]}`, files: []string{"shop-ec", "shop-rsa"}},
		"mender.conf, another":      {conf: "allow_unsigned = true", mender: `{"ArtifactVerifyKey": "@/ec.pub"}`, files: []string{"shop"}, refuse: "it is not signed"},
		"mender.conf, not ours":     {conf: "artifact_verify_key = \"@/rsa.pub\"", mender: `{"ArtifactVerifyKey": "@/ec.pub"}`, files: []string{"shop-ec"}, refuse: "not by a key that is trusted"},
		"mender.conf, damaged":      {conf: "allow_unsigned = true", mender: `{"ArtifactVerifyKey": `, files: []string{"shop"}, refuse: "mender.conf: ", usage: true},
		"mender.conf, misspelt":     {conf: "allow_unsigned = true", mender: `{"ArtifactVerifyKye": "@/ec.pub"}`, files: []string{"shop"}, refuse: "ArtifactVerifyKye: unknown setting", usage: true},
		"mender.conf without a key": {conf: "allow_unsigned = true", mender: `{}`, files: []string{"shop"}, warns: "is not checked"},

		"bound":                         {conf: bound, files: []string{"shop-ec", "ci-web-rsa"}},
		"bound to others":               {conf: bound, files: []string{"ci-web-ec"}, refuse: `ec.pub may not sign for application "ci-web", only for shop`},
		"bound to others, by a pattern": {conf: bound, files: []string{"shop-rsa"}, refuse: `rsa.pub may not sign for application "shop", only for ci-*, *-till`},
		"bound, another key":            {conf: bound, files: []string{"shop-ec-2"}, refuse: "not by a key that is trusted"},
		"bound, --key":                  {conf: bound, args: []string{"--key", "@/rsa.pub"}, files: []string{"shop-rsa"}},
		"one bound, one not": {conf: "artifact_verify_key = \"@/rsa.pub\"\n[[keys]]\nfile = \"@/ec.pub\"\napplications = [\"shop\"]\n",
			files: []string{"shop-ec", "ci-web-rsa"}},
		"one bound, one not, the wrong one": {conf: "artifact_verify_key = \"@/rsa.pub\"\n[[keys]]\nfile = \"@/ec.pub\"\napplications = [\"shop\"]\n",
			files: []string{"shop-rsa"}, refuse: `rsa.pub may not sign for application "shop", which other keys are bound to`},
		"one key bound twice": {conf: "[[keys]]\nfile = \"@/ec.pub\"\napplications = [\"shop\"]\n[[keys]]\nfile = \"@/ec.pub\"\napplications = [\"ci-*\"]\n",
			files: []string{"shop-ec", "ci-web-ec"}},
	} {
		t.Run(name, func(t *testing.T) {
			configure(t, d, c.conf)
			require.NoError(t, os.RemoveAll(filepath.Join(d.Dir, "mender.conf")))
			if c.mender != "" {
				require.NoError(t, os.WriteFile(filepath.Join(d.Dir, "mender.conf"), []byte(strings.ReplaceAll(c.mender, "@", d.Dir)), 0o644))
			}
			for _, file := range c.files {
				require.NoError(t, os.RemoveAll(filepath.Join(d.Dir, "fake")))
				require.NoError(t, os.MkdirAll(filepath.Join(d.Dir, "fake"), 0o755))
				require.NoError(t, os.RemoveAll(filepath.Join(d.Dir, "store")))
				args := []string{"install"}
				for _, a := range c.args {
					args = append(args, strings.ReplaceAll(a, "@", d.Dir))
				}
				_, stderr, err := d.Run(nil, "mender-app", append(args, file+".mender")...)
				if c.refuse == "" {
					require.NoError(t, err, "%s: %s", file, stderr)
					if c.warns == "" {
						require.NotContains(t, stderr, "warning", file)
					} else {
						require.Contains(t, stderr, c.warns, file)
					}
					require.Equal(t, app(file), d.Running(app(file)))
					continue
				}
				require.Contains(t, stderr, c.refuse, file)
				var exit *exec.ExitError
				require.True(t, errors.As(err, &exit), file)
				if c.usage {
					require.Equal(t, device.ExitUsage, exit.ExitCode(), stderr)
				} else if strings.Contains(c.refuse, "refused") || strings.Contains(c.refuse, "sign") && !strings.Contains(c.refuse, "PEM") {
					require.Equal(t, device.ExitRefused, exit.ExitCode(), stderr)
				}
				require.NoFileExists(t, filepath.Join(d.Dir, "fake", "calls"), "the sub-module was called for %s", file)
				require.NoDirExists(t, filepath.Join(d.Dir, "store"), file)
			}
		})
	}
}

// app is the application of an artifact of signedDevice.
func app(file string) string {
	for _, name := range []string{"shop", "ci-web"} {
		if strings.HasPrefix(file, name) {
			return name
		}
	}
	return fmt.Sprintf("application of %s", file)
}

// TestCheckedSignatures: check says of a signature what the client says that would install
// the artifact, makes all other checks too, and shows an artifact of anybody to no
// sub-module.
func TestCheckedSignatures(t *testing.T) {
	if testing.Short() {
		t.Skip("calls many programs; left out of -short")
	}
	d := signedDevice(t)
	client := filepath.Join(d.Dir, "bin", "mender-update")
	for _, c := range []struct {
		name, conf, mender string
		managed            bool
		args               []string
		file, want         string
		code               int
	}{
		{name: "a trusted key", conf: "artifact_verify_key = \"@/ec.pub\"", file: "shop-ec", want: `pass +-`},
		{name: "another key", conf: "artifact_verify_key = \"@/ec.pub\"", file: "shop-rsa", want: `fail .*not by a key that is trusted`, code: 9},
		{name: "not signed", conf: "artifact_verify_key = \"@/ec.pub\"", file: "shop", want: `fail .*it is not signed`, code: 9},
		{name: "no key", file: "shop", want: `fail .*there is no public key`, code: 9},
		{name: "no key, --unsigned", args: []string{"--unsigned"}, file: "shop", want: `pass +it is not checked`},
		{name: "a key that is missing", conf: "artifact_verify_key = \"@/gone.pub\"", file: "shop", want: `fail .*gone.pub: no such file`, code: 9},
		{name: "a damaged setting", conf: "artifact_verify_kye = \"@/ec.pub\"", file: "shop", want: `fail .*unknown setting`, code: 9},
		{name: "Mender, no key", managed: true, mender: "{}", file: "shop", want: `pass +the Mender client does not check it`},
		{name: "Mender, no key, ours", conf: "artifact_verify_key = \"@/ec.pub\"", managed: true, mender: "{}", file: "shop-rsa", want: `pass +the Mender client does not check it`},
		{name: "Mender, its key", conf: "artifact_verify_key = \"@/ec.pub\"", managed: true, mender: `{"ArtifactVerifyKey": "@/rsa.pub"}`, file: "shop-rsa", want: `pass +-`},
		{name: "Mender, another", managed: true, mender: `{"ArtifactVerifyKey": "@/rsa.pub"}`, file: "shop-ec", want: `fail .*not by a key that is trusted`, code: 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			configure(t, d, c.conf)
			require.NoError(t, os.RemoveAll(filepath.Join(d.Dir, "mender.conf")))
			require.NoError(t, os.RemoveAll(filepath.Join(d.Dir, "fake", "calls")))
			require.NoError(t, os.RemoveAll(client))
			if c.mender != "" {
				require.NoError(t, os.WriteFile(filepath.Join(d.Dir, "mender.conf"), []byte(strings.ReplaceAll(c.mender, "@", d.Dir)), 0o644))
			}
			if c.managed {
				require.NoError(t, os.WriteFile(client, []byte("#!/bin/sh\n"), 0o755))
			}
			stdout, stderr, err := d.Run(nil, "mender-app", append(append([]string{"check"}, c.args...), c.file+".mender")...)
			require.Regexp(t, `(?m)^signature +`+c.want, stdout, stderr)
			require.Regexp(t, `(?m)^space +pass`, stdout, "every check is made")
			if c.code == 0 {
				require.NoError(t, err)
				require.Empty(t, stderr, "nothing beside a pass")
				require.Regexp(t, `(?m)^manifests +pass`, stdout)
				return
			}
			var exit *exec.ExitError
			require.True(t, errors.As(err, &exit))
			require.Equal(t, c.code, exit.ExitCode(), stderr)
			require.Regexp(t, `(?m)^manifests +not checked +signature failed`, stdout)
			require.Regexp(t, `(?m)^error: refused: shop-1 would not be installed: signature$`, stderr)
			calls, err := os.ReadFile(filepath.Join(d.Dir, "fake", "calls"))
			require.NoError(t, err)
			require.NotContains(t, string(calls), "CHECK")
		})
	}
}
