package keys

import (
	"context"
	"log/slog"
	"time"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	useEvery   = 10 * time.Second // between two writes of last_used_at
	useTimeout = 5 * time.Second  // of the last one, when stopping
)

// UseLoop writes when keys were last used: many at a time, and once more at the end.
func (s *Keys) UseLoop(ctx context.Context) {
	tick := time.NewTicker(useEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.flushUse(ctx)
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), useTimeout)
			s.flushUse(ctx)
			cancel()
			return
		}
	}
}

func (s *Keys) flushUse(ctx context.Context) {
	used := s.cache.takeUse()
	if len(used) == 0 {
		return
	}
	if err := s.WriteUse(ctx, used); err != nil {
		// Information only: the next use of the keys, a minute later, is written again.
		s.core.Log.WarnContext(ctx, "last use of keys was not written", slog.Int("keys", len(used)), slog.Any("error", err))
	}
}

// keyUseStep is the precision of last_used_at.
const keyUseStep = time.Minute

// WriteUse writes when keys were last used. It skips rows that another process is
// writing: that process writes the same minute.
func (s *Keys) WriteUse(ctx context.Context, used map[webhook.KeyID]time.Time) error {
	ids, times := make([][16]byte, 0, len(used)), make([]time.Time, 0, len(used))
	for id, at := range used {
		ids, times = append(ids, id), append(times, at)
	}
	return s.core.AsOperator().WithConn(ctx, "write key use", func(ctx context.Context, conn postgres.Querier) error {
		_, err := conn.Exec(ctx, `
			with used as (
				select k.id, u.at from api_keys k join unnest($1::uuid[], $2::timestamptz[]) u (id, at) on u.id = k.id
				where k.last_used_at is null or k.last_used_at <= u.at - $3::bigint * interval '1 second'
				for no key update of k skip locked)
			update api_keys k set last_used_at = used.at from used where used.id = k.id`,
			ids, times, int64(keyUseStep/time.Second))
		return err
	})
}
