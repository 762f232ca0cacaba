package metered_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/metered"
)

func TestReaderAndWriter(t *testing.T) {
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	var sums []int64
	tell := metered.Sum(func(n int64) { sums = append(sums, n) })
	in := metered.Reader(ctx, strings.NewReader("abcde"), tell)
	var text strings.Builder
	out := metered.Writer(ctx, &text, nil)

	_, err := io.CopyN(out, in, 3)
	require.NoError(t, err)
	require.Equal(t, "abc", text.String())
	require.Equal(t, []int64{3}, sums)

	cancel(why)
	n, err := in.Read(make([]byte, 1))
	require.ErrorIs(t, err, why)
	require.Zero(t, n)
	n, err = out.Write([]byte("d"))
	require.ErrorIs(t, err, why)
	require.Zero(t, n)
	require.Equal(t, "abc", text.String())
}

func TestCounter(t *testing.T) {
	var n metered.Counter
	_, err := io.Copy(io.Discard, io.TeeReader(strings.NewReader("abcde"), &n))
	require.NoError(t, err)
	require.EqualValues(t, 5, n)
}
