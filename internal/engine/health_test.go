package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"github.com/everpost/everpost/internal/engine/enginetest"
)

// What an error of a call says about Temporal. At most it makes the check begin at once.
func TestNote(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err   error
		doubt bool
	}{
		"none":           {},
		"unavailable":    {err: serviceerror.NewUnavailable("x"), doubt: true},
		"late":           {err: context.DeadlineExceeded, doubt: true},
		"late, of gRPC":  {err: serviceerror.NewDeadlineExceeded("x"), doubt: true},
		"gone":           {err: serviceerror.NewNotFound("x")},
		"refused":        {err: serviceerror.NewInvalidArgument("x")},
		"too many":       {err: serviceerror.NewResourceExhausted(0, "x")},
		"something else": {err: errors.New("x"), doubt: true},
	} {
		d := setup(t, Config{})
		for range 2 {
			d.Health.classify(c.err) // twice: it must not block
		}
		require.True(t, d.Health.Up(), name)
		require.Equal(t, c.doubt, d.Health.suspected() != nil, name)
		require.Equal(t, c.doubt, len(d.Health.checkNow) == 1, name)
	}
}

// A limit that is exceeded changes nothing: Temporal stays down, or up.
func TestExceededLimitIsNoVerdict(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, c := enginetest.New(t)
		d := setup(t, Config{Client: c})
		d.Start()
		defer d.Lifetime.Stop()
		f.CannotWrite(serviceerror.NewResourceExhausted(0, "x"))
		d.Health.suspect()
		enginetest.LetPass(checkTimeout + time.Second)
		require.True(t, d.Health.Up())
		require.Zero(t, d.Health.TemporalDownSince())
		d.Health.MarkDown(context.DeadlineExceeded)
		enginetest.LetPass(time.Minute)
		require.False(t, d.Health.Up())
		require.Equal(t, time.Minute, time.Since(d.Health.TemporalDownSince()), "the first failure counts, not the last")
		f.CanWrite()
		enginetest.LetPass(checkTimeout + time.Second)
		require.True(t, d.Health.Up())
	})
}
