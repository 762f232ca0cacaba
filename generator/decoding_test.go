package generator

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/delta/budget"
	"github.com/mender-app/mender-app/delta/encoder"
)

// least searches with what pack says of each thrift.
func (l decodeLimit) least(pack func(thrift int) (int64, error)) error {
	for search := l.search(); ; {
		n, err := pack(search.thrift)
		if err != nil {
			return err
		}
		if done, err := search.judge(n); done || err != nil {
			return err
		}
	}
}

// The least thrift that keeps within the limit is tried last, and none without a limit.
func TestLeast(t *testing.T) {
	for want := range encoder.MaxThrift + 1 {
		var tried []int
		pack := func(thrift int) (int64, error) {
			tried = append(tried, thrift)
			return int64(100 - thrift), nil
		}
		require.NoError(t, decodeLimit{Instructions: int64(100 - want)}.least(pack))
		require.Equal(t, want, tried[len(tried)-1])
		require.LessOrEqual(t, len(tried), 6, "%v", tried)
		tried = nil
		require.NoError(t, decodeLimit{}.least(pack))
		require.Equal(t, []int{0}, tried)
	}
	failed := errors.New("failed")
	for fails := range encoder.MaxThrift + 1 {
		err := decodeLimit{Instructions: int64(100 - fails)}.least(func(thrift int) (int64, error) {
			if thrift == fails {
				return 0, failed
			}
			return int64(100 - thrift), nil
		})
		require.ErrorIs(t, err, failed)
	}
}

func TestTooMuch(t *testing.T) {
	armv7, known := budget.ClassOf("linux/arm/v7")
	require.True(t, known)
	needs := func(n int64) func(int) (int64, error) { return func(int) (int64, error) { return n, nil } }
	err := decodeLimit{armv7.Speed, armv7}.least(needs(armv7.Speed*3/2 + 1))
	require.EqualError(t, err, "decoding takes at least 1.6s on "+armv7.Processor+", and 1s are allowed")
	err = decodeLimit{Instructions: 2e9}.least(needs(2.51e9))
	require.EqualError(t, err, "decoding takes at least 2.6G instructions, and 2.0G are allowed")
	var much *tooMuchError
	require.ErrorAs(t, err, &much)
	require.Equal(t, "2.6G", much.Enough())
}

func TestLimitOn(t *testing.T) {
	armv7, _ := budget.ClassOf("linux/arm/v7")
	arm, second := budget.Budget{Class: "armv7", Time: time.Minute}, budget.Budget{Time: time.Second}
	l, err := decodeLimitOn([]budget.Budget{arm}, "linux/arm/v7")
	require.NoError(t, err)
	require.Equal(t, decodeLimit{60 * armv7.Speed, armv7}, l)
	l, err = decodeLimitOn([]budget.Budget{arm}, "linux/amd64")
	require.NoError(t, err)
	require.Zero(t, l.Instructions)
	_, err = decodeLimitOn([]budget.Budget{arm, second}, "linux/arm/v7")
	require.EqualError(t, err, "two are for linux/arm/v7")
	_, err = decodeLimitOn([]budget.Budget{second}, "linux/mips")
	require.ErrorContains(t, err, "is not known")
}

// Of several variants a device decodes one, and an image with two names once.
func TestOf(t *testing.T) {
	variants := artifact.Component{Digest: digest.Of([]byte("1")), Variants: []artifact.Variant{{Decode: 5}, {Decode: 20}, {}}}
	other := artifact.Component{Digest: digest.Of([]byte("2")), Variants: []artifact.Variant{{Decode: 100}}}
	require.Equal(t, int64(1120), decodingOf(&artifact.Sizes{Decode: 1000}, []artifact.Component{variants, other, variants}))
}
