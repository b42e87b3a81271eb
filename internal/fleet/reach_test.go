package fleet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// A process does not start where it and another one that runs would not reach each other.
func TestProcessesThatCannotReachEachOther(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		self, other webhook.Process
		err         string
	}{
		"two machines, reached at loopback": {
			webhook.Process{Address: "127.0.0.1:8082", Machine: "a"}, webhook.Process{Address: "127.0.0.1:8082", Machine: "b"},
			"EVERPOST_LANE_LISTEN to an address",
		},
		"only this one is at loopback": {
			webhook.Process{Address: "[::1]:8082", Machine: "a"}, webhook.Process{Address: "10.0.0.2:8082", Machine: "b"}, "EVERPOST_LANE_LISTEN to an address",
		},
		"only the other one is": {
			webhook.Process{Address: "10.0.0.2:8082", Machine: "a"}, webhook.Process{Address: "localhost:8082", Machine: "b"}, "EVERPOST_LANE_LISTEN there",
		},
		"neither is":             {webhook.Process{Address: "10.0.0.1:8082", Machine: "a"}, webhook.Process{Address: "10.0.0.2:8082", Machine: "b"}, ""},
		"one machine":            {webhook.Process{Address: "127.0.0.1:8082", Machine: "a"}, webhook.Process{Address: "127.0.0.1:9", Machine: "a"}, ""},
		"a machine is not known": {webhook.Process{Address: "127.0.0.1:8082", Machine: "a"}, webhook.Process{Address: "127.0.0.1:9"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c.self.ID, c.other.ID = "self", "other"
				s := newTable()
				s.processes["other"], s.seen["other"] = c.other, time.Now()
				f := &Fleet{store: s, self: c.self}
				within, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				err := leases{f}.awaitReachable(within)
				if c.err == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, c.err)
				require.NoError(t, leases{f}.awaitReachable(t.Context()), "one that was killed seems to run for a few seconds")
			})
		})
	}
}

// A process that is out of reach, and seems to run, is named once a minute.
func TestUnreachableProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		f := &Fleet{peers: map[string]*peer{}, log: log.logger()}
		p := &peer{process: webhook.Process{ID: "other", Address: "10.0.0.2:8082"}, fleet: f}
		f.peers["other"] = p
		failed := errors.New("i/o timeout")
		for range 130 {
			p.noteReached(t.Context(), failed)
			<-time.After(time.Second)
		}
		require.Equal(t, 1, f.Unreachable())
		require.Len(t, log.all(), 2)
		require.Contains(t, log.all()[0], "10.0.0.2:8082")
		p.noteReached(t.Context(), nil)
		require.Zero(t, f.Unreachable())
	})
}
