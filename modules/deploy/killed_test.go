package deploy

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// killed is a sub-module whose first calls are killed.
type killed struct {
	left, calls int
	err         error
}

func (k *killed) Call(context.Context, string, submodules.AnyRequest) ([]byte, error) {
	if k.calls++; k.calls <= k.left {
		return nil, k.err
	}
	return nil, nil
}

// A sub-module that the kernel kills, because it is out of memory, is called again, if its verb
// can be repeated. One that the deadline killed is not.
func TestKilledSubmoduleIsCalledAgain(t *testing.T) {
	oom := &submodules.CallError{Code: -1, Signal: "killed"}
	for name, c := range map[string]struct {
		verb  string
		left  int
		err   error
		calls int
		ok    bool
	}{
		"once":         {submodules.VerbRollback, 1, oom, 2, true},
		"twice":        {submodules.VerbRollout, 2, oom, 3, true},
		"again":        {submodules.VerbStart, 9, oom, killTries, false},
		"a question":   {submodules.VerbAlive, 1, oom, 2, true},
		"a load":       {submodules.VerbLoad, 1, oom, 1, false},
		"a command":    {submodules.VerbRun, 1, oom, 1, false},
		"the deadline": {submodules.VerbRollout, 1, &submodules.CallError{Code: submodules.CodeDeadline, Signal: "killed"}, 1, false},
		"a crash":      {submodules.VerbRollout, 1, &submodules.CallError{Code: -1, Signal: "segmentation fault"}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := store.At(t.TempDir())
			a, err := s.Create("shop")
			require.NoError(t, err)
			k := &killed{left: c.left, err: c.err}
			target := &target{e: &Engine{Store: s, Log: slog.New(slog.DiscardHandler)}, app: "shop", a: a, r: &store.Release{ID: "1-shop"}, sub: submodules.Client{Caller: k, Name: "fake"}}
			_, err = target.Call(t.Context(), c.verb, &submodules.Request{App: "shop"})
			require.Equal(t, c.ok, err == nil)
			require.Equal(t, c.calls, k.calls)
		})
	}
}
