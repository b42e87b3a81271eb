package postgres

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everpost/everpost/internal/cache"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// A change takes effect everywhere within 2 s, even if a connection died unnoticed.
	// The listener notifies itself, its beat, every beatEvery and waits beatTimeout until
	// it hears that: a query is also answered by a standby, or by a pooler's other session.
	// It counts as down beatLife after the last beat that it heard, and a cache entry older
	// than staleAfter is then read again. So a change at time t is seen by
	// t + max(beatLife, staleAfter).
	beatEvery   = 500 * time.Millisecond
	beatTimeout = 500 * time.Millisecond
	beatLife    = 1500 * time.Millisecond
	staleAfter  = 2 * time.Second
	freshFor    = time.Minute // while the listener is up, in case it misses a change

	reconnectFirst = 100 * time.Millisecond
	reconnectLast  = 5 * time.Second
)

type changeKind string

// What has changed.
const (
	ChangeEndpoint changeKind = "endpoint"
	ChangeKey      changeKind = "key"
	ChangeTenant   changeKind = "tenant" // changed, or deleted with all its keys
	ChangeMoved    changeKind = "moved"  // an endpoint has another URL or state; sent with ChangeEndpoint

	ChangeEventType changeKind = "event_type" // of the catalogue
)

// Change is what one process notifies the others of after a commit. Only changes of endpoints,
// keys, tenants and event types are notified: commits with a NOTIFY are serialized, and one in every commit
// cost 30 % of the throughput.
type Change struct {
	Kind    changeKind `json:"k"`
	ID      string     `json:"id,omitempty"`
	Tenant  string     `json:"t,omitempty"`
	Version int64      `json:"v,omitempty"` // of the tenant's endpoints
	Policy  bool       `json:"p,omitempty"` // the tenant's retry policy has changed, and so its endpoints'
}

// channelName is an SQL expression: a channel belongs to a database, the caches to a schema in
// it. A name has at most 63 bytes.
const channelName = `left('everpost_' || current_schema(), 63)`

// Notify notifies every process of a change once its transaction is committed.
func Notify(ctx context.Context, tx pgx.Tx, c Change) error {
	payload, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("notify of %s: %w", c.Kind, err)
	}
	if _, err := tx.Exec(ctx, `select pg_notify(`+channelName+`, $1)`, string(payload)); err != nil {
		return fmt.Errorf("notify of %s: %w", c.Kind, err)
	}
	return nil
}

// changeBus passes the changes of every process on to the stores of this one.
type changeBus struct {
	heard    heartbeat
	handlers []ChangeHandler
}

// ChangeHandler is a cache, or whatever else depends on changes.
type ChangeHandler interface {
	Changed(c Change)
	ForgetAll() // changes may have been missed
}

// Subscribe adds a handler. It must not be called once the DB is open.
func (s *Core) Subscribe(h ChangeHandler) { s.changes.handlers = append(s.changes.handlers, h) }

// ChangedHere makes a change of this process take effect in it at once. It is called whatever the
// outcome of the transaction: after a failed commit that is unknown, and forgetting an entry once
// too often does no harm.
func (s *Core) ChangedHere(c Change) {
	switch c.Kind {
	case ChangeEndpoint, ChangeKey, ChangeTenant, ChangeMoved, ChangeEventType:
		for _, h := range s.changes.handlers {
			h.Changed(c)
		}
	default: // from a newer release, or another program: its meaning is unknown
		s.ForgetAll()
	}
}

// ForgetAll makes every cache read again.
func (s *Core) ForgetAll() {
	for _, h := range s.changes.handlers {
		h.ForgetAll()
	}
}

// endpointMoved calls a function, unless it is nil, for every endpoint whose URL or state has changed.
type endpointMoved func(webhook.EndpointID)

func (moved endpointMoved) Changed(c Change) {
	if c.Kind != ChangeMoved || moved == nil {
		return
	}
	if id, err := webhook.ParseEndpointID(c.ID); err == nil {
		moved(id)
	}
}

func (endpointMoved) ForgetAll() {}

// heartbeat is until when the listener has certainly received every change.
type heartbeat struct{ at atomic.Pointer[time.Time] }

func (h *heartbeat) beat(at time.Time) { h.at.Store(&at) }
func (h *heartbeat) stop()             { h.at.Store(nil) }

func (h *heartbeat) alive() bool {
	at := h.at.Load()
	return at != nil && time.Since(*at) <= beatLife
}

// NewCache makes a cache whose entries live as long as the listener allows.
func NewCache[K comparable, V any](s *Core, limit int, fill func(context.Context, K) (cache.Filled[V], error)) *cache.Cache[K, V] {
	return cache.New(cache.Config[K, V]{Limit: limit, Life: s.changes.timeToLive, Fill: fill, Translate: TranslateCache})
}

// NewCachedValue is NewCache for one value, which is read without a lock.
func NewCachedValue[V any](s *Core, fill func(context.Context) (V, error)) *cache.Value[V] {
	return cache.NewValue(cache.Config[struct{}, V]{
		Life: s.changes.timeToLive, Translate: TranslateCache,
		Fill: func(ctx context.Context, _ struct{}) (cache.Filled[V], error) {
			value, err := fill(ctx)
			return cache.Filled[V]{Value: value}, err
		},
	})
}

// NewRenewingCache is NewCache for values that are brought up to date: see cache.Config.
func NewRenewingCache[K comparable, V any](s *Core, limit int, empty func() V, renew func(context.Context, K, V) (weight int, err error)) *cache.Cache[K, V] {
	return cache.New(cache.Config[K, V]{Limit: limit, Life: s.changes.timeToLive, Make: empty, Renew: renew, Translate: TranslateCache})
}

