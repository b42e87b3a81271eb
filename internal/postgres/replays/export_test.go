// What the tests look into.

package replays

import (
	"context"

	"github.com/jackc/pgx/v5"
)

const BeginLag = beginLag
const FirstLook = firstLook

type LockedReplay = lockedReplay

func (s *lockedReplay) EventTypes(a0 context.Context, a1 pgx.Tx) ([]string, error) {
	return s.eventTypes(a0, a1)
}

const LongestLook = longestLook
const MaxUnbegun = maxUnbegun

var NextOf = nextOf

const RelayLag = relayLag
const ReplayScan = replayScan

func (s replaySet) After(a0 [16]byte) replaySet { return s.after(a0) }

const ReplaySilence = replaySilence

var SetOf = setOf
