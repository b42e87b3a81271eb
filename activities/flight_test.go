package activities

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

// R2, R3: the memo against a model. Whatever happens in whatever order, a key has
// one flight at a time; a recorded outcome that leads on is returned and not flown
// again while it is among the latest; an outcome that is not recorded is handed
// over; and neither kind is kept without bound.
func TestFlightsModel(t *testing.T) {
	t.Parallel()
	const most, remembered, keys = 3, 4, 12
	rapid.Check(t, func(t *rapid.T) {
		f := newFlights(most, remembered)
		flying := map[flightKey]*flight{}
		lost := map[flightKey]*webhook.Step{} // the newest that was left unrecorded
		var recent []flightKey                // recorded, newest last
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				key := flightKey{run: 1, number: rapid.IntRange(1, keys).Draw(t, "number")}
				fl, mine, err := f.enter(toFly(key, key.number-1), time.Time{})
				before, underWay := flying[key]
				switch {
				case underWay:
					require.Same(t, before, fl)
					require.False(t, mine)
				case err != nil:
					require.ErrorIs(t, err, errTooMany)
					require.Len(t, flying, most)
				case mine:
					require.Less(t, len(flying), most)
					require.NotContains(t, recent[max(0, len(recent)-remembered):], key, "remembered, and flown again")
					if fl.unrecorded != nil {
						require.Same(t, lost[key], fl.unrecorded)
					}
					flying[key] = fl
				default:
					require.NoError(t, fl.err)
					require.Equal(t, key.number, fl.result.Seq)
				}
			},
			"enter eagerly": func(t *rapid.T) {
				key := flightKey{run: 1, number: rapid.IntRange(1, keys).Draw(t, "number")}
				known := f.byKey[key] != nil
				fl := f.enterEager(toFly(key, key.number-1), time.Time{})
				require.Equal(t, !known && len(flying) < most, fl != nil)
				if fl != nil {
					require.Nil(t, fl.unrecorded)
					flying[key] = fl
				}
			},
			"end": func(t *rapid.T) {
				if len(flying) == 0 {
					t.Skip("nothing is under way")
				}
				key := rapid.SampledFrom(keysOf(flying)).Draw(t, "key")
				fl := flying[key]
				delete(flying, key)
				switch rapid.IntRange(0, 3).Draw(t, "how") {
				case 0:
					fl.result.Run, fl.result.Seq, fl.settled, fl.unrecorded = 1, key.number, true, nil
					recent = append(recent, key)
				case 1: // busy
				case 2:
					fl.err = errors.New("our fault")
				case 3:
					fl.err = errors.New("not recorded")
					fl.unrecorded = &webhook.Step{}
					lost[key] = fl.unrecorded
				}
				f.end(key, fl)
				again, mine, err := f.enter(toFly(key, key.number), time.Time{})
				require.NoError(t, err)
				require.True(t, mine, "what does not lead on is not remembered")
				require.Same(t, fl.unrecorded, again.unrecorded, "the newest that is left is never the one that goes")
				again.unrecorded, again.result, again.err, again.settled = fl.unrecorded, fl.result, fl.err, fl.settled
				f.end(key, again)
				if fl.settled {
					recent = append(recent, key)
				}
			},
			"": func(t *rapid.T) {
				require.LessOrEqual(t, len(f.byKey), len(flying)+2*remembered)
				require.Equal(t, len(flying), f.underWay)
				require.LessOrEqual(t, f.left.Len(), remembered)
			},
		})
		for key, fl := range flying {
			f.end(key, fl)
		}
		f.close()
		_, _, err := f.enter(toFly(flightKey{run: 1, number: keys + 1}, 0), time.Time{})
		require.ErrorIs(t, err, errStopping)
		require.Nil(t, f.enterEager(toFly(flightKey{run: 1, number: keys + 1}, 0), time.Time{}))
	})
}

// toFly asks for the flight with the key.
func toFly(key flightKey, seq int) AttemptInput {
	return AttemptInput{
		Ref: webhook.Ref{DeliveryID: key.delivery}, Progress: webhook.Progress{Run: key.run, Seq: seq, Attempts: key.number - 1},
	}
}

func keysOf(m map[flightKey]*flight) []flightKey {
	var all []flightKey
	for number := range 20 {
		if key := (flightKey{run: 1, number: number}); m[key] != nil {
			all = append(all, key)
		}
	}
	return all
}