// TranslateCache is Translate for the errors of a cache.
func TranslateCache(err error) error {
	if errors.Is(err, cache.ErrClosed) {
		return errClosed()
	}
	return Translate("wait for the cache", err)
}

// timeToLive is how long a cache entry may be used.
func (b *changeBus) timeToLive() time.Duration {
	if b.heard.alive() {
		return freshFor
	}
	return staleAfter
}

// StartListening listens for the changes of all processes, and runs the function beside, in the background
// until ctx or the core ends.
func (s *Core) StartListening(ctx context.Context, beside func(context.Context)) {
	s.listenOnce.Do(func() {
		ctx, cancel := context.WithCancel(ctx)
		context.AfterFunc(s.life, cancel) //nolint:contextcheck // whichever ends first
		s.background.Go(func() { listening{s}.loop(ctx) })
		s.background.Go(func() { beside(ctx) })
	})
}

// Listening reports whether this process receives the changes of others.
func (s *Core) Listening() bool { return s.changes.heard.alive() }

// listening keeps a connection that listens.
type listening struct{ *Core }

func (s listening) loop(ctx context.Context) {
	pause := reconnectFirst
	lost := false // no primary was found since the last connection
	for {
		connected, err := s.listen(ctx, lost)
		s.changes.heard.stop()
		if ctx.Err() != nil {
			return
		}
		pg, answered := errors.AsType[*pgconn.PgError](err)
		lost = lost && !connected || answered && demoted(pg.Code)
		if connected {
			pause = reconnectFirst
			if !pgconn.Timeout(err) && !errors.Is(err, context.DeadlineExceeded) {
				s.resetPools() // the server has closed the connection, and most likely all others
			}
		}
		s.Log.WarnContext(ctx, "not listening for changes of other processes: caches expire quickly until reconnected",
			slog.Any("error", err), slog.Duration("retry_in", pause))
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		pause = min(2*pause, reconnectLast)
	}
}

// listen listens on one connection until that is lost or ctx ends. connected reports whether
// it was up for a while. After the primary was lost, the first beat proves that there is one again, and all sessions that
// were opened before are closed: some may lead to a standby and only read.
func (s listening) listen(ctx context.Context, lost bool) (connected bool, err error) {
	l, err := s.openListener(ctx)
	if err != nil {
		return false, err
	}
	defer closeConn(ctx, l.conn)

	// Changes before LISTEN took effect were missed.
	s.ForgetAll()
	for {
		sent := time.Now()
		if err := within(ctx, beatTimeout, func(ctx context.Context) error { return s.clock.ask(ctx, l.conn) }); err != nil {
			return connected, fmt.Errorf("listen: %w", err)
		}
		if err := within(ctx, beatTimeout, l.hearItself); err != nil {
			return connected, fmt.Errorf("listen: a notification to itself did not come: %w", err)
		}
		// Every notification sent before this one has been handled: see openListener.
		s.changes.heard.beat(sent)
		if !connected {
			connected = true
			if lost {
				s.resetPools()
			}
			s.Log.InfoContext(ctx, "listening for changes of other processes")
		}
		if err := waitForChanges(ctx, l.conn); err != nil {
			return connected, fmt.Errorf("listen: %w", err)
		}
	}
}

// listener is a connection that listens to the changes, and to itself.
type listener struct {
	conn         *pgx.Conn
	own          string // the channel of its beats
	beats, heard uint64 // the number of the last beat
}

// openListener opens a connection that listens. Notifications are handled as they are read, also
// in the middle of another statement, so none is still queued when a beat is heard.
func (s listening) openListener(ctx context.Context) (*listener, error) {
	l := &listener{own: "everpost_" + rand.Text()}
	config := s.pool.Config().ConnConfig
	config.RuntimeParams["application_name"] += " listener"
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) {
		if n.Channel == l.own {
			l.heard, _ = strconv.ParseUint(n.Payload, 10, 64)
			return
		}
		var c Change // of an unknown kind if it cannot be parsed
		_ = json.Unmarshal([]byte(n.Payload), &c)
		s.ChangedHere(c)
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l.conn = conn
	var channel string
	// Nothing is lost with a beat, so it need not wait for the disk.
	err = conn.QueryRow(ctx, `select `+channelName+` from set_config('synchronous_commit', 'off', false)`).Scan(&channel)
	for _, name := range []string{channel, l.own} {
		if err == nil {
			_, err = conn.Exec(ctx, `listen `+pgx.Identifier{name}.Sanitize())
		}
	}
	if err != nil {
		closeConn(ctx, conn)
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}

// hearItself sends a beat and waits until it comes back.
func (l *listener) hearItself(ctx context.Context) error {
	l.beats++
	if _, err := l.conn.Exec(ctx, `select pg_notify($1, $2)`, l.own, strconv.FormatUint(l.beats, 10)); err != nil {
		return err
	}
	for l.heard != l.beats {
		if err := l.conn.PgConn().WaitForNotification(ctx); err != nil {
			return err
		}
	}
	return nil
}

// waitForChanges handles notifications until the next beat.
func waitForChanges(ctx context.Context, conn *pgx.Conn) error {
	until, cancel := context.WithTimeout(ctx, beatEvery)
	defer cancel()
	for {
		err := conn.PgConn().WaitForNotification(until)
		if err == nil {
			continue
		}
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && !conn.IsClosed() {
			return nil
		}
		return err
	}
}

func within(ctx context.Context, d time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return fn(ctx)
}
