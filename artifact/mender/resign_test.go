package mender

import (
	"bytes"
	"crypto"
	"testing"

	"github.com/stretchr/testify/require"
)

// Everything but the meta-data and the signature is as before, state scripts too, with each
// compression.
func TestReplaceMetaData(t *testing.T) {
	first, second := newKey(t, "RSA"), newKey(t, "ECDSA")
	for _, c := range Compressions {
		spec := sampleSpec()
		spec.MetaData = []byte(`{"a":1}`)
		spec.Scripts = []Script{{Name: "ArtifactInstall_Enter_00", Data: []byte("#!/bin/sh\n")}}
		old := write(t, spec, Options{Compression: c, Key: first.signer})
		before, wantFiles, err := read(old)
		require.NoError(t, err)

		var out bytes.Buffer
		require.NoError(t, ReplaceMetaData(&out, bytes.NewReader(old), []byte(`{"a":2,"b":"more"}`), Options{Key: second.signer}))
		after, files, err := read(out.Bytes())
		require.NoError(t, err, c)
		require.Equal(t, wantFiles, files)
		require.Equal(t, `{"a":2,"b":"more"}`, string(after.MetaData))
		require.NotEmpty(t, after.ScriptSums)
		same := *after
		same.MetaData = before.MetaData
		require.Equal(t, *before, same)
		_, err = NewReader(&out, ReadOptions{PublicKeys: []crypto.PublicKey{second.signer.Public()}})
		require.NoError(t, err)

		// One that is not whole is not signed.
		out.Reset()
		require.Error(t, ReplaceMetaData(&out, bytes.NewReader(old[:len(old)-2048]), []byte(`{}`), Options{Key: second.signer}))
		broken := bytes.Clone(old)
		broken[len(broken)-1500] ^= 1
		require.Error(t, ReplaceMetaData(&out, bytes.NewReader(broken), []byte(`{}`), Options{Key: second.signer}))
		require.Empty(t, out.Bytes())
		require.Error(t, ReplaceMetaData(&out, bytes.NewReader(old), []byte(`{"a":1,"A":2}`), Options{Key: second.signer}))
	}
}
