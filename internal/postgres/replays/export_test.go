// Names for the tests, which are in a package of their own.

package replays

import (
	"context"

	"github.com/jackc/pgx/v5"
)

const FirstCheck = firstCheck

type LockedReplay = lockedReplay

func (s *lockedReplay) EventTypes(ctx context.Context, tx pgx.Tx) ([]string, error) {
	return s.present(ctx, tx)
}

const LongestCheck = longestCheck

var NextOf = nextOf

const ReplayScan = replayScan

func (s replaySet) After(cursor [16]byte) replaySet { return s.after(cursor) }

const ReplaySilence = replaySilence

var SetOf = setOf
